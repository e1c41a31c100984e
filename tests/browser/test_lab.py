"""The browser harness itself, on a notebook made here."""

import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Error


@pytest.fixture
def sample(lab_root):
    """Return the path of a notebook with a print, an error and an HTML cell."""
    cells = [
        new_code_cell("import sys\nprint(sys.executable)", id="interpreter"),
        new_code_cell("value = 20 + 3\nprint(value)", id="printing"),
        new_code_cell(
            "class Page:\n    def _repr_html_(self):\n"
            "        return f'<p data-state=\"on\">value {value}</p>'\nPage()",
            id="page",
        ),
    ]
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "python3", "language": ""}
    }
    path = lab_root / "sample.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata=metadata), path)
    return path.name


def test_cells_run_in_this_python_and_show_what_they_print(open_in_lab, sample):
    notebook = open_in_lab(sample)
    notebook.run_all()
    assert notebook.text("interpreter").strip() == sys.executable
    assert notebook.text("printing").strip() == "23"
    assert notebook.output("page").locator("[data-state=on]").inner_text() == "value 23"


def test_a_replaced_cell_is_what_runs(open_in_lab, sample):
    notebook = open_in_lab(sample)
    source = "def total(n):\n    if n:\n        return n + total(n - 1)\n    return 0\n"
    notebook.replace("printing", f"{source}\nvalue = total(4)\nprint('итог', [value])")
    notebook.run("printing")
    notebook.run("page")
    assert notebook.text("printing").strip() == "итог [10]"
    assert "value 10" in notebook.text("page")


def test_errors_and_stderr_are_seen_and_later_cells_do_not_run(open_in_lab, sample):
    notebook = open_in_lab(sample)
    notebook.replace("interpreter", "import sys\nprint('spilt', file=sys.stderr)")
    notebook.replace("printing", "1 / 0")
    notebook.run_all()
    assert notebook.troubles() == ["interpreter: spilt\n", "printing: division by zero"]
    assert notebook.text("page") == ""
    with pytest.raises(Error, match="no cell has the id elsewhere"):
        notebook.run("elsewhere")


def test_both_themes_differ_on_the_page(open_in_lab, sample):
    notebook = open_in_lab(sample)
    backgrounds = set()
    for theme in ("light", "dark"):
        notebook.set_theme(theme)
        backgrounds.add(
            notebook.page.evaluate("() => getComputedStyle(document.body).background")
        )
    assert len(backgrounds) == 2
