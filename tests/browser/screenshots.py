"""Take the pictures in docs/ from the real widgets in JupyterLab.

python -m tests.browser.screenshots [FOLDER]
"""

import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from tests.browser.lab import LabServer, Notebook, launch_browser

DOCS = Path(__file__).parents[2] / "docs"

SETUP = f"""
import random, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from paged_kv.messages import use_language
from paged_kv.widgets import *
from tests.widgets.runs import mixed, shared_prompt
from tests.widgets.students import ListPool, SharedListSequence
"""


@dataclass(frozen=True)
class Shot:
    """One picture: what the cell says, and what happens before it is taken.

    `press` names buttons of the widget, `hover` the selector of an element in it.
    """

    name: str
    source: str
    language: str = "en"
    theme: str = "light"
    press: tuple[str, ...] = ()
    hover: str = ""

    @property
    def cell(self) -> str:
        return self.name.replace("_", "-")


PROMPT = "BlockExplorer(shared_prompt(forks=4), step=9)"
LARGE = (
    "history = mixed(1024, 20, random.Random(6), 150, prompt=900)\n"
    "BlockExplorer(history, step=history.next_copy(50))"
)
ALIAS = 'compare("09.3", ListPool, SharedListSequence)'
SHOTS = (
    Shot("block_explorer_en", PROMPT),
    Shot("block_explorer_ru", PROMPT, "ru"),
    Shot("block_explorer_dark", PROMPT, "ru", "dark", hover=".pool [data-b='31']"),
    Shot("block_explorer_eleven", "BlockExplorer(shared_prompt(), step=16)"),
    Shot("block_explorer_map", LARGE, theme="dark"),
    Shot(
        "playground",
        "Playground()",
        "ru",
        press=("append", "append", "append", "fork", "append", "fork", "append"),
    ),
    Shot("kv_calculator", "KVCalculator()", theme="dark"),
    Shot("fragmentation", "FragmentationView(step=30)"),
    Shot("softmax_stepper", "SoftmaxStepper(step=2, mask=False)", "ru"),
    Shot("target_beside_yours", ALIAS),
    Shot("target_beside_yours_dark", ALIAS, "ru", "dark"),
)


@contextmanager
def notebook_of(shots: tuple[Shot, ...], browser: Browser) -> Iterator[Notebook]:
    """Open a notebook with a cell for each shot, wide enough for the whole picture."""
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as home:
        cells = [new_code_cell(SETUP, id="setup")]
        cells += [
            new_code_cell(f'use_language("{s.language}")\n{s.source}', id=s.cell)
            for s in shots
        ]
        kernel = {"name": "python3", "display_name": "python3", "language": ""}
        notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
        nbformat.write(notebook, Path(root) / "shots.ipynb")
        server = LabServer(Path(root), Path(home))
        context = browser.new_context(
            viewport={"width": 1400, "height": 2200}, device_scale_factor=2
        )
        try:
            yield Notebook(context.new_page(), server, "shots.ipynb")
        finally:
            context.close()
            server.stop()


def take(notebook: Notebook, shot: Shot, folder: Path) -> None:
    """Bring the widget into the state of the shot, and save it."""
    notebook.activate(shot.cell)
    root = notebook.cell(shot.cell).locator(".pkv")
    root.wait_for()
    for name in shot.press:
        before = root.locator(".now").inner_text()
        root.get_by_role("button", name=name, exact=True).click()
        notebook.page.wait_for_function(
            "([cell, text]) => document.querySelector(`[data-cell-id='${cell}'] .now`)"
            ".innerText !== text",
            arg=[shot.cell, before],
        )
    notebook.page.mouse.move(0, 0)
    if shot.hover:
        root.locator(shot.hover).hover()
    png = Image.open(io.BytesIO(root.screenshot()))
    path = folder / f"{shot.name}.png"
    png.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}  {png.width} × {png.height}, {path.stat().st_size >> 10} KiB")


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = launch_browser(playwright)
        with notebook_of(SHOTS, browser) as notebook:
            # Neither the news question nor the file list belongs in a picture.
            hide = ".Toastify, #jp-left-stack { display: none !important }"
            notebook.page.add_style_tag(content=hide)
            notebook.run_all()
            if troubles := notebook.troubles():
                sys.exit("\n".join(troubles))
            for theme in ("light", "dark"):
                notebook.set_theme(theme)
                notebook.page.locator("#jupyterlab-splash").wait_for(state="detached")
                for shot in SHOTS:
                    if shot.theme == theme:
                        take(notebook, shot, folder)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
