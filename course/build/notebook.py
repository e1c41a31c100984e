"""Assemble the notebooks of a master: its languages, and exercise and solution."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nbformat import v4

from .languages import code_for
from .master import LANGS, Cell, CourseError, Master
from .outputs import METADATA
from .published import binder, colab, install_cell
from .solution import variant

INDEX = "notebooks/index.ipynb"
_COLAB_CELL = "install-in-colab"
_WORDS = {
    "lessons": {"ru": "Урок", "en": "Lesson"},
    "exercises": {"ru": "Упражнение", "en": "Exercise"},
    "solutions": {"ru": "Решение", "en": "Solution"},
    "map": {"ru": "Карта модуля", "en": "Map of the module"},
    "other": {"ru": "In English", "en": "*По-русски*"},
    "minutes": {"ru": "{}\u00a0мин", "en": "{}\u00a0min"},
    "difficulty": {
        "ru": "сложность\u00a0{}\u00a0из\u00a05",
        "en": "difficulty\u00a0{}\u00a0of\u00a05",
    },
    "total": {"ru": "**Всего**", "en": "**Total**"},
    "hours": {"ru": "{}\u00a0ч {}\u00a0мин", "en": "{}\u00a0h {}\u00a0min"},
    "binder": {
        "ru": "[Открыть модуль на Binder]({}): ничего устанавливать не надо.",
        "en": "[Open the module on Binder]({}): there is nothing to install.",
    },
    "columns": {
        "ru": "| № | Тетрадь | Что внутри | Время |",
        "en": "| No. | Notebook | What is inside | Time |",
    },
}


@dataclass(frozen=True)
class Target:
    """One notebook to build; ``kind`` is a master's kind, or "solutions"."""

    path: str  # relative to the root of the course
    lang: str  # "" for the start page, which has both
    kind: str
    master: Master


def targets(masters: Iterable[Master]) -> list[Target]:
    """Return every notebook that the masters ask for."""
    found = []
    for master in masters:
        if master.kind == "index":
            found.append(Target(INDEX, "", "index", master))
            continue
        kinds = {"lessons": ["lessons"], "exercises": ["exercises", "solutions"]}
        for kind in kinds[master.kind]:
            for lang in LANGS:
                folder = "notebooks" if kind == "lessons" else kind
                path = f"{folder}/{lang}/{master.stem}.ipynb"
                found.append(Target(path, lang, kind, master))
    return found


def assemble(target: Target, masters: list[Master], repository: str = "") -> Any:
    """Return the notebook, not executed.

    ``repository`` is where the course is published, ``owner/name``: then the notebook
    has links to open it in Colab and on Binder, and a cell that installs it in Colab.

    Raises
    ------
    CourseError
        If a solution region is malformed, or a lesson has one.
    """
    master = target.master
    cells = []
    copy = target.kind.removesuffix("s")
    for lang in [target.lang] if target.lang else LANGS:
        for cell in master.cells:
            if cell.lang in (lang, None) and cell.only in ("", copy):
                cells.append(_cell(target, cell, lang, masters, repository))
    if master.kind != "index":
        title, _, rest = cells[0].source.partition("\n")
        line = _navigation(target, repository)
        cells[0].source = f"{title}\n\n{line}\n\n{rest.strip()}".strip()
        if repository:
            first = next(i for i, c in enumerate(cells) if c.cell_type == "code")
            code = v4.new_code_cell(install_cell(repository), id=_COLAB_CELL)
            cells.insert(first, code)
    return v4.new_notebook(cells=cells, metadata=METADATA)


def _cell(
    target: Target, cell: Cell, lang: str, masters: list[Master], repository: str
) -> Any:
    identity = cell.key if target.lang else f"{cell.key}-{lang}"
    kept = ("tags", "nbgrader") if target.kind == "solutions" else ("tags",)
    metadata = {name: cell.metadata[name] for name in kept if name in cell.metadata}
    if cell.lang is None:
        source = variant(cell, solved=target.kind == "solutions")
        if target.master.kind != "exercises" and source != cell.source:
            raise CourseError([f"{cell.at()} only exercises have solution regions"])
        make, source = v4.new_code_cell, code_for(source, lang)
    else:
        make, source = v4.new_markdown_cell, cell.source
        if target.kind == "index":
            table = course_map(masters, lang)
            if repository:
                link = _WORDS["binder"][lang].format(binder(repository, INDEX))
                table = f"{table}\n\n{link}"
            source = source.replace("{{map}}", table)
    return make(source=source, id=identity, metadata=metadata)


def _facts(master: Master, lang: str) -> list[str]:
    facts = [_WORDS["minutes"][lang].format(master.header["minutes"])]
    if "difficulty" in master.header:
        facts.append(_WORDS["difficulty"][lang].format(master.header["difficulty"]))
    return facts


def _navigation(target: Target, repository: str) -> str:
    master, lang = target.master, target.lang
    other = "en" if lang == "ru" else "ru"
    parts = [f"{master.id} · **{_WORDS[target.kind][lang]}**", *_facts(master, lang)]
    if target.kind == "solutions":
        exercise = f"../../exercises/{lang}/{master.stem}.ipynb"
        parts.append(f"[{_WORDS['exercises'][lang]}]({exercise})")
    index = "../index.ipynb" if target.kind == "lessons" else f"../../{INDEX}"
    parts.append(f"[{_WORDS['map'][lang]}]({index})")
    parts.append(f"[{_WORDS['other'][lang]}](../{other}/{master.stem}.ipynb)")
    if repository:
        parts.append(f"[Colab]({colab(repository, target.path)})")
        parts.append(f"[Binder]({binder(repository, target.path)})")
    return " · ".join(parts)


def course_map(masters: Iterable[Master], lang: str) -> str:
    """Return the table of the lessons and exercises that exist."""
    rows = [_WORDS["columns"][lang], "|---|---|---|---|"]
    listed = [master for master in masters if master.kind != "index"]
    for master in sorted(listed, key=lambda m: (m.id, m.kind == "exercises")):
        folder = "" if master.kind == "lessons" else "../exercises/"
        link = f"[{master.title(lang)}]({folder}{lang}/{master.stem}.ipynb)"
        what = f"{_WORDS[master.kind][lang]}: {link}"
        facts = ", ".join(_facts(master, lang))
        rows.append(
            f"| {master.id} | {what} | {master.header['summary'][lang]} | {facts} |"
        )
    time = divmod(sum(master.header["minutes"] for master in listed), 60)
    total = _WORDS["hours"][lang].format(*time)
    return "\n".join([*rows, f"| | {_WORDS['total'][lang]} | | {total} |"])
