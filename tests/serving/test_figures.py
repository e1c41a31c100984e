"""Each lesson figure in both languages: closed, opaque, titled, and put into words."""

import base64
import re

import matplotlib.pyplot as plt
import pytest
from IPython import display as ipython

from paged_kv import figures
from paged_kv.serving import ALPACA, BuddyAllocator, paper, poisson_workload, simulate


@pytest.fixture(scope="module")
def results():
    w = poisson_workload(ALPACA, 30, 100)
    return [simulate(w, system, paper.ENGINE, samples=20) for system in paper.systems()]


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
}


def test_every_lesson_figure_is_tried():
    drawn = {
        name
        for name in figures.__all__
        if not getattr(figures, name).__module__.endswith(".exercises")
    }
    assert drawn == set(CASES)


@pytest.mark.parametrize("lang", ["ru", "en"])
@pytest.mark.parametrize("name", CASES)
def test_a_figure_says_what_it_shows(name, lang, results, speak, monkeypatch):
    speak(lang)
    shown = []
    monkeypatch.setattr(
        ipython, "display", lambda data, **options: shown.append((data, options))
    )
    drawn = getattr(figures, name)(*CASES[name](results))
    drawn._ipython_display_()
    (picture, options), (caption, _) = shown

    assert plt.get_fignums() == []
    assert drawn.figure.get_facecolor() == (1, 1, 1, 1)
    assert base64.b64decode(picture["image/png"]).startswith(b"\x89PNG")
    assert picture["text/plain"] == repr(drawn) == drawn.text
    assert options["metadata"]["image/png"]["alt"] == drawn.text
    assert drawn.text in caption["text/html"]
    for ax in drawn.figure.axes:
        assert ax.get_title() or ax.get_title(loc="left")
        assert ax.get_xlabel()
    words = [t.get_text() for t in drawn.figure.findobj(plt.Text)] + [drawn.text]
    cyrillic = [bool(re.search("[а-яё]", text.lower())) for text in words]
    assert any(cyrillic) if lang == "ru" else not any(cyrillic)


def test_the_shares_in_words_are_those_of_the_results(results, speak):
    speak("en")
    text = figures.memory_shares(results, paper.FIGURE_2).text
    for result in results:
        assert f"{100 * result.shares['tokens']:.1f}" in text
