"""For teachers who hand out and grade with nbgrader; nothing else imports this."""

from __future__ import annotations

import re
from typing import Any

from nbgrader.preprocessors import NbGraderPreprocessor

# "09.1 · **Solution** · 45 min · … · [Exercise](../../exercises/en/…) · …"
_KIND = re.compile(r"^(\d\d\.\d) · \*\*.+?\*\*", re.MULTILINE)
_EXERCISE = re.compile(r" · \[[^]]+\]\(\.\./\.\./exercises/[^)]+\)")


class LenientChecks(NbGraderPreprocessor):  # type: ignore[misc]
    """Let a released notebook look and report as an exercise does.

    A solution's check is strict: it raises when something is wrong, so that no wrong
    solution is built. A student wants the report, and the cells after it. And the line
    under the title must not call her notebook a solution. In ``nbgrader_config.py``::

        c.GenerateAssignment.preprocessors.insert(
            0, "paged_kv.grading.nbgrader.LenientChecks"
        )
    """

    def preprocess_cell(
        self, cell: Any, resources: dict[str, Any], index: int
    ) -> tuple[Any, dict[str, Any]]:
        """Remove ``strict=True`` from a check, and "Solution" under the title."""
        if cell.cell_type == "code" and "check(" in cell.source:
            cell.source = cell.source.replace(", strict=True)", ")")
        elif cell.cell_type == "markdown" and index == 0:
            cell.source = _EXERCISE.sub("", _KIND.sub(r"\1", cell.source))
        return cell, resources
