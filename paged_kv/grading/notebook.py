"""Reads the code of a notebook that a student has handed in, in whatever shape."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from paged_kv.checks.registry import EXERCISES
from paged_kv.messages import tr

# Magics whose cell is Python all the same; the code of others is not.
_PYTHON_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun")
_CHECK = re.compile(r"""\b(?:check|points|hint)\(\s*["'](\d\d\.\d+)["']""")


class Unreadable(Exception):
    """The file is no notebook with code; the text says why."""


@dataclass(frozen=True)
class CodeCell:
    """A code cell; `number` counts all cells from the top of the notebook."""

    number: int
    source: str

    @property
    def file(self) -> str:
        """What the cell is called in tracebacks."""
        return f"<cell {self.number}>"

    def parse(self) -> ast.Module:
        """Return the syntax tree; magics and shell commands are left out.

        Raises
        ------
        SyntaxError
        """
        try:
            return ast.parse(self.source, self.file)
        except ValueError as error:  # a null character, before Python 3.12
            raise SyntaxError(str(error)) from None
        except SyntaxError:
            return ast.parse(_without_magics(self.source), self.file)


def read_cells(path: Path) -> list[CodeCell]:
    """Return the code cells of a notebook.

    Only what is needed is read, so that a file with faults elsewhere (no ids, no
    metadata, an old format) can be graded.

    Raises
    ------
    Unreadable
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}".replace(str(path), path.name)
        raise Unreadable(
            tr("The file cannot be read as a notebook: {reason}", reason=reason)
        ) from None
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise Unreadable(tr("The file is no notebook: it has no list of cells."))
    code = [
        CodeCell(number, _source(cell))
        for number, cell in enumerate(cells, start=1)
        if isinstance(cell, dict) and cell.get("cell_type") == "code"
    ]
    if not any(cell.source.strip() for cell in code):
        raise Unreadable(tr("The notebook has no cell with code."))
    return code


def find_exercises(cells: Iterable[CodeCell]) -> list[str]:
    """Return the ids of the exercises that a notebook answers.

    They are those it calls `check` for. Without such a call (a deleted cell), the one
    most of whose names it defines.
    """
    cells = list(cells)
    called = {found for cell in cells for found in _CHECK.findall(cell.source)}
    if known := [exercise for exercise in EXERCISES if exercise in called]:
        return known
    defined = {name for cell in cells for name in _defined(cell)}
    share = {
        e.id: sum(asked.name in defined for asked in e.asked) / len(e.asked)
        for e in EXERCISES.values()
    }
    best = max(share, key=lambda exercise: share[exercise])
    return [best] if share[best] else []


def _defined(cell: CodeCell) -> set[str]:
    try:
        nodes = cell.parse().body
    except SyntaxError:
        return set()
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in nodes if isinstance(node, kinds)}


def _source(cell: dict[str, object]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(map(str, _listed(source)))


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _without_magics(source: str) -> str:
    lines = source.splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines and lines[first].startswith("%%"):
        if not lines[first].startswith(_PYTHON_MAGICS):
            return ""
        lines[first] = ""
    return "\n".join(
        re.sub(r"\S.*", "pass", line)
        if line.lstrip().startswith(("%", "!", "?")) or line.rstrip().endswith("?")
        else line
        for line in lines
    )
