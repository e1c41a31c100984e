"""Checks of the exercises, to be called in a notebook.

>>> report = check("09.1", BlockPool, Sequence)
>>> report.state, report.code
('wrong', 'block-per-token')

What happens inside: an exercise (`block_pool`, `attention`, `sharing`, one file each,
listed in `registry`) is a list of cases (`cases/`). A case runs lines of code on the
student's objects (`script`), under limits (`runner`), and raises `Wrong` with a
diagnosis. `examine` turns the first failure into a report (`report`, `html`).
"""

from paged_kv.checks.api import CheckFailed, check, hint, points, progress
from paged_kv.checks.report import Report

__all__ = ["CheckFailed", "Report", "check", "hint", "points", "progress"]
