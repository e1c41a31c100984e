"""What was left as it came (a stub), and what should have been (numpy)."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import FunctionType

import numpy as np

from paged_kv.checks.exercise import Asked

# Functions that the cases or a solution use. A cell that says `np.exp = …` replaces
# one for everybody until the kernel restarts.
_NAMES = (
    *("abs", "allclose", "arange", "argmax", "argmin", "array", "array_equal"),
    *("asarray", "concatenate", "dot", "einsum", "empty", "exp", "flatnonzero", "full"),
    *("full_like", "isfinite", "isnan", "log", "matmul", "max", "maximum", "mean"),
    *("min", "nonzero", "ones", "prod", "repeat", "reshape", "sqrt", "stack", "sum"),
    *("tile", "transpose", "where", "zeros", "zeros_like"),
)
_NUMPY_AT_IMPORT = {name: getattr(np, name) for name in _NAMES}
# All that a function whose body is `pass`, `...` or a docstring consists of.
_NOTHING = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}


def changed_numpy() -> list[str]:
    """Return the numpy functions that somebody has replaced since the import."""
    return [
        f"np.{name}"
        for name, function in _NUMPY_AT_IMPORT.items()
        if getattr(np, name, None) is not function
    ]


def empty_stubs(asked: Asked, given: object) -> Iterator[str]:
    """Yield the asked-for functions of `given` whose body is empty, by their names."""
    if not asked.is_class and _is_empty(given):
        yield asked.name
    for method in asked.methods:
        if _is_empty(getattr(given, method, None)):
            yield f"{asked.name}.{method}"


def _is_empty(function: object) -> bool:
    if not isinstance(function, FunctionType):
        return False
    code = function.__code__
    returns_none = set(code.co_consts) <= {None, function.__doc__}
    return returns_none and {i.opname for i in dis.get_instructions(code)} <= _NOTHING
