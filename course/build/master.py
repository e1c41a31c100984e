"""Read a master: a py:percent file whose cells carry a key, a language and tags."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext

LANGS = ("ru", "en")
_COPIES = ("exercise", "solution")
_NAME = re.compile(r"(\d\d)_(\d+)_([a-z0-9_]+)")
_KEY = re.compile(r"[a-z0-9-]{1,64}")
_CELL = re.compile(r"# %%(\s|$)")
# A tagged cell that does not raise, or is skipped, would pass nbval silently.
_FORBIDDEN_TAGS = {"raises-exception", "nbval-skip"}


class CourseError(Exception):
    """A master that cannot be built; ``problems`` has one line per fault."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Cell:
    """One cell; ``lang`` is None for code, which serves both languages."""

    path: str
    line: int  # of the first line of the source, from 1
    key: str
    lang: str | None
    source: str
    metadata: dict[str, Any]  # tags and nbgrader
    only: str = ""  # "exercise" or "solution": the cell stands in that copy alone

    def at(self, offset: int = 0) -> str:
        """Return ``file:line: [key]`` of a line of the source."""
        return f"{self.path}:{self.line + offset}: [{self.key}]"


@dataclass(frozen=True)
class Master:
    """A master; ``kind`` is "lessons", "exercises" or "index", ``path`` is relative."""

    path: str
    kind: str
    id: str  # "09.1", empty for the start page
    stem: str  # of the built files: "09.1_block_pool"
    header: dict[str, Any]
    cells: tuple[Cell, ...]

    def title(self, lang: str) -> str:
        """Return the text of the first heading."""
        first = next(cell for cell in self.cells if cell.lang == lang)
        return first.source.splitlines()[0].removeprefix("# ")


def find_masters(root: Path) -> list[Path]:
    """Return the masters below ``root/course`` in the order of their names."""
    course = root / "course"
    found = [*course.glob("lessons/*.py"), *course.glob("exercises/*.py")]
    return [*sorted(found, key=lambda p: (p.stem, p.parent)), *course.glob("index.py")]


def read_master(path: Path, root: Path) -> Master:
    """Read and validate one master.

    Raises
    ------
    CourseError
        With every structural fault found, each with file, line and key.
    """
    name = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="py:percent")
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if _CELL.match(line)]
    if len(starts) != len(notebook.cells):
        raise CourseError([f"{name}:1: text stands before the first `# %%` cell"])
    cells = [
        _read_cell(name, raw, start, lines)
        for raw, start in zip(notebook.cells, starts, strict=True)
    ]
    kind = "index" if path.name == "index.py" else path.parent.name
    header = notebook.metadata.get("course", {})
    match = _NAME.fullmatch(path.stem)
    problems = [
        *_cell_problems(cells, notebook.cells),
        *_pair_problems(cells),
        *[f"{name}:1: {fault}" for fault in _header_problems(header, kind)],
    ]
    if kind != "index" and not match:
        problems.append(f"{name}:1: the file name is not like 09_1_block_pool.py")
    if not cells or cells[0].lang is None or not cells[0].source.startswith("# "):
        problems.append(f"{name}:1: the first cell is not markdown with a # heading")
    if problems:
        raise CourseError(problems)
    number = f"{match[1]}.{match[2]}" if match else ""
    stem = f"{number}_{match[3]}" if match else path.stem
    return Master(name, kind, number, stem, dict(header), tuple(cells))


def _read_cell(path: str, raw: Any, start: int, lines: list[str]) -> Cell:
    body = raw.source.splitlines()
    first = lines.index(body[0], start) if body and body[0] in lines[start:] else start
    metadata = {k: v for k, v in raw.metadata.items() if k in ("tags", "nbgrader")}
    lang = raw.metadata.get("lang") if raw.cell_type == "markdown" else None
    key, only = (raw.metadata.get(name, "") for name in ("key", "only"))
    return Cell(path, first + 1, key, lang, raw.source, metadata, only)


def _cell_problems(cells: list[Cell], raws: list[Any]) -> list[str]:
    problems = []
    for cell, raw in zip(cells, raws, strict=True):
        given = raw.metadata
        allowed = {"key", "tags", "nbgrader", "only", "lines_to_next_cell"}
        if not _KEY.fullmatch(cell.key):
            problems.append(f"{cell.at()} the key is not 1–64 of a–z, 0–9 and -")
        if raw.cell_type == "markdown":
            allowed |= {"lang", "cell_marker"}
            if cell.lang not in LANGS:
                problems.append(f'{cell.at()} lang is not "ru" or "en"')
            if given.get("cell_marker") != 'r"""':
                problems.append(f'{cell.at()} the body is not in r""" … """')
            if "{{lang}}" in cell.source:
                problems.append(f"{cell.at()} {{{{lang}}}} is for code cells only")
        elif raw.cell_type != "code":
            problems.append(f"{cell.at()} a {raw.cell_type} cell")
        if cell.only and (cell.only not in _COPIES or "/exercises/" not in cell.path):
            problems.append(f"{cell.at()} only= is for exercises, and one of {_COPIES}")
        for extra in sorted(set(given) - allowed):
            problems.append(f"{cell.at()} unknown metadata {extra!r}")
        for tag in sorted(_FORBIDDEN_TAGS.intersection(given.get("tags", []))):
            problems.append(f"{cell.at()} the tag {tag!r} would hide a fault")
    return problems


def _pair_problems(cells: list[Cell]) -> list[str]:
    """Every key once; every markdown key as ru, then en, adjacent."""
    problems = []
    seen: dict[str, Cell] = {}
    i = 0
    while i < len(cells):
        cell = cells[i]
        other = cells[i + 1] if i + 1 < len(cells) else None
        if cell.key in seen:
            problems.append(
                f"{cell.at()} the key also stands in line {seen[cell.key].line}"
            )
        seen.setdefault(cell.key, cell)
        i += 1
        if cell.lang is not None:
            wanted = (cell.key, "en", cell.only)
            paired = other and (other.key, other.lang, other.only) == wanted
            if cell.lang == "ru" and paired:
                i += 1
            else:
                problems.append(f"{cell.at()} no ru cell with its en cell after it")
    return problems


def _header_problems(header: Any, kind: str) -> list[str]:
    if kind == "index":
        return ["the start page has no course header"] if header else []
    wanted = {"minutes", "summary"} | ({"difficulty"} if kind == "exercises" else set())
    if not isinstance(header, dict) or set(header) != wanted:
        return [f"the header `jupyter: course:` does not have just {sorted(wanted)}"]
    problems = []
    if not isinstance(header["minutes"], int) or header["minutes"] < 1:
        problems.append("minutes is not a positive whole number")
    if header.get("difficulty", 1) not in range(1, 6):
        problems.append("difficulty is not 1–5")
    summary = header["summary"]
    if not isinstance(summary, dict) or not all(summary.get(x) for x in LANGS):
        problems.append("summary has no ru and en text")
    return problems
