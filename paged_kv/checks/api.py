"""What a notebook calls: `check`, `hint`, `points`, `progress`."""

from __future__ import annotations

from paged_kv.checks.examine import examine, examine_each
from paged_kv.checks.registry import EXERCISES
from paged_kv.checks.report import Note, Report, Section, state_word
from paged_kv.checks.show import show
from paged_kv.messages import tr, trn

_states: dict[str, str] = {}  # last state of each exercise checked in this process


class CheckFailed(AssertionError):
    """A strict check did not pass; the text is the report."""


def check(exercise: str, *objects: object, strict: bool = False) -> Report:
    """Check a student's objects and say what is right, what is wrong, and why.

    Parameters
    ----------
    exercise : str
        The id of an exercise, e.g. "09.1".
    *objects : object
        What the exercise asks for, e.g. the classes `BlockPool` and `Sequence`.
        Nothing else of the notebook is read.
    strict : bool
        Raise when it does not pass, for solutions and grading.

    Returns
    -------
    Report
        Displayed by a notebook as HTML, elsewhere as text.

    Raises
    ------
    CheckFailed
        Only when `strict`.
    """
    report = _refused(exercise, objects) or examine(EXERCISES[exercise], objects)
    if report.exercise in EXERCISES:
        _states[report.exercise] = report.state
    if strict and not report.passed:
        raise CheckFailed(f"{report.code}\n{report!r}")
    return report


def hint(exercise: str, level: int = 1) -> Note:
    """Return one of the three hints of an exercise; 3 says the most."""
    if not isinstance(exercise, str) or exercise not in EXERCISES:
        return Note(tr("Hint"), (_unknown(exercise),))
    if level not in (1, 2, 3):
        return Note(tr("Hint"), (tr("There are hints 1, 2 and 3."),))
    title = tr("{exercise}: hint {level} of 3", exercise=exercise, level=level)
    text = EXERCISES[exercise].hints()[level - 1]
    return Note(title, tuple(text.split("\n\n")))


def points(exercise: str, *objects: object) -> int:
    """Return how many of the exercise's properties hold, each on its own.

    The value of an nbgrader test cell, which takes a number for partial credit. The
    check stops at the first property that does not hold; here the others count too.

    Raises
    ------
    CheckFailed
        If there is no such exercise, or for another number of objects.
    """
    if refused := _refused(exercise, objects):
        raise CheckFailed(f"{refused.code}\n{refused!r}")
    reports = examine_each(EXERCISES[exercise], objects)
    return sum(report is None for report in reports)


def progress() -> Note:
    """Return how many exercises have passed since the kernel was started.

    Each notebook has a kernel of its own and knows of its own checks only. Optional
    exercises are listed, and not counted.
    """
    required = [e for e in EXERCISES.values() if not e.optional]
    n = sum(_states.get(e.id) == "passed" for e in required)
    title = trn(
        "{n} exercise of {total} passed",
        "{n} exercises of {total} passed",
        n,
        total=len(required),
    )
    lines = []
    for e in EXERCISES.values():
        name = f"{e.id} {e.title()}" + (f" ({tr('optional')})" if e.optional else "")
        state = _states.get(e.id)
        word = state_word(state) if state else tr("not checked in this notebook yet")
        lines.append(f"{name}: {word}")
    return Note(title, tuple(lines))


def _unknown(exercise: object) -> str:
    return tr(
        "There is no exercise {given}. There are: {known}.",
        given=show(exercise),
        known=", ".join(EXERCISES),
    )


def _refused(exercise: object, objects: tuple[object, ...]) -> Report | None:
    """Return a report when `check` was called in a way that cannot be carried out."""
    if not isinstance(exercise, str) or exercise not in EXERCISES:
        return Report(
            exercise="",
            title=tr("check: no such exercise"),
            state="wrong",
            code="unknown-exercise",
            message=_unknown(exercise),
        )
    asked = [a.name for a in EXERCISES[exercise].asked]
    if len(objects) == len(asked):
        return None
    call = f'check("{exercise}", {", ".join(asked)})'
    return Report(
        exercise=exercise,
        title=tr("check: wrong number of objects"),
        state="wrong",
        code="wrong-number-of-objects",
        message=trn(
            "check takes {wanted} after the id; {n} object was given.",
            "check takes {wanted} after the id; {n} objects were given.",
            len(objects),
            wanted=len(asked),
        ),
        sections=(Section(tr("Write"), (call,), is_code=True),),
    )
