"""Calculator, fragmentation view, stepper, prefix tree and quantiser in JupyterLab."""

import json

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from tests.browser.lab import WIDGET, open_notebook

CELLS = {
    "calculator": "KVCalculator()",
    "fragmentation": "FragmentationView(step=30)",
    "stepper": "SoftmaxStepper()",
    "broken": "SoftmaxStepper(step=2, rescale=False, mask=False)",
    "tree": "PrefixTree(['a b c', 'a b d'], asked=2, num_blocks=5)",
    "quantiser": "QuantizerBench()",
}
# Something that only this widget says, in Russian.
SAID = {
    "calculator": "веса читаются один раз за шаг",
    "fragmentation": "Сейчас в работе запросов: Orca (Max) 4",
    "stepper": "поправлять пока нечего",
    "broken": "Без поправки и без маски ответ неверен: max|diff|",
    "tree": "В дереве нашлось: 2 из 3 слов.",
    "quantiser": "бит на элемент",
}


def write(root, name, language):
    setup = (
        "from paged_kv.messages import use_language\n"
        "from paged_kv.widgets import FragmentationView, KVCalculator, SoftmaxStepper\n"
        "from paged_kv.widgets.prefix_tree import PrefixTree\n"
        "from paged_kv.widgets.quantizer import QuantizerBench\n"
        f"use_language({language!r})"
    )
    cells = [new_code_cell(setup, id="setup")]
    cells += [new_code_cell(source, id=key) for key, source in CELLS.items()]
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "python3", "language": ""}
    }
    notebook = new_notebook(cells=cells, metadata=metadata)
    nbformat.write(notebook, root / name)
    return notebook


@pytest.fixture(scope="module")
def notebook(browser, server, lab_root):
    """Open a notebook with every widget of this file and run it, once."""
    write(lab_root, "more_widgets.ipynb", "en")
    with open_notebook(browser, server, "more_widgets.ipynb") as opened:
        opened.run_all()
        assert opened.troubles() == []
        yield opened
        assert opened.errors == []


def in_front(notebook, cell):
    notebook.activate(cell)
    return notebook.cell(cell)


def handle(widget, name):
    return widget.get_by_role("slider", name=name, exact=True)


def said_aloud(widget, text):
    widget.locator("[aria-live=polite].v", has_text=text).wait_for(state="attached")


def test_the_stepper_walks_by_buttons_keys_and_stops(notebook):
    widget = in_front(notebook, "stepper")
    bars = widget.locator(".sr").inner_html()
    widget.get_by_role("button", name="›").click()
    widget.locator(".now", has_text="Step 2 / 4").wait_for()
    assert widget.locator(".sr").inner_html() != bars

    slider = handle(widget, "Blocks in reading order")
    slider.focus()
    notebook.page.keyboard.press("ArrowRight")
    widget.locator(".now", has_text="block 12: tokens 32…39").wait_for()
    said_aloud(widget, "masked out")
    assert "Step 3 / 4" in slider.get_attribute("aria-valuetext")
    widget.locator("li[data-k]", has_text="acc ÷ l").click()
    widget.locator(".ht", has_text="all tokens at once").wait_for()
    widget.get_by_role("button", name="‹").click()
    widget.locator(".now", has_text="Step 3 / 4").wait_for()


def test_what_is_left_out_breaks_the_output(notebook):
    widget = in_front(notebook, "stepper")
    warning = widget.locator("p.warn")
    mask = widget.get_by_label("without the mask")
    mask.check()
    warning.filter(has_text="Without the mask the output is wrong").wait_for()
    mask.focus()
    notebook.page.keyboard.press("Space")
    warning.wait_for(state="detached")
    widget.get_by_label("without rescaling").check()
    warning.filter(has_text="max|diff| = 0.15").wait_for()
    widget.get_by_label("without rescaling").uncheck()
    warning.wait_for(state="detached")


def test_the_fragmentation_view_moves_plays_and_jumps(notebook):
    widget = in_front(notebook, "fragmentation")
    now = widget.locator(".now .st")
    field = widget.locator(".memory").first
    before = field.inner_html()
    slider = handle(widget, "Step")
    slider.focus()
    notebook.page.keyboard.press("ArrowRight")
    now.filter(has_text="Step 31 / 428").wait_for()
    assert field.inner_html() != before
    said_aloud(widget, "Step 31 / 428")
    widget.get_by_role("button", name="next external").click()
    widget.locator("p.ext").filter(has_text="external fragmentation").wait_for()
    now.filter(has_text="Step 32 / 428").wait_for()
    widget.get_by_role("button", name="Play or pause").click()
    now.filter(has_text="Step 34 / 428").wait_for()
    widget.get_by_role("button", name="Play or pause").click()
    slider.press("End")
    widget.locator(".run", has_text="all done at step 427").wait_for()
    widget.locator(".places summary").click()
    assert widget.locator(".places table").is_visible()


