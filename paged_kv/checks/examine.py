"""Runs the cases of an exercise, up to the first that fails or all, and reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from paged_kv.checks.blame import student_code, student_line
from paged_kv.checks.exercise import Case, Exercise
from paged_kv.checks.failures import explain_exception
from paged_kv.checks.report import Report, Section, State, state_word
from paged_kv.checks.runner import run_guarded
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import clean
from paged_kv.checks.untouched import changed_numpy, empty_stubs
from paged_kv.checks.usable import expect_usable
from paged_kv.messages import tr, trn

PRINTED_LINES = 20


def examine(exercise: Exercise, objects: tuple[object, ...]) -> Report:
    """Check `objects`, one for each of `exercise.asked`; never raises."""
    if unusable := _unusable(exercise, objects):
        return unusable.report()
    script = Script({})
    for n_right, case in enumerate(exercise.cases):
        script, failure = _try(exercise, objects, case)
        if failure:
            return replace(failure, n_right=n_right).report()
    return _passed(exercise, script)


def examine_each(
    exercise: Exercise, objects: tuple[object, ...]
) -> Iterator[Report | None]:
    """Yield for every case None if it holds, else the report on it; never raises."""
    unusable = _unusable(exercise, objects)
    for case in exercise.cases:
        failure = unusable or _try(exercise, objects, case)[1]
        yield failure.report() if failure else None


def _unusable(exercise: Exercise, objects: tuple[object, ...]) -> _Failure | None:
    error = run_guarded(partial(expect_usable, exercise.asked, objects)).error
    names = _names(exercise, objects)
    return _Failure(exercise, names, error, Script({})) if error else None


def _try(
    exercise: Exercise, objects: tuple[object, ...], case: Case
) -> tuple[Script, _Failure | None]:
    names = _names(exercise, objects)
    script = Script({**exercise.given, **names})
    run = run_guarded(partial(case.run, script))
    if run.error is None:
        return script, None
    return script, _Failure(exercise, names, run.error, script, run.printed, case)


def _names(exercise: Exercise, objects: tuple[object, ...]) -> dict[str, object]:
    return {a.name: given for a, given in zip(exercise.asked, objects, strict=True)}


@dataclass(frozen=True)
class _Failure:
    """A case that failed, on its way to a report.

    Without a case, what was passed to `check` could not be used at all.
    """

    exercise: Exercise
    names: dict[str, object]
    error: BaseException
    script: Script
    printed: str = ""
    case: Case | None = None
    n_right: int = 0

    def report(self) -> Report:
        if stub := self._stub():
            return self._stub_report(stub)
        # The likely cause may be asked of the student's objects: within the limits.
        diagnosis = run_guarded(self._diagnosis).value
        state, wrong = diagnosis or ("raised", explain_exception(self.error))
        return Report(
            exercise=self.exercise.id,
            title=_title(self.exercise, state),
            state=state,
            code=wrong.code,
            message=wrong.cause,
            sections=tuple(self._sections(wrong)),
        )

    def _stub(self) -> str | None:
        """Return the name of the stub that the case ran into, if it did."""
        if isinstance(self.error, NotImplementedError):
            found = student_code(self.error)
            return found[0].co_qualname if found else None
        lines = "\n".join(self.script.lines)
        for asked in self.exercise.asked:
            for stub in empty_stubs(asked, self.names[asked.name]):
                called = stub.removesuffix(".__init__").rpartition(".")[2]
                if f"{called}(" in lines:
                    return stub
        return None

    def _stub_report(self, stub: str) -> Report:
        return Report(
            exercise=self.exercise.id,
            title=_title(self.exercise, "not started"),
            state="not started",
            code="not-started",
            message=tr(
                "`{stub}` is still a stub: write it, run its cell, then run this cell "
                "again.",
                stub=stub,
            ),
            sections=(*self._right_so_far(), self._next_hint()),
        )

    def _diagnosis(self) -> tuple[State, Wrong]:
        if changed := changed_numpy():
            cause = tr(
                "`{names}` is not numpy's any more: a cell has assigned to it. Remove "
                "that assignment and restart the kernel.",
                names=", ".join(changed),
            )
            return "raised", Wrong("numpy-changed", cause)
        if isinstance(self.error, Wrong):
            return "wrong", self.error
        explained = self.exercise.explain(self.error, self.script)
        return "raised", explained or explain_exception(self.error)

    def _sections(self, wrong: Wrong) -> Iterator[Section]:
        lines = self.script.shown_lines()
        culprit = "" if isinstance(self.error, Wrong) else self.script.unfinished
        if culprit not in "".join(lines[-1:]):
            lines.append(culprit)  # one that only looks, and failed
        if lines:
            yield Section(tr("What was run"), tuple(lines), is_code=True)
        if wrong.expected:
            yield Section(tr("Expected"), (wrong.expected,), is_code=True)
            yield Section(tr("Got"), (wrong.got,), is_code=True)
        if wrong.where:
            yield Section(tr("Where"), (wrong.where,))
        if line := student_line(self.error):
            yield Section(tr("Your line"), (line,), is_code=True)
        if self.printed:
            printed = self.printed.splitlines()[:PRINTED_LINES]
            lines = [clean(line, 120) for line in printed]
            yield Section(tr("Your code printed"), tuple(lines), is_code=True)
        if self.case:
            yield Section(tr("Lesson"), (wrong.lesson or self.case.lesson(),))
        yield from self._right_so_far()
        yield self._next_hint()

    def _right_so_far(self) -> Iterator[Section]:
        if self.n_right:
            text = trn(
                "{n} property of {total} holds, the next one does not.",
                "{n} properties of {total} hold, the next one does not.",
                self.n_right,
                total=len(self.exercise.cases),
            )
            yield Section(tr("So far"), (text,))

    def _next_hint(self) -> Section:
        return Section(tr("Hint"), (f'hint("{self.exercise.id}", 1)',), is_code=True)


def _passed(exercise: Exercise, script: Script) -> Report:
    summary = exercise.summary(script)
    return Report(
        exercise=exercise.id,
        title=_title(exercise, "passed"),
        state="passed",
        code="passed",
        message=summary or tr("Everything in this list was tried and is right."),
        sections=(
            Section(tr("Verified"), tuple(case.about() for case in exercise.cases)),
            Section(tr("Not verified"), exercise.not_verified()),
        ),
    )


def _title(exercise: Exercise, state: State) -> str:
    return f"{exercise.id} {exercise.title()}: {state_word(state)}"
