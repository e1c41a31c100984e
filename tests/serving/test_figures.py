"""Each figure in both languages: closed, opaque, titled, and put into words."""

import base64
import html
import importlib
import inspect
import pkgutil
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
from IPython import display as ipython

import paged_kv.figures
from paged_kv.figures import memory, prefix_cache
from paged_kv.figures.style import Described, subplots
from paged_kv.model.measure import Quality, StepTime
from paged_kv.serving import ALPACA, BuddyAllocator, paper, poisson_workload, simulate


@pytest.fixture(scope="module")
def results():
    w = poisson_workload(ALPACA, 30, 100)
    return [simulate(w, system, paper.ENGINE, samples=20) for system in paper.systems()]


QUALITIES = {
    "exact": (16, Quality(9.0, 0.0, 1.0)),
    "int8": (8, Quality(9.1, 0.002, 0.99)),
    "int4": (4.5, Quality(12.0, 0.3, 0.8)),
}
READS = np.arange(4 * 16 * 2).reshape(4, 16, 2)

# Function of `paged_kv.figures` → its arguments, given results of simulations.
CASES = {
    "reserved_and_used": lambda _: ([10, 300], 2048),
    "throughput_by_batch": lambda _: (range(1, 9), [1, 2, 3, 4, 5, 6, 7, 7.5], [2, 8]),
    "chunk_map": lambda _: (BuddyAllocator(100).chunks(), 80),
    "memory_shares": lambda results: (results, paper.FIGURE_2),
    "latency_by_rate": lambda _: (
        [1, 2],
        {system: [0.1, 0.2 + i] for i, system in enumerate(paper.SYSTEMS)},
        0.5,
    ),
    "block_size_sweep": lambda _: (
        [1, 2, 4],
        {"x": [3, 1, 2], "y": [1, 2, 3]},
        {"x": [0, 0.1, 0.2], "y": [0, 0.3, 0.5]},
    ),
    "run_over_time": lambda results: (results[-1],),
    "bytes_by_batch": lambda _: ([1, 2], [10, 20], [10, 12]),
    "saved_by_sharing": lambda _: (paper.FIGURE_15, paper.FIGURE_15),
    "block_size_tradeoff": lambda _: ([1, 16], [0.0, 0.1], [100, 7]),
    "token_weights": lambda _: ([0.2] * 5, [0.1] * 5, 2),
    "blocks_by_forks": lambda _: ([1, 10], [4, 13], [4, 40]),
    "hit_rates": lambda _: (
        [1, 2, 4],
        {name: {"a": [0.5] * 3, "b": [0.25] * 3} for name in ("x", "y")},
        "n",
        "title",
    ),
    "tail_or_head_first": lambda _: ([0, 1], [32, 16], [32, 0]),
    "order_of_service": lambda _: ([1, 2], [0.1, 0.1], [0.1, 0.5]),
    "channel_sizes": lambda _: (np.eye(4), np.ones((4, 4))),
    "tail_errors": lambda _: ({"a": 0.01, "b": 0.4},),
    "bits_and_error": lambda _: ({"a": [(4, 0.1), (8, 0.01)], "b": [(2, 0.5)]},),
    "window_cost": lambda _: ([32, 64], {"a": [16, 9], "b": [4, 4]}),
    "sensitivity": lambda _: (["a", "b"], [0.1, 0.2], [0.05, 0.1]),
    "program_reads": lambda _: (READS % 7 == 0, READS % 3 == 0, [2, 1]),
    "shares_of_copy": lambda _: (
        {"fp16": {"a": [0.5, 0.6], "b": [0.9, 1.0]}},
        ["1 × 64", "8 × 64"],
        1e12,
    ),
    "paging_cost": lambda _: ({"a": 1.1, "b": 1.3}, (1.2, 1.26)),
    "sharing_times": lambda _: ((1.0, 3.0), (0.1, 0.2), (500, 5000)),
    "batch_curve": lambda _: (
        [1, 2],
        {n: [StepTime(0.1, 0.1), StepTime(0.1, 0.2)] for n in (64, 512)},
    ),
    "pool_sizes": lambda _: (["a", "b"], [10, 20], [2.5, 5], [3, 0]),
    "layer_map": lambda _: (np.ones((5, 2, 4)), np.ones((5, 2, 4)), 3),
    "layer_errors": lambda _: (["a", "b"], [0.1, 0.5], [0.05, 0.6]),
    "bits_ladder": lambda _: (QUALITIES,),
    "predictions": lambda _: (QUALITIES,),
    "first_tokens": lambda _: ([1, 2], [1, 0.5], [(100, 100), (200, 40)]),
}


