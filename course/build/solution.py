"""Solution regions: what the exercise hides, and the proof that it stays hidden."""

import html
import io
import keyword
import re
import tokenize
from typing import Any, NoReturn

from .languages import line_for
from .master import Cell, CourseError, Master
from .outputs import output_texts

_BEGIN = re.compile(r"(\s*)### BEGIN SOLUTION")
_END = re.compile(r"(\s*)### END SOLUTION")
_STUB = re.compile(r"(\s*)# STUB:(?: (.*))?")
_MARKER = re.compile(r"BEGIN\s+SOLUTION|END\s+SOLUTION|#\s*STUB", re.IGNORECASE)
_TRIVIAL_WORDS = {*keyword.kwlist, "self"}


def split(cell: Cell) -> list[tuple[str, str]]:
    """Return (role, line) for each line of a code cell.

    Roles are "code" (in both copies), "marker" and "solution" (in the solution only)
    and "stub" (in the exercise only, without its marker).

    Raises
    ------
    CourseError
        For a nested, unclosed or unopened region, and for stubs out of place.
    """
    result: list[tuple[str, str]] = []
    state, start, indent = "code", 0, ""  # "code" | "solution" | "ended" | "stubs"

    def fail(offset: int, fault: str) -> NoReturn:
        raise CourseError([f"{cell.at(offset)} {fault}"])

    for i, line in enumerate(cell.source.splitlines()):
        begin, end, stub = (p.fullmatch(line) for p in (_BEGIN, _END, _STUB))
        if stub and state in ("ended", "stubs") and stub[1] == indent:
            state = "stubs"
            result.append(("stub", f"{indent}{stub[2] or ''}".rstrip()))
            continue
        if state == "ended":
            fail(start, "no STUB line directly after END SOLUTION, indented like BEGIN")
        if state == "stubs":
            state = "code"
        if begin and state == "code":
            state, start, indent = "solution", i, begin[1]
            result.append(("marker", line))
        elif end and state == "solution":
            state, start = "ended", i
            result.append(("marker", line))
        elif begin:
            fail(i, f"BEGIN SOLUTION inside the region of {cell.at(start)}")
        elif end:
            fail(i, "END SOLUTION without BEGIN SOLUTION")
        elif _MARKER.search(line):
            fail(i, "a STUB out of place, or a solution marker that is not exact")
        else:
            result.append((state, line))
    if state == "solution":
        fail(start, "BEGIN SOLUTION is never closed")
    if state == "ended":
        fail(start, "no STUB line directly after END SOLUTION, indented like BEGIN")
    return result


def nbgrader_problems(cell: Cell) -> list[str]:
    """Find a solution region that nbgrader would refuse when it hands out the course.

    Its cell needs the metadata of a solution, which the build keeps in the solutions.
    """
    given = cell.metadata.get("nbgrader", {})
    if not any(_BEGIN.fullmatch(line) for line in cell.source.splitlines()):
        return []
    if given.get("solution") is True and given.get("grade_id"):
        return []
    wanted = (
        f'nbgrader={{"grade": false, "grade_id": "{cell.key}", "locked": false,'
        ' "schema_version": 3, "solution": true, "task": false}'
    )
    return [f"{cell.at()} a solution region wants the metadata {wanted}"]


def variant(cell: Cell, *, solved: bool) -> str:
    """Return the code of the solution (``solved``) or of the exercise."""
    roles = ("code", "marker", "solution") if solved else ("code", "stub")
    source = "\n".join(line for role, line in split(cell) if role in roles)
    return add_strict(cell, source) if solved else source


def add_strict(cell: Cell, source: str) -> str:
    """Add ``strict=True`` to every call ``check("…", …)``."""
    if not re.search(r"\bcheck\(", source):
        return source
    noise = (tokenize.NL, tokenize.COMMENT)
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in noise
    ]
    lines = source.splitlines()
    for i in reversed(range(len(tokens) - 2)):
        called = [token.string for token in tokens[i : i + 2]] == ["check", "("]
        method = i > 0 and tokens[i - 1].string in (".", "def")
        if not called or method or tokens[i + 2].type != tokenize.STRING:
            continue
        depth = 1
        end = i + 2
        while depth:
            depth += tokens[end].string in "([{"
            depth -= tokens[end].string in ")]}"
            if depth == 1 and tokens[end].string == "strict":
                raise CourseError([f"{cell.at()} strict= is added by the build"])
            end += 1
        last = tokens[end - 2]  # before the closing parenthesis
        row, column = last.end
        text = " strict=True" if last.string == "," else ", strict=True"
        lines[row - 1] = lines[row - 1][:column] + text + lines[row - 1][column:]
    return "\n".join(lines)


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def secrets(master: Master, lang: str) -> set[str]:
    """Return the lines that only a solution may show.

    Free to use are lines that also stand in code outside the regions, and trivial
    ones: without any word but keywords and ``self`` (brackets, ``else:``,
    ``return None``).
    """
    hidden: set[str] = set()
    visible: set[str] = set()
    for cell in master.cells:
        for role, line in split(cell) if cell.lang is None else []:
            seen = line_for(line, lang)
            if seen is not None and role != "marker":
                secret = role == "solution" or cell.only == "solution"
                (hidden if secret else visible).add(_squeeze(seen))
    return {
        line
        for line in hidden - visible
        if set(re.findall(r"[^\W\d]\w*", line)) - _TRIVIAL_WORDS
    }


def leaks(hidden: set[str], notebook: Any) -> list[str]:
    """Return ``[cell] line`` for each hidden line in sources and outputs."""
    patterns = {
        line: re.compile(rf"(?<!\w){re.escape(line)}(?!\w)") for line in sorted(hidden)
    }
    problems = []
    for cell in notebook.cells:
        texts = [cell.source]
        for text in output_texts(cell):
            bare = (re.sub(r"<[^>]*>", gap, text) for gap in ("", " "))
            texts += [text, *map(html.unescape, bare)]
        shown = [_squeeze(text) for text in texts]
        problems += [
            f"[{cell.id}] leak of a solution line: {line}"
            for line, pattern in patterns.items()
            if any(pattern.search(text) for text in shown)
        ]
    return problems
