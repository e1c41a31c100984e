"""A student's own classes, out of her exercise notebooks: lesson 09.7 runs on them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from paged_kv.grading.notebook import read_cells
from paged_kv.grading.statements import needed, split, unwritten

# Exercise → what it asks for → the option of `Engine`, `generate` and `ChatWidget`.
_OPTIONS = {
    "09.1": {"BlockPool": "pool_type", "Sequence": "sequence_type"},
    "09.2": {"paged_attention": "attention"},
}


def own_classes(folder: str | Path) -> dict[str, Any]:
    """Return what is written in the exercises of a folder.

    Only the statements that define the classes are executed, not the notebooks.

    Returns
    -------
    dict
        Options for `Engine`: pool_type and sequence_type from exercise 09.1, attention
        from 09.2; none of an exercise that still has a stub.

    Raises
    ------
    Unreadable
        For a file that is no notebook.
    SyntaxError
        For a cell that cannot be read; it names the cell.
    Exception
        Whatever the statements raise.
    """
    options: dict[str, Any] = {}
    for exercise, names in _OPTIONS.items():
        for path in sorted(Path(folder).glob(f"{exercise}_*.ipynb")):
            options |= _written(path, names)
    return options


def _written(path: Path, names: Mapping[str, str]) -> dict[str, Any]:
    statements = [s for cell in read_cells(path) for s in split(cell)]
    statements = needed(statements, names)
    if any(unwritten(statement.node) for statement in statements):
        return {}
    module = ModuleType(path.stem)
    sys.modules[path.stem] = module  # where a dataclass looks for its names
    namespace = vars(module)
    for statement in statements:
        exec(statement.code, namespace)
    if not names.keys() <= namespace.keys():
        return {}
    return {option: namespace[name] for name, option in names.items()}
