"""Measure slider event → changed picture in JupyterLab, the kernel's answer included.

python -m tests.browser.slider_latency
"""

import statistics
import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import sync_playwright

from tests.browser.lab import LabServer, launch_browser, open_notebook

SIZES = {64: 5, 1024: 25, 4096: 60}  # blocks: sequences
MOVES = 100

SETUP = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import ipywidgets
from paged_kv.widgets import BlockExplorer
from tests.widgets.runs import filled
"""
# What JupyterLab itself takes to carry a number to the kernel and a text back.
BARE = """
slider, text = ipywidgets.IntSlider(0, 0, 1000), ipywidgets.HTML()
def show(change):
    text.value = f'<p class="now"><span class="st">{change.new}</span></p>'
slider.observe(show, "value")
bare = ipywidgets.VBox([slider, text])
bare.add_class("pkv")
bare
"""

MEASURE = """async ([cell, moves]) => {
  const root = document.querySelector(`[data-cell-id="${cell}"] .pkv`);
  const slider = root.querySelector(".noUi-target").noUiSlider;
  const last = slider.options.range.max;
  const times = [];
  for (let i = 0; i < moves; i++) {
    // Steps far apart: the worst case for a picture that could be patched.
    const step = Math.round(((i * 0.618034) % 1) * last);
    const shown = () => root.querySelector(".now .st")?.textContent;
    const before = shown();
    const start = performance.now();
    slider.set(step);
    while (shown() === before && performance.now() - start < 2000)
      await new Promise((resolve) => setTimeout(resolve, 0));
    root.getBoundingClientRect().height; // layout is part of the change
    times.push(performance.now() - start);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const bytes = [...root.querySelectorAll(".widget-html-content")]
    .reduce((sum, part) => sum + part.innerHTML.length, 0);
  return [times, bytes, root.querySelectorAll("*").length];
}"""


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as root,
        tempfile.TemporaryDirectory() as home,
        sync_playwright() as playwright,
    ):
        cells = [new_code_cell(SETUP, id="setup")]
        cells.append(new_code_cell(BARE, id="bare"))
        cells += [
            new_code_cell(f"BlockExplorer(filled({n}, {k}))", id=f"n{n}")
            for n, k in SIZES.items()
        ]
        kernel = {"name": "python3", "display_name": "python3", "language": ""}
        notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
        nbformat.write(notebook, Path(root) / "latency.ipynb")
        server = LabServer(Path(root), Path(home))
        browser = launch_browser(playwright)
        try:
            with open_notebook(browser, server, "latency.ipynb", height=1400) as page:
                page.run_all()
                if troubles := page.troubles():
                    sys.exit("\n".join(troubles))
                for name in ["bare", *(f"n{n}" for n in SIZES)]:
                    page.activate(name)
                    page.cell(name).locator(".noUi-handle").wait_for()
                    times, size, elements = page.page.evaluate(MEASURE, [name, MOVES])
                    cuts = statistics.quantiles(times, n=20)
                    print(
                        f"{name:>5}: median {statistics.median(times):6.1f} ms, "
                        f"p95 {cuts[18]:6.1f} ms, {size / 1024:6.1f} KiB of HTML, "
                        f"{elements} elements"
                    )
        finally:
            browser.close()
            server.stop()


if __name__ == "__main__":
    main()
