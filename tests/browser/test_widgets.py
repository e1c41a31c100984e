"""The widgets in JupyterLab: they appear, move, link, speak, and survive a closing."""

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from tests.browser.lab import WIDGET, open_notebook

SETUP = """
from paged_kv import Sequence
from paged_kv.messages import use_language
from paged_kv.widgets import BlockExplorer, Playground, compare, draw
from tests.widgets.runs import mixed, shared_prompt
from tests.widgets.students import EagerSequence, ListPool, NoCopySequence
import random
use_language("{language}")
"""
CELLS = {
    "explorer": "BlockExplorer(shared_prompt(), step=16)",
    "map": "BlockExplorer(mixed(1024, 20, random.Random(1), operations=300))",
    "playground": "Playground()",
    "still": "draw(mixed(256, 12, random.Random(2)))",
    "beside": 'compare("09.3", ListPool, NoCopySequence)',
    "beside-pool": 'compare("09.1", ListPool, EagerSequence)',
}


def write(root, name, language="en"):
    setup = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})"
    cells = [new_code_cell(setup + SETUP.format(language=language), id="setup")]
    cells += [new_code_cell(source, id=key) for key, source in CELLS.items()]
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "python3", "language": ""}
    }
    notebook = new_notebook(cells=cells, metadata=metadata)
    nbformat.write(notebook, root / name)
    return notebook


@pytest.fixture(scope="module")
def shared_notebook(browser, server, lab_root):
    """Open a notebook with every widget of this file and run it, once."""
    write(lab_root, "widgets.ipynb")
    with open_notebook(browser, server, "widgets.ipynb") as notebook:
        notebook.run_all()
        assert notebook.troubles() == []
        yield notebook
        assert notebook.errors == []


@pytest.fixture
def notebook(shared_notebook):
    """Return the notebook with the explorer in front, at its first step."""
    shared_notebook.activate("explorer")
    handle = shared_notebook.cell("explorer").locator(".noUi-handle")
    handle.press("Home")
    wait_for_step(shared_notebook.cell("explorer"), "Step 0 / 32")
    return shared_notebook


def go(widget, step, last):
    """Move the slider to a step."""
    slider = "e => e.noUiSlider.set({})"
    widget.locator(".noUi-target").evaluate(slider.format(step))
    wait_for_step(widget, f"Step {step} / {last}")


def wait_for_step(widget, text):
    widget.locator(".now p", has_text=text).wait_for()


def test_the_timeline_moves_by_mouse_keyboard_and_buttons(notebook):
    widget = notebook.cell("explorer")
    handle = widget.locator(".noUi-handle")
    go(widget, 16, 32)
    picture = widget.locator(".pool").inner_html()

    handle.focus()
    notebook.page.keyboard.press("ArrowRight")
    wait_for_step(widget, "Step 17 / 32 append ×3 req5")
    assert widget.locator(".pool").inner_html() != picture
    assert "Step 17 / 32" in handle.get_attribute("aria-valuetext")
    assert "copied to block 37" in widget.locator("[aria-live=polite].v").inner_text()

    widget.get_by_role("button", name="‹").click()
    wait_for_step(widget, "Step 16 / 32")
    widget.get_by_role("button", name="next copy-on-write").click()
    wait_for_step(widget, "Step 17 / 32")
    widget.locator(".stops li").first.click()
    wait_for_step(widget, "Step 12 / 32 append ×3 req0")
    handle.drag_to(widget.locator(".noUi-target"), target_position={"x": 2, "y": 2})
    wait_for_step(widget, "Step 0 / 32")
    widget.get_by_role("button", name="Play").click()
    wait_for_step(widget, "Step 2 / 32 fork sys→req0")
    widget.get_by_role("button", name="Play").click()
    widget.get_by_label("MiB of").select_option("OPT-13B")
    widget.locator(".met", has_text="OPT-13B, 12.5 MiB a block").wait_for()


def linked(widget):
    """Return the texts of all that is outlined now, by where it stands."""
    places = {"names": ".nm", "tables": ".c", "pool": ".pool .b"}
    return {
        place: [e.get_attribute("data-b") for e in widget.locator(f"{cls}.lk").all()]
        for place, cls in places.items()
    }


