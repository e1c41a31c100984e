"""For teachers who hand out and grade with nbgrader; nothing else imports this."""

from __future__ import annotations

from typing import Any

from nbgrader.preprocessors import NbGraderPreprocessor


class LenientChecks(NbGraderPreprocessor):  # type: ignore[misc]
    """Let the checks of a released notebook report as those of an exercise do.

    A solution's check is strict: it raises when something is wrong, so that no wrong
    solution is built. A student wants the report, and the cells after it. In
    ``nbgrader_config.py``::

        c.GenerateAssignment.preprocessors.insert(
            0, "paged_kv.grading.nbgrader.LenientChecks"
        )
    """

    def preprocess_cell(
        self, cell: Any, resources: dict[str, Any], index: int
    ) -> tuple[Any, dict[str, Any]]:
        """Remove ``strict=True`` from a cell that calls ``check``."""
        if cell.cell_type == "code" and "check(" in cell.source:
            cell.source = cell.source.replace(", strict=True)", ")")
        return cell, resources
