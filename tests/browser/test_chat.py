"""The chat with the real model in JupyterLab: tokens stream, blocks fill up."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.browser.lab import open_notebook

SETUP = """
from paged_kv.messages import use_language
from paged_kv.model import load
from paged_kv.widgets.chat import ChatWidget
from paged_kv.widgets.progress import progress
use_language("en")
model, tokenizer = load("smollm2-135m")
"""
CELLS = {
    "setup": SETUP,
    "chat": "ChatWidget(model, tokenizer, num_blocks=16)",
    "bar": "sum(progress(range(4), 4))",
}


@pytest.fixture(scope="module")
def notebook(browser, server, lab_root):
    cells = [new_code_cell(source, id=key) for key, source in CELLS.items()]
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "python3", "language": ""}
    }
    nbformat.write(
        new_notebook(cells=cells, metadata=metadata), lab_root / "chat.ipynb"
    )
    with open_notebook(browser, server, "chat.ipynb") as opened:
        opened.run_all()
        assert opened.troubles() == []
        yield opened
        assert opened.errors == []


def test_a_question_is_answered_and_fills_blocks(notebook):
    notebook.activate("chat")
    chat = notebook.cell("chat")
    line = chat.get_by_placeholder("Ask in English")
    line.fill("What is the capital of France?")
    line.press("Enter")
    chat.get_by_text("The capital of France is Paris.").wait_for()
    line.fill("And of Italy?")
    chat.get_by_role("button", name="ask", exact=True).click()
    chat.get_by_text("The capital of Italy is Rome.").wait_for()
    said = chat.locator(".said li").all_inner_texts()
    assert [text.split("\n")[0] for text in said] == ["you: ", "model: "] * 2
    chat.get_by_text("5 / 16").wait_for()
    chat.get_by_role("button", name="new chat").click()
    chat.get_by_text("0 / 16").wait_for()
    assert chat.locator(".said li").count() == 0


def test_a_bar_that_is_done_is_gone(notebook):
    notebook.activate("bar")
    assert notebook.text("bar").strip().endswith("6")
    assert notebook.cell("bar").locator(".widget-hprogress").count() == 0


@pytest.mark.parametrize("language", ["ru", "en"])
def test_the_start_page_leads_to_the_lesson(open_in_lab, language):
    lesson = f"notebooks/{language}/09.7_serving.ipynb"
    start = open_in_lab("notebooks/index.ipynb")
    start.page.locator(f'a[href*="{language}/09.7_serving.ipynb"]').first.click()
    start.wait_for(lesson)