def test_hover_and_focus_link_a_block_wherever_it_stands(notebook):
    widget = notebook.cell("explorer")
    go(widget, 16, 32)
    widget.locator(".pool .b[data-b='31']").hover()
    found = linked(widget)
    assert found["pool"] == ["31"]
    assert found["tables"] == ["31"] * 6  # sys, req5 … req9
    assert len(found["names"]) == 6
    assert widget.locator(".gh.lk").count() == 1

    widget.locator(".bt .run").first.hover()
    found = linked(widget)
    assert found["pool"] == [str(block) for block in range(3, 29)]
    assert found["tables"] == ["3-28"] * 11

    widget.locator(".nm", has_text="req4").hover()
    found = linked(widget)
    assert found["names"] == ["0-30 36"]
    assert found["pool"] == [str(block) for block in [*range(31), 36]]
    assert found["tables"] == ["0", "1", "2", "3-28", "29", "30", "36"]

    widget.locator(".pool .b[data-b='60']").hover()
    assert linked(widget) == {"names": [], "tables": [], "pool": ["60"]}

    large = notebook.cell("map")
    notebook.activate("map")
    field = large.locator(".map .b").nth(1)
    field.hover()
    assert (
        field.get_attribute("data-b").replace("-", "…")
        in large.locator(".pool .hint").inner_text()
    )


def test_arrow_keys_walk_the_pool(notebook):
    for cell in ("explorer", "map"):
        notebook.activate(cell)
        pool = notebook.cell(cell).locator(".pool")
        stops = pool.locator("[tabindex='0']")
        stops.focus()
        start = pool.locator(":focus").get_attribute("data-b")
        for key in ("ArrowRight", "ArrowDown", "ArrowUp", "ArrowLeft"):
            notebook.page.keyboard.press(key)
            assert stops.count() == 1
            assert pool.locator(":focus").count() == 1
        assert pool.locator(":focus").get_attribute("data-b") == start
        notebook.page.keyboard.press("ArrowUp")
        assert pool.locator(":focus").get_attribute("data-b") == start
    notebook.activate("explorer")
    pool = notebook.cell("explorer").locator(".pool")
    pool.locator("[tabindex='0']").focus()
    notebook.page.keyboard.press("ArrowDown")
    assert pool.locator(":focus").get_attribute("data-b") == "16"


def test_the_playground_plays(notebook):
    widget = notebook.cell("playground")
    notebook.activate("playground")
    widget.get_by_label("tokens to append").fill("6")
    widget.get_by_label("tokens to append").press("Enter")
    widget.get_by_role("button", name="append", exact=True).click()
    wait_for_step(widget, "Step 1 / 1 append ×6 a")
    widget.get_by_role("button", name="fork", exact=True).click()
    wait_for_step(widget, "Step 2 / 2 fork a→b")
    widget.get_by_role("button", name="append", exact=True).click()
    wait_for_step(widget, "Step 3 / 3 append ×6 b copy-on-write 1→2")
    for _ in range(10):
        widget.get_by_role("button", name="append", exact=True).click()
    wait_for_step(widget, "append b refused")
    widget.get_by_role("button", name="start over").click()
    wait_for_step(widget, "The pool is empty")


def test_no_serious_barrier_in_either_theme(notebook):
    for theme in ("light", "dark"):
        notebook.set_theme(theme)
        for cell in CELLS:
            notebook.activate(cell)
            found = notebook.serious_barriers(cell)
            assert found == [], f"{cell}, {theme}: {json.dumps(found, indent=1)}"


def test_themes_are_followed_and_nothing_sticks_out(notebook):
    colours = set()
    for theme in ("light", "dark"):
        notebook.set_theme(theme)
        root = notebook.cell("explorer").locator(".pkv")
        colours.add(root.evaluate("e => getComputedStyle(e).backgroundColor"))
    assert len(colours) == 2
    for width in (1180, 1280):
        notebook.page.set_viewport_size({"width": width, "height": 900})
        for cell in CELLS:
            notebook.activate(cell)
            assert notebook.cut_off(cell) == [], (cell, width)


def test_a_reopened_notebook_shows_the_still_picture(open_in_lab, lab_root):
    stored = write(lab_root, "stored.ipynb", language="ru")
    NotebookClient(stored, kernel_name="python3").execute()
    for cell in stored.cells:
        for output in cell.outputs:
            output.data.pop(WIDGET, None)  # as the build does
    stored.metadata.pop("widgets", None)
    nbformat.write(stored, lab_root / "stored.ipynb")
    notebook = open_in_lab("stored.ipynb")
    for is_trusted in (False, True):
        if is_trusted:
            notebook.trust()
        for cell in CELLS:
            notebook.activate(cell)
            picture = notebook.output(cell).locator(".pkv")
            picture.filter(has_text="Таблицы блоков").wait_for()
            assert "model" not in notebook.text(cell).lower()
            assert bool(picture.locator("style").count()) == is_trusted
            if cell == "explorer":
                assert "req4 пишет, но у блока 31 хозяев 7" in notebook.text(cell)
