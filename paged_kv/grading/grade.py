"""What grading says about a submission, and how a worker tells it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from paged_kv.checks.registry import EXERCISES
from paged_kv.checks.report import Report, Section
from paged_kv.checks.report import State as ReportState
from paged_kv.messages import language, tr

State = Literal[
    "passed", "partly", "wrong", "not started", "stopped", "unreadable", "unknown"
]
#: States in which a person has to look: the submission was not graded to the end.
UNGRADED = ("stopped", "unreadable", "unknown")


def state_word(state: State) -> str:
    """Return the state in the current language."""
    return {
        "passed": tr("passed"),
        "partly": tr("partly right"),
        "wrong": tr("not right yet"),
        "not started": tr("not started"),
        "stopped": tr("stopped"),
        "unreadable": tr("unreadable"),
        "unknown": tr("no exercise found"),
    }[state]


@dataclass
class Grade:
    """One exercise of one submission.

    Attributes
    ----------
    submission : str
        Path of the notebook, relative to what was given.
    exercise : str
        "09.1"; empty if the notebook could not be read or answers none.
    criteria : list of bool
        Whether each property holds, in the order of the check; one point each. It is
        shorter than the exercise's cases when the process ended early.
    report : Report or None
        On the first property that does not hold.
    notes : list of str
        What the teacher should know besides.
    ended : str
        Why the process did not come to its end, or empty.
    seconds : float
        Of the whole process.
    readable : bool
        Whether the file is a notebook with code.
    """

    submission: str
    exercise: str = ""
    criteria: list[bool] = field(default_factory=list)
    report: Report | None = None
    notes: list[str] = field(default_factory=list)
    ended: str = ""
    seconds: float = 0.0
    readable: bool = True

    @property
    def points(self) -> int:
        """How many properties hold."""
        return sum(self.criteria)

    @property
    def max_points(self) -> int:
        """How many there are."""
        return len(EXERCISES[self.exercise].cases) if self.exercise else 0

    @property
    def state(self) -> State:
        """The outcome in a word."""
        if not self.readable:
            return "unreadable"
        if len(self.criteria) < self.max_points or (self.ended and not self.exercise):
            return "stopped"
        if not self.exercise:
            return "unknown"
        if self.points:
            return "passed" if self.points == self.max_points else "partly"
        not_started = self.report is not None and self.report.state == "not started"
        return "not started" if not_started else "wrong"

    @property
    def message(self) -> str:
        """The first thing to say about it."""
        return self.ended or (self.report.message if self.report else "")


def to_line(**event: object) -> str:
    """Return an event of a worker as a line of JSON."""
    report = event.get("report")
    if isinstance(report, Report):
        event["report"] = dataclasses.asdict(report)
    return json.dumps(event) + "\n"


def read_grades(submission: str, lines: Iterable[str]) -> tuple[list[Grade], bool]:
    """Return the grades that a worker has told, and whether it told all.

    What a worker tells may be anything, since the student's code runs in it: lines
    that make no sense are passed over.
    """
    grades: dict[str, Grade] = {}
    complete = False
    for event in _events(lines):
        exercise = str(event.get("exercise", ""))
        if event.get("done"):
            complete = True
        elif exercise == "" or exercise in EXERCISES:
            grade = grades.setdefault(exercise, Grade(submission, exercise))
            notes = event.get("notes")
            grade.notes += map(str, notes if isinstance(notes, list) else ())
            grade.readable &= not event.get("unreadable", False)
            if "holds" in event and len(grade.criteria) < grade.max_points:
                grade.criteria.append(event["holds"] is True)
                if grade.report is None and isinstance(event.get("report"), dict):
                    grade.report = _report(event["report"])
    return list(grades.values()), complete


def _events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):  # cut off when the process was stopped
            continue
        if isinstance(event, dict):
            yield event


def _report(fields: dict[str, Any]) -> Report | None:
    if fields.get("state") not in get_args(ReportState):
        return None
    try:
        sections = tuple(
            Section(str(s["label"]), tuple(map(str, s["lines"])), bool(s["is_code"]))
            for s in fields["sections"]
        )
        texts: dict[str, Any] = {name: str(text) for name, text in fields.items()}
        return Report(**{**texts, "sections": sections, "language": language()})
    except (KeyError, TypeError):
        return None
