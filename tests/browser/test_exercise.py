"""A student in JupyterLab: opens exercise 09.1, gets it wrong, then right."""

import nbformat
import pytest

EXERCISE = "exercises/{}/09.1_block_pool.ipynb"
SOLUTION = "solutions/{}/09.1_block_pool.ipynb"
STUDENT_CELLS = ("block-pool", "sequence")

# The finished solution with one mistake: a freed sequence keeps its blocks.
NEVER_GIVES_BACK = """

class Sequence(Sequence):
    def free(self):
        self.block_table = []
"""


def state(notebook, language):
    """Return the state and the diagnosis that the check cell shows, in a language."""
    (report,) = notebook.output("check").locator(f"[data-state][lang={language}]").all()
    return report.get_attribute("data-state"), report.get_attribute("data-code")


def read_solution(root, language):
    """Return the student's cells as the solution has them, by id."""
    notebook = nbformat.read(root / SOLUTION.format(language), as_version=4)
    return {cell.id: cell.source for cell in notebook.cells if cell.id in STUDENT_CELLS}


@pytest.mark.parametrize("language", ["ru", "en"])
def test_exercise_from_untouched_to_passed(open_in_lab, lab_root, language):
    notebook = open_in_lab(EXERCISE.format(language))

    notebook.run_all()
    assert notebook.troubles() == []
    assert state(notebook, language)[0] == "not-started"

    solution = read_solution(lab_root, language)
    for cell in STUDENT_CELLS:
        notebook.replace(cell, solution[cell])
        notebook.run(cell)
    notebook.replace("sequence", solution["sequence"] + NEVER_GIVES_BACK)
    notebook.run("sequence")
    notebook.run("check")
    assert state(notebook, language) == ("wrong", "blocks-not-returned")

    notebook.replace("sequence", solution["sequence"])
    notebook.run_all()
    assert notebook.troubles() == []
    assert state(notebook, language)[0] == "passed"
