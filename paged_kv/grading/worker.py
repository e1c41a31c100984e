"""Grades one notebook in this process, within limits, and tells it line by line.

    python -P -m paged_kv.grading.worker NOTEBOOK RESULT LANGUAGE SECONDS MIB SAFE [ID]

Each criterion is written as soon as it is known: when the notebook ends the process or
is stopped, what was known remains.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from paged_kv.checks.examine import examine_each
from paged_kv.checks.registry import EXERCISES
from paged_kv.grading.collect import collect
from paged_kv.grading.grade import to_line
from paged_kv.grading.limits import limit_this_process
from paged_kv.grading.notebook import Unreadable, find_exercises, read_cells
from paged_kv.messages import tr, use_language

# Criteria that may run out of time before the others are given up.
PATIENCE = 2


def grade(path: Path, result: Path, safe: bool, wanted: str) -> None:
    """Grade the notebook at `path`, and append what is known to `result`."""

    def tell(**event: object) -> None:
        with result.open("a", encoding="utf-8") as file:
            file.write(to_line(**event))

    try:
        cells = read_cells(path)
    except Unreadable as error:
        tell(unreadable=True, notes=[str(error)])
        tell(done=True)
        return
    exercises = [wanted] if wanted else find_exercises(cells)
    if not exercises:
        tell(notes=[tr("It calls no check, and defines no name of an exercise.")])
    for exercise in exercises:
        tell(exercise=exercise)
        collected = collect(cells, EXERCISES[exercise], safe=safe)
        tell(exercise=exercise, notes=collected.notes)
        late = 0
        for report in examine_each(EXERCISES[exercise], collected.objects):
            tell(exercise=exercise, holds=report is None, report=report)
            late += report is not None and report.code == "time-limit"
            if late == PATIENCE:
                break
    tell(done=True)


def main(arguments: list[str]) -> None:
    """Set the language and the limits, then grade."""
    path, result, lang, seconds, memory, safe, *wanted = arguments
    use_language(lang)
    limit_this_process(int(seconds), int(memory))
    grade(Path(path), Path(result), safe == "safe", "".join(wanted))


if __name__ == "__main__":
    main(sys.argv[1:])
    # Threads and exit handlers of the notebook have nothing to add.
    os._exit(0)