def figure_functions():
    """Return the functions of all modules there that return a figure, by name."""
    found = {}
    for info in pkgutil.iter_modules(paged_kv.figures.__path__):
        module = importlib.import_module(f"paged_kv.figures.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            made_here = function.__module__ == module.__name__
            if made_here and function.__annotations__.get("return") == "Described":
                found[name] = function
    return found


FIGURES = figure_functions()


def test_every_figure_is_tried():
    assert set(FIGURES) == set(CASES)


@pytest.mark.parametrize("lang", ["ru", "en"])
@pytest.mark.parametrize("name", CASES)
def test_a_figure_says_what_it_shows(name, lang, results, speak, monkeypatch):
    speak(lang)
    shown = []
    monkeypatch.setattr(
        ipython, "display", lambda data, **options: shown.append((data, options))
    )
    drawn = FIGURES[name](*CASES[name](results))
    drawn._ipython_display_()
    (picture, options), (caption, _) = shown

    assert plt.get_fignums() == []
    assert drawn.figure.get_facecolor() == (1, 1, 1, 1)
    assert base64.b64decode(picture["image/png"]).startswith(b"\x89PNG")
    assert picture["text/plain"] == repr(drawn) == drawn.text
    assert options["metadata"]["image/png"]["alt"] == drawn.text
    assert drawn.text in html.unescape(caption["text/html"])
    words = [t.get_text() for t in drawn.figure.findobj(plt.Text)] + [drawn.text]
    cyrillic = [bool(re.search("[а-яё]", text.lower())) for text in words]
    assert any(cyrillic) if lang == "ru" else not any(cyrillic)


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_in_a_figure_are_those_of_the_language(name, results, speak):
    speak("ru")
    figure = FIGURES[name](*CASES[name](results)).figure
    figure.canvas.draw()
    words = [t.get_text() for t in figure.findobj(plt.Text)]
    assert [text for text in words if re.search(r"\d\.\d", text)] == []


@pytest.mark.parametrize(
    ("undo", "wanted"),
    [
        (lambda ax: ax.set_title(""), "a title of axes 1"),
        (lambda ax: ax.set_xlabel(""), "an x label of axes 1"),
        (lambda ax: ax.set_ylabel(""), "a y label of axes 1"),
    ],
)
def test_a_figure_without_a_title_or_a_label_is_refused(undo, wanted):
    figure, axes = subplots(2)
    for ax in axes:
        ax.set(title="title", xlabel="tokens", ylabel="bytes, KiB")
    assert Described(figure, "text").text == "text"
    undo(axes[1])
    with pytest.raises(ValueError, match=f"the figure needs {wanted}: text"):
        Described(figure, "text")


def test_words_name_themselves_and_panels_share_what_the_figure_says():
    figure, axes = subplots(2, sharey=True)
    for ax in axes:
        ax.set_xticks([0, 1], ["K", "V"])
    axes[0].set_ylabel("bytes, KiB")
    figure.suptitle("title")
    assert Described(figure, "text").text == "text"
    axes[1].set_xticks([0, 1], ["16", "32"])
    with pytest.raises(ValueError, match="an x label of axes 1"):
        Described(figure, "text")
    figure.supxlabel("tokens")
    assert Described(figure, "text").text == "text"


def test_the_shares_in_words_are_those_of_the_results(results, speak):
    speak("en")
    text = memory.memory_shares(results, paper.FIGURE_2).text
    for result in results:
        assert f"{100 * result.shares['tokens']:.1f}" in text


def test_the_table_of_hit_rates_has_a_row_per_line_of_the_figure(speak):
    speak("en")
    rates = {"x": {"a": [0.5, 0.25], "b": [1, 0]}, "y": {"a": [0.125, 0], "b": [0, 0]}}
    table = prefix_cache.hit_rate_table([16, 2048], rates, "caption")
    assert table.heads == ["", "16", "2048"]
    assert table.rows[:3] == [
        ("x, a", "50.0", "25.0"),
        ("x, b", "100.0", "0.0"),
        ("y, a", "12.5", "0.0"),
    ]
    assert len(table.rows) == 4
