"""Compare the committed notebooks with those of the masters."""

import difflib
import json
from pathlib import Path
from typing import Any

import nbformat

from .notebook import Target

FOLDERS = ("notebooks", "exercises", "solutions")
# What `paged-kv reset` puts back: copies of the exercises inside the package.
_PRISTINE = "paged_kv/commands"


def read(root: Path, path: str) -> Any | None:
    """Return a stored notebook, or None if there is no valid one."""
    try:
        text = (root / path).read_text(encoding="utf-8")
        nbformat.validate(json.loads(text))
    except (OSError, ValueError, nbformat.ValidationError):
        return None
    return nbformat.reads(text, as_version=nbformat.NO_CONVERT)


def strays(root: Path, wanted: list[Target]) -> list[str]:
    """Find notebooks that no master asks for."""
    paths = {target.path for target in wanted}
    found = [path for folder in FOLDERS for path in (root / folder).rglob("*.ipynb")]
    names = [path.relative_to(root).as_posix() for path in found]
    return [
        f"{name}: no master makes it; delete it or write the master"
        for name in sorted(names)
        if name not in paths and ".ipynb_checkpoints" not in name
    ]


def keep_pristine(root: Path, target: Target) -> None:
    """Copy an exercise that was just written to where ``paged-kv reset`` takes it."""
    if target.kind == "exercises":
        copy = root / _PRISTINE / target.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((root / target.path).read_bytes())


def pristine_problems(root: Path, wanted: list[Target]) -> list[str]:
    """Compare the copies that ``paged-kv reset`` takes with the stored exercises."""
    paths = [target.path for target in wanted if target.kind == "exercises"]
    copies = (root / _PRISTINE).glob("exercises/*/*.ipynb")
    names = [path.relative_to(root / _PRISTINE).as_posix() for path in copies]
    return [
        f"{_PRISTINE}/{path}: not the exercise; `make notebooks` copies it"
        for path in sorted({*paths, *names})
        if _bytes(root / _PRISTINE / path) != _bytes(root / path)
    ]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def differences(path: str, stored: Any, built: Any, *, outputs: bool) -> list[str]:
    """Say where a stored notebook is not the built one, with a diff per cell.

    ``outputs`` compares text outputs as well; of an image only its presence counts.
    """
    if (stored.nbformat, stored.nbformat_minor) != (4, 5):
        return [f"{path}: nbformat {stored.nbformat}.{stored.nbformat_minor}, not 4.5"]
    if stored.metadata != built.metadata:
        return [f"{path}: its metadata are not those of a build"]
    ids = [[cell.get("id", "") for cell in nb.cells] for nb in (stored, built)]
    if ids[0] != ids[1]:
        return [f"{path}: other cells\n{_diff(*ids)}"]
    problems = []
    for old, new in zip(stored.cells, built.cells, strict=True):
        views = [_view(cell, outputs) for cell in (old, new)]
        if views[0] != views[1]:
            problems.append(f"{path}: [{new.id}] not as built\n{_diff(*views)}")
    return problems


def _diff(stored: list[str], built: list[str]) -> str:
    lines = difflib.unified_diff(stored, built, "stored", "built", lineterm="", n=1)
    return "\n".join(f"    {line}" for line in lines)


def _view(cell: Any, outputs: bool) -> list[str]:
    lines = [f"{cell.cell_type} {dict(cell.metadata)}", *cell.source.splitlines()]
    for output in cell.get("outputs", []) if outputs else []:
        lines.append(f"output {output.output_type} {output.get('name', '')}")
        lines += output.get("text", "").splitlines()
        for mime, data in sorted(output.get("data", {}).items()):
            lines.append(mime)
            lines += [] if mime.startswith("image/") else str(data).splitlines()
    return lines
