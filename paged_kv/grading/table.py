"""The grades as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from paged_kv.checks.registry import EXERCISES
from paged_kv.grading.grade import Grade

_MOST_CRITERIA = max(len(exercise.cases) for exercise in EXERCISES.values())
#: A row per submission and exercise. State and code are in English in any language.
COLUMNS = (
    *("submission", "exercise", "points", "max_points", "percent", "state", "code"),
    *("message", "notes", "seconds"),
    *(f"criterion_{n}" for n in range(1, _MOST_CRITERIA + 1)),
)


def write_csv(grades: Iterable[Grade], path: Path) -> None:
    """Write the grades, in UTF-8 with a mark by which spreadsheets know it.

    ``criterion_n`` is 1 or 0, and empty if the exercise has fewer criteria or the
    submission was stopped before.
    """
    # A file's name, or a student's text, may hold what UTF-8 cannot.
    with path.open("w", -1, "utf-8-sig", "backslashreplace", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(map(_row, grades))


def _row(grade: Grade) -> dict[str, object]:
    percent = 100 * grade.points / grade.max_points if grade.max_points else 0
    texts = {
        "submission": grade.submission,
        "exercise": grade.exercise,
        "state": grade.state,
        "code": grade.report.code if grade.report else "",
        "message": grade.message,
        "notes": "; ".join(grade.notes),
    }
    return {
        **{column: _harmless(text) for column, text in texts.items()},
        "points": grade.points,
        "max_points": grade.max_points,
        "percent": f"{percent:.0f}",
        "seconds": f"{grade.seconds:.1f}",
        **{f"criterion_{n}": int(x) for n, x in enumerate(grade.criteria, start=1)},
    }


def _harmless(text: str) -> str:
    """Keep a spreadsheet from taking a text for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
