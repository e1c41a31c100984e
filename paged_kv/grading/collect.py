"""Executes a notebook as far as needed, and picks the objects that are asked for."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import paged_kv.checks
from paged_kv.checks.exercise import Asked, Exercise
from paged_kv.checks.report import Report
from paged_kv.checks.runner import OutputLimit, TimeLimit, run_guarded
from paged_kv.checks.show import clean
from paged_kv.grading.notebook import CodeCell
from paged_kv.grading.statements import Statement, needed, split, unwritten
from paged_kv.messages import language, tr, trn, use_language


@dataclass(frozen=True)
class _Definition:
    cell: int
    value: object
    stubs: int


@dataclass
class Collected:
    """What a notebook gives for an exercise.

    Attributes
    ----------
    objects : tuple
        What `check` takes; a name that is missing has a stub here.
    notes : list of str
        What the teacher should know: cells that failed, names that are missing, the
        definition that counts if there are several.
    """

    objects: tuple[object, ...] = ()
    notes: list[str] = field(default_factory=list)


def collect(cells: Iterable[CodeCell], exercise: Exercise, *, safe: bool) -> Collected:
    """Execute `cells` in order and return the asked-for objects; never raises.

    Parameters
    ----------
    safe : bool
        Execute only the statements that define the asked-for names, and what those
        need: imports, other definitions, constants. Else all; a statement that fails
        does not keep the next ones from being executed.
    """
    result = Collected()
    statements: list[Statement] = []
    for cell in cells:
        # So that the report can show the student's line.
        lines = cell.source.splitlines(keepends=True)
        linecache.cache[cell.file] = (len(cell.source), None, lines, cell.file)
        try:
            statements += split(cell)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            result.notes += _failures({cell.number: error})
    names = [asked.name for asked in exercise.asked]
    if safe:
        statements = needed(statements, names)
    lang = language()
    found, errors = _execute(statements, names)
    use_language(lang)  # the notebook has chosen its own
    result.notes += _failures(errors)
    result.objects = tuple(
        _choose(asked, found[asked.name], result.notes) for asked in exercise.asked
    )
    return result


def _execute(
    statements: list[Statement], names: list[str]
) -> tuple[dict[str, list[_Definition]], dict[int, BaseException]]:
    """Execute in order; what lacks a name of a cell below, again after the others.

    Returns
    -------
    found : dict
        The definitions of each of `names`, by cell.
    errors : dict
        The first error of each cell that failed.
    """
    module = ModuleType("__main__")
    sys.modules["__main__"] = module  # where a dataclass looks for its names
    _leave_out_checks()
    namespace: dict[str, Any] = vars(module)
    found: dict[str, list[_Definition]] = {name: [] for name in names}
    errors: dict[int, BaseException] = {}  # of each cell the first: others follow
    pending = statements
    while pending:
        lacking: list[Statement] = []
        errors = {n: e for n, e in errors.items() if not isinstance(e, NameError)}
        for statement in pending:
            before = {name: namespace.get(name) for name in names}
            error = run_guarded(partial(exec, statement.code, namespace)).error
            if error:
                errors.setdefault(statement.cell, error)
                lacking += [statement] if isinstance(error, NameError) else []
            for name in names:
                value = namespace.get(name)
                if value is not None and value is not before[name]:
                    stubs = unwritten(statement.node)
                    found[name].append(_Definition(statement.cell, value, stubs))
        pending = lacking if len(lacking) < len(pending) else []
    by_cell = {name: sorted(own, key=lambda d: d.cell) for name, own in found.items()}
    return by_cell, errors


def _leave_out_checks() -> None:
    """Make the notebook's own checks say "not started".

    The grader does them itself, and experiments that ask for a pass are skipped.
    """

    def skipped(*_: object, **__: object) -> Report:
        return Report("", "", "not started", "not-started", "")

    for name in ("check", "hint", "points", "progress"):
        setattr(paged_kv.checks, name, skipped)


def _choose(asked: Asked, found: list[_Definition], notes: list[str]) -> object:
    """Return the definition that counts: the last one with the fewest stubs."""
    own = [definition for definition in found if not _is_ours(definition.value)]
    if not own:
        text = (
            tr(
                "`{name}` is the module's own or stands on it, and was not counted.",
                name=asked.name,
            )
            if found
            else tr("`{name}` is not defined.", name=asked.name)
        )
        notes.append(text)
        return _missing(asked)
    best = min(reversed(own), key=lambda definition: definition.stubs)
    if len(own) > 1:
        notes.append(
            tr(
                "`{name}` is defined in cells {cells}; the one in cell {cell} counts.",
                name=asked.name,
                cells=", ".join(str(definition.cell) for definition in own),
                cell=best.cell,
            )
        )
    return best.value


def _is_ours(value: object) -> bool:
    """Whether a class or function comes from the package, or a class inherits."""
    parts = value.__mro__ if isinstance(value, type) else (value,)
    modules = [str(getattr(part, "__module__", "")) for part in parts]
    return any(module.partition(".")[0] == "paged_kv" for module in modules)


def _missing(asked: Asked) -> object:
    """Return a stub, so that the criteria of the other names can be checked."""
    lines = [f"class {asked.name}:"] if asked.is_class else []
    for method in asked.methods or (asked.name,):
        lines.append(
            f"{'    ' if asked.is_class else ''}"
            f"def {method}(*_, **__): raise NotImplementedError"
        )
    namespace: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<missing>", "exec"), namespace)
    return namespace[asked.name]


def _failures(errors: dict[int, BaseException]) -> list[str]:
    """Return what to say about cells that failed, the same error once."""
    cells: dict[str, list[int]] = {}
    for cell, error in sorted(errors.items()):
        if not isinstance(error, NotImplementedError):  # its own stub: no news
            cells.setdefault(_reason(error), []).append(cell)
    return [
        trn(
            "Cell {cells} failed: {reason}",
            "Cells {cells} failed: {reason}",
            len(numbers),
            cells=", ".join(map(str, numbers)),
            reason=reason,
        )
        for reason, numbers in cells.items()
    ]


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeLimit):
        return tr("it did not finish in time and was stopped")
    if isinstance(error, OutputLimit):
        return tr("it printed without end and was stopped")
    text = run_guarded(lambda: clean(str(error))).value or ""
    return f"{type(error).__name__}: {text}".removesuffix(": ")