def test_the_calculator_follows_its_controls(notebook):
    widget = in_front(notebook, "calculator")
    facts = widget.locator(".facts")
    facts.filter(has_text="111").wait_for()
    curve = widget.locator(".roof").inner_html()
    slider = handle(widget, "tokens, on average")
    slider.focus()
    notebook.page.keyboard.press("ArrowRight")
    facts.filter(has_text="55").wait_for()
    assert slider.get_attribute("aria-valuetext") == "8,192"
    assert widget.locator(".roof").inner_html() != curve
    notebook.page.keyboard.press("ArrowLeft")
    facts.filter(has_text="111").wait_for()

    assert not widget.get_by_label("layers").is_visible()
    widget.get_by_label("Model").select_option("own numbers")
    widget.get_by_label("layers").fill("64")
    widget.get_by_label("layers").press("Enter")
    facts.filter(has_text="256 KiB").wait_for()
    widget.get_by_label("Model").select_option("Llama-3-8B")
    facts.filter(has_text="128 KiB").wait_for()


def test_the_tree_grows_locks_and_evicts(notebook):
    widget = in_front(notebook, "tree")
    said = widget.locator("p.pt")
    widget.get_by_role("button", name="ask and keep running").click()
    said.filter(has_text="“a b c”. 2 of 3 words").wait_for()
    widget.get_by_label("prompt").fill("x y z")
    widget.get_by_label("prompt").press("Enter")
    said.filter(has_text="There is no room").wait_for()
    widget.get_by_role("button", name="ask", exact=True).click()
    said.filter(has_text="There is no room").wait_for()
    widget.get_by_role("button", name="finish all").click()
    said.filter(has_text="1 request is finished").wait_for()
    widget.get_by_role("button", name="evict a leaf").click()
    said.filter(has_text="of the oldest leaf").wait_for()
    widget.get_by_role("button", name="start over").click()
    said.filter(has_text="The tree is empty").wait_for()


def test_the_quantiser_follows_its_controls(notebook):
    widget = in_front(notebook, "quantiser")
    widget.get_by_label("quantiser").select_option("int4/token")
    widget.locator(".qn", has_text="codes are 0").wait_for()
    codes = widget.locator(".qt").nth(1).inner_text()
    handle(widget, "Outlier strength").press("End")
    widget.get_by_text("outlier ×16").wait_for()
    assert widget.locator(".qt").nth(1).inner_text() != codes


def test_no_serious_barrier_in_either_theme(notebook):
    for theme in ("light", "dark"):
        notebook.set_theme(theme)
        for cell in CELLS:
            notebook.activate(cell)
            found = notebook.serious_barriers(cell)
            assert found == [], f"{cell}, {theme}: {json.dumps(found, indent=1)}"


def test_nothing_sticks_out(notebook):
    for width in (1180, 1280):
        notebook.page.set_viewport_size({"width": width, "height": 900})
        for cell in CELLS:
            notebook.activate(cell)
            assert notebook.cut_off(cell) == [], (cell, width)


def test_a_reopened_notebook_shows_the_still_picture(open_in_lab, lab_root):
    stored = write(lab_root, "more_stored.ipynb", "ru")
    NotebookClient(stored, kernel_name="python3").execute()
    for cell in stored.cells:
        for output in cell.outputs:
            output.data.pop(WIDGET, None)  # as the build does
    stored.metadata.pop("widgets", None)
    nbformat.write(stored, lab_root / "more_stored.ipynb")
    notebook = open_in_lab("more_stored.ipynb")
    for is_trusted in (False, True):
        if is_trusted:
            notebook.trust()
        for cell, text in SAID.items():
            notebook.activate(cell)
            picture = notebook.output(cell).locator(".pkv")
            picture.filter(has_text=text).wait_for()
            assert "model" not in notebook.text(cell).lower()
            assert bool(picture.locator("style").count()) == is_trusted
