"""A whole solution earns what nbgrader can give, whatever cases are added."""

import json
from pathlib import Path

import pytest

from paged_kv.checks import points
from paged_kv.checks.registry import EXERCISES
from tests.checks.student import ASKED, answer, right_source

SOLUTIONS = Path(__file__).parents[2] / "solutions" / "en"


def most_points(exercise):
    """Return the points that the solution notebook's test cell is worth."""
    (path,) = SOLUTIONS.glob(f"{exercise}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    (cell,) = (cell for cell in cells if cell["id"] == "points")
    return cell["metadata"]["nbgrader"]["points"]


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_point_for_every_property(exercise):
    if not list(SOLUTIONS.glob(f"{exercise}_*.ipynb")):
        pytest.skip("it has no notebook of its own")
    assert most_points(exercise) == len(EXERCISES[exercise].cases)


@pytest.mark.parametrize("exercise", ASKED)
def test_a_right_solution_earns_all_points(exercise):
    objects = answer(exercise, right_source(exercise))
    assert points(exercise, *objects) == most_points(exercise)
