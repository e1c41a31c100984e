"""What fits a screen: lengths of cells and outputs, and the sizes of files."""

import ast
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# A reader sees about this much at once.
CELL_LINES = 15
# Of a lesson's cell, its imports aside; longer is refused. The listing shows what is
# between the two.
CELL_LINES_AT_MOST = 25
OUTPUT_LINES = 50
OUTPUT_PIXELS = 700
NOTEBOOK_BYTES = 1_500_000


def length_problems(notebook: Any, kind: str) -> list[str]:
    """Return ``[cell] fault`` for outputs longer than a screen, and endless cells.

    Exercises and solutions may have long cells: a class is written in one.
    """
    problems = []
    for cell in notebook.cells:
        is_code = kind == "lessons" and cell.cell_type == "code"
        count = _lines_to_read(cell.source) if is_code else 0
        if count > CELL_LINES_AT_MOST:
            problems.append(
                f"[{cell.id}] a cell of {count} lines, more than {CELL_LINES_AT_MOST}"
            )
        lines, pixels = _extent(cell.get("outputs", []))
        if lines > OUTPUT_LINES:
            problems.append(
                f"[{cell.id}] an output of {lines} lines, more than {OUTPUT_LINES}"
            )
        if pixels > OUTPUT_PIXELS:
            problems.append(
                f"[{cell.id}] pictures of {pixels} pixels' height together,"
                f" more than {OUTPUT_PIXELS}"
            )
    return problems


def _lines_to_read(source: str) -> int:
    """Return the lines of Python code, without its imports."""
    # IPython's own commands are no Python, and are read as a line each.
    python = re.sub(r"^(\s*)(?:%\w|!).*", r"\1pass", source, flags=re.M)
    imports = 0
    for node in ast.parse(python).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports += (node.end_lineno or node.lineno) - node.lineno + 1
    return len(source.splitlines()) - imports


def _extent(outputs: list[Any]) -> tuple[int, int]:
    """Return the lines of text or rows of tables, and the height of the pictures."""
    lines = pixels = 0
    for output in outputs:
        data = output.get("data", {})
        if "image/png" in data:
            pixels += int.from_bytes(b64decode(data["image/png"])[20:24])
        elif "text/html" in data:
            lines += len(re.findall(r"<tr\b", data["text/html"]))
        else:
            text = output.get("text") or data.get("text/plain", "")
            lines += len(text.splitlines())
    return lines, pixels


def size_problem(root: Path, path: str) -> list[str]:
    """Return the fault of a notebook file that is too large to open quickly."""
    size = (root / path).stat().st_size
    if size <= NOTEBOOK_BYTES:
        return []
    return [f"{path}: {size / 1e6:.1f} MB, more than {NOTEBOOK_BYTES / 1e6} MB"]


def listing(root: Path, notebooks: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reviewer looks at: the longest cells and outputs, the largest files.

    Of cells, those longer than ``CELL_LINES``; the code is the same in both
    languages, so one is listed. Imports and a student's own region may be longer.
    """
    yield f"cells of more than {CELL_LINES} lines:"
    for path, notebook in notebooks.items():
        if "/ru/" in path:
            continue
        for cell in notebook.cells:
            count = len(cell.source.splitlines())
            if cell.cell_type == "code" and count > CELL_LINES:
                yield f"{count:6d}  {path} [{cell.id}]"
    yield "longest outputs (lines or rows, pixels of pictures):"
    outputs = [
        (*_extent(cell.get("outputs", [])), path, cell.id)
        for path, notebook in notebooks.items()
        for cell in notebook.cells
    ]
    for lines, pixels, path, key in sorted(outputs, reverse=True)[:10]:
        yield f"{lines:6d} {pixels:5d}  {path} [{key}]"
    yield "largest notebooks (kB):"
    sizes = [((root / path).stat().st_size, path) for path in notebooks]
    for size, path in sorted(sizes, reverse=True)[:10]:
        yield f"{size / 1e3:6.0f}  {path}"
