"""``make bench``: drawing a step as HTML and with matplotlib, and what a history takes.

The slider's answer in a browser is timed by ``python -m tests.browser.slider_latency``.
"""

from __future__ import annotations

import io
import random
import sys
import time
import tracemalloc
from itertools import count
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from timing import medians, report

from paged_kv.messages import use_language
from paged_kv.widgets import History, draw
from paged_kv.widgets.facts import Facts
from paged_kv.widgets.render import body, header, model_spec, what
from paged_kv.widgets.timeline import timeline

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.widgets.runs import filled, mixed

SIZES = {64: 5, 1024: 25, 4096: 60}  # blocks: sequences
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")


def as_png(facts: Facts) -> bytes:
    """Draw the same step with matplotlib: a square per block, a bar per table."""
    figure = Figure(figsize=(9.6, 7))
    top, bottom = figure.subplots(2, height_ratios=(1, 2))
    for row, (_, table) in enumerate(facts.live[:12]):
        top.broken_barh([(0, len(table.blocks))], (row, 0.8), color=COLOURS[row % 5])
        top.text(len(table.blocks), row + 0.4, f"{table.name} {table.length}")
    columns = 16 if facts.num_blocks <= 128 else 64
    rows = -(-facts.num_blocks // columns)
    grid = np.zeros(rows * columns)
    grid[: facts.num_blocks] = np.where(facts.look == 2, -1, facts.owner + 1)
    bottom.imshow(grid.reshape(rows, columns), cmap="tab20", aspect="auto")
    if facts.num_blocks <= 128:
        for block in range(facts.num_blocks):
            words = f"{block}\n{facts.ref[block]}  {facts.fill[block]}/16"
            place = (block % columns, block // columns)
            bottom.text(*place, words, ha="center", va="center", fontsize=6)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


def rendering() -> None:
    spec = model_spec("llama-3-8b")
    for num_blocks, sequences in SIZES.items():
        history = filled(num_blocks, sequences)
        steps = count(len(history) // 2)

        def html(history: History = history, steps: count[int] = steps) -> str:
            facts = Facts(history.at(next(steps) % len(history)))
            moved = timeline(history, facts.moment.index) + what(facts) + body(facts)
            return header(facts, spec) + moved

        def png(history: History = history) -> bytes:
            return as_png(Facts(history.at(-1)))

        seconds = medians({"HTML of one step": html, "matplotlib PNG": png})
        title = f"{num_blocks} blocks, {sequences} sequences, {len(history)} steps"
        report(title, seconds)
        page = len(draw(history)._repr_html_())
        print(f"  a move sends {len(html()) / 1024:.1f} KiB, a PNG has", end=" ")
        print(f"{len(png()) / 1024:.1f} KiB, a still cell {page / 1024:.1f} KiB")


def histories() -> None:
    """10 000 operations: what recording takes, and how quickly a step is reached."""
    num_blocks, sequences = max(SIZES.items())

    def run() -> History:
        return mixed(num_blocks, sequences, random.Random(2), 10_000, prompt=500)

    start = time.perf_counter()
    history = run()
    seconds = time.perf_counter() - start
    tracemalloc.start()
    again = run()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rng = random.Random(3)
    reach = medians({"at": lambda: again.at(rng.randrange(len(again)))}, repeats=200)
    print(
        f"\n{num_blocks} blocks, 10 000 operations, {len(history)} steps: "
        f"{size / 1e6:.1f} MB, recorded in {seconds:.1f} s, "
        f"a random step in {reach['at'] * 1e3:.2f} ms"
    )


if __name__ == "__main__":
    mpl.use("agg")
    use_language("en")
    rendering()
    histories()
