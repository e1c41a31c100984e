"""The committed notebooks are those of the masters, and pass every gate."""

from pathlib import Path

from course.build.__main__ import check

ROOT = Path(__file__).parents[2]


def test_the_notebooks_are_in_step_with_their_masters():
    assert check(ROOT, outputs=False) == []
