"""A notebook that a student has run, saved and opened again still shows its widgets."""

import nbformat
from nbformat.v4 import new_code_cell, new_notebook


def test_a_saved_widget_is_shown_without_running(open_in_lab, lab_root):
    cells = [
        new_code_cell(
            "from paged_kv.widgets import KVCalculator\nKVCalculator()", id="widget"
        )
    ]
    kernel = {"name": "python3", "display_name": "python3", "language": ""}
    path = lab_root / "saved.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    notebook = open_in_lab(path.name)
    notebook.run_all()
    notebook.cell("widget").locator(".pkv .facts").wait_for()
    notebook.save()
    notebook.close()

    again = open_in_lab(path.name)
    again.cell("widget").locator(".pkv .facts").wait_for()
    assert "model not found" not in again.text("widget")

    # On another machine, where nobody has trusted it: the still picture.
    stored = nbformat.read(path, as_version=4)
    stored.metadata["copied"] = True
    nbformat.write(stored, lab_root / "copied.ipynb")
    elsewhere = open_in_lab("copied.ipynb")
    elsewhere.cell("widget").locator(".pkv", has_text="One token").wait_for()
    assert "model not found" not in elsewhere.text("widget")
