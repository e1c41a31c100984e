"""The solutions are sources for nbgrader, as nbgrader itself sees them."""

import importlib.util
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from paged_kv.checks.registry import EXERCISES

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nbgrader") is None or sys.platform == "win32",
    reason="nbgrader is not installed",
)
SOLUTIONS = Path(__file__).parents[2] / "solutions"
EXERCISE = "09.1_block_pool"
CONFIG = """
c.CourseDirectory.course_id = "course"
c.GenerateAssignment.preprocessors.insert(
    0, "paged_kv.grading.nbgrader.LenientChecks"
)
"""
# Wrong solutions: what stands in the right one, and what instead.
WRONG = {
    "no-peak": ("self.peak = max(self.peak, self.used)", "pass"),
    "no-count": ("self.ref[block] = 1", "self.ref[block] = 2"),
    "one-layer": ("pool.k[:, block, slot] = k", "pool.k[0, block, slot] = k[0]"),
}


def hand_out(course, paths):
    """Make a course of nbgrader's from solutions; return what it hands out."""
    (course / "nbgrader_config.py").write_text(CONFIG)
    source = course / "source" / "unit"
    source.mkdir(parents=True)
    for path in paths:
        (source / path.name).write_bytes(path.read_bytes())
    nbgrader(course, "generate_assignment", "unit")
    return course / "release" / "unit"


def nbgrader(folder, *arguments):
    """Run nbgrader as in an activated environment: it starts programs by name."""
    scripts = os.path.dirname(sys.executable)
    done = subprocess.run(
        [os.path.join(scripts, "nbgrader"), *arguments],
        cwd=folder,
        env={**os.environ, "PATH": os.pathsep.join([scripts, os.environ["PATH"]])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def title(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return "".join(notebook["cells"][0]["source"])


def code_cells(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return {
        cell["id"]: "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    }


def without_stubs(source):
    """Return the lines of a cell but those that a student is to replace."""
    lines = [line.strip() for line in source.splitlines()]
    return [
        line
        for line in lines
        if line and not line.startswith(("raise NotImplementedError", "#"))
    ]


@pytest.mark.parametrize("lang", ["ru", "en"])
def test_what_is_handed_out_are_the_exercises(tmp_path, lang):
    solutions = sorted((SOLUTIONS / lang).glob("*.ipynb"))
    released = hand_out(tmp_path, solutions)
    assert {path.stem.split("_")[0] for path in solutions} == {*EXERCISES}
    for path in (released / solution.name for solution in solutions):
        origin = SOLUTIONS.parent / "exercises" / lang / path.name
        assert title(path) == re.sub(r"\*\*.+?\*\* · ", "", title(origin), count=1)
        exercise, cells = code_cells(origin), code_cells(path)
        for key, source in exercise.items():
            assert without_stubs(cells[key]) == without_stubs(source), (path, key)
            stubs = source.count("raise NotImplementedError")
            assert cells[key].count("raise NotImplementedError") == stubs
        text = path.read_text(encoding="utf-8")
        assert "SOLUTION" not in text
        added = cells.keys() - exercise.keys()
        assert "points" in added
        assert all("YOUR CODE HERE" in cells[key] for key in added - {"points"})
        for line in _answers(SOLUTIONS / lang / path.name):
            assert line not in text


def _answers(path):
    """Yield the lines of a solution's answers to questions."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown" and "nbgrader" in cell["metadata"]:
            lines = [line for line in cell["source"] if line.strip()]
            yield from (json.dumps(line, ensure_ascii=False) for line in lines)


def test_points(tmp_path):
    """The solution gets all, the untouched exercise none, wrong ones some."""
    path = SOLUTIONS / "en" / f"{EXERCISE}.ipynb"
    solution = path.read_text(encoding="utf-8")
    released = hand_out(tmp_path, [path]) / path.name
    submissions = {"solved": solution, "untouched": released.read_text("utf-8")}
    for student, (right, wrong) in WRONG.items():
        changed = _replace(solution, right, wrong)
        assert changed != solution, student
        submissions[student] = changed
    for student, text in submissions.items():
        path = tmp_path / "submitted" / student / "unit" / f"{EXERCISE}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    nbgrader(tmp_path, "autograde", "unit")
    scores = _scores(tmp_path / "gradebook.db")
    total = len(EXERCISES["09.1"].cases)
    assert scores.pop("solved") == total
    assert scores.pop("untouched") == 0
    assert scores.keys() == WRONG.keys()
    assert all(0 < score < total for score in scores.values()), scores


def _replace(text, right, wrong):
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        cell["source"] = source.replace(right, wrong)
    return json.dumps(notebook)


def _scores(path):
    """Return the points of the test cell of each student."""
    query = """
        SELECT submitted_assignment.student_id, grade.auto_score
        FROM grade
        JOIN submitted_notebook ON grade.notebook_id = submitted_notebook.id
        JOIN submitted_assignment
          ON submitted_notebook.assignment_id = submitted_assignment.id
        JOIN base_cell ON grade.cell_id = base_cell.id
        JOIN notebook ON base_cell.notebook_id = notebook.id
        WHERE base_cell.name = 'points' AND notebook.name = ?
    """
    connection = sqlite3.connect(path)
    try:
        return dict(connection.execute(query, [EXERCISE]).fetchall())
    finally:
        connection.close()
