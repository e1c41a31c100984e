"""Figures of lesson 09.7: how fast a real model is served from the pool.

Times differ from run to run: they stand in the pictures, never in the captions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from paged_kv.figures.style import (
    BLUE,
    GREEN,
    GREY,
    LIGHT,
    ORANGE,
    VERMILION,
    Described,
    named_line,
    subplots,
)
from paged_kv.messages import tr
from paged_kv.model.measure import StepTime
from paged_kv.serving import number, percent


def sharing_times(
    prefill: tuple[float, float],
    first_token: tuple[float, float],
    tokens: Sequence[int],
) -> Described:
    """Compare ten requests that share a prefix with the same ten that do not.

    Parameters
    ----------
    prefill : (float, float)
        Seconds to compute all prompts: shared, not shared.
    first_token : (float, float)
        Median seconds from a request to its first token, likewise.
    tokens : sequence of int
        Prompt tokens computed: shared, not shared.
    """
    figure, axes = subplots(2, height=2.2)
    panels = (
        (prefill, tr("All prompts computed")),
        (first_token, tr("Time to first token, median")),
    )
    for ax, (values, name) in zip(axes, panels, strict=True):
        _two_bars(ax, values, (tr("shared"), tr("not shared")))
        ax.set_title(name)
        ax.set_xlabel(tr("s"))
    return Described(
        figure,
        tr(
            "With the shared prefix the model computes {a} prompt tokens, without it "
            "{b}: {ratio} times as many.",
            a=number(tokens[0]),
            b=number(tokens[1]),
            ratio=number(tokens[1] / tokens[0], 1),
        ),
    )


def batch_curve(
    batches: Sequence[int], steps: Mapping[int, Sequence[StepTime]]
) -> Described:
    """Show tokens per second by batch, and where a step's time goes.

    Parameters
    ----------
    batches : sequence of int
    steps : mapping of int to sequence of StepTime
        Context → a step's time for each batch; two contexts.
    """
    figure, (rates, *panels) = subplots(1 + len(steps), height=3.2)
    looks = ({"color": BLUE, "marker": "o"}, {"color": VERMILION, "marker": "s"})
    fastest = 0.0
    for (context, times), look in zip(steps.items(), looks, strict=True):
        rate = [n / time.total for n, time in zip(batches, times, strict=True)]
        look["label"] = tr("context {n}", n=context)
        named_line(rates, batches, rate, number(rate[-1]), -1, (0, 5), "center", **look)
        rates.plot(batches, rate[0] * np.array(batches), "--", color=GREY, zorder=0)
        fastest = max(fastest, *rate)
    rates.set_ylim(0, 1.5 * fastest)
    rates.xaxis.set_major_locator(MultipleLocator(4))
    rates.set_title(tr("Throughput"))
    rates.set_ylabel(tr("tokens/s"))
    rates.legend(frameon=False, loc="lower right")
    for ax, (context, times) in zip(panels, steps.items(), strict=True):
        _step_bars(ax, batches, times)
        ax.set_title(tr("Step, context {n}", n=context))
        ax.set_ylabel(tr("ms"))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower right", ncols=2)
    for panel in panels:
        panel.set_ylim(0, 1.15 * max(t.total for s in steps.values() for t in s) * 1e3)
    for ax in (rates, *panels):
        ax.set_xlabel(tr("answers in the batch"))
    return Described(
        figure,
        tr(
            "Measured on this machine for batches of {batches} (dashed: proportional). "
            "Above each bar: attention's share of the step.",
            batches=", ".join(map(str, batches)),
        ),
    )


def _step_bars(ax: Axes, batches: Sequence[int], times: Sequence[StepTime]) -> None:
    places = np.arange(len(batches))
    weights = [1e3 * time.weights for time in times]
    attention = [1e3 * time.attention for time in times]
    ax.bar(places, weights, color=BLUE, label=tr("weights"))
    bars = ax.bar(
        places,
        attention,
        bottom=weights,
        color=ORANGE,
        hatch="//",
        edgecolor="white",
        label=tr("attention and the pool"),
    )
    labels = [percent(time.attention / time.total) for time in times]
    ax.bar_label(bars, labels, padding=2, fontsize=9)
    ax.set_xticks(places, [str(batch) for batch in batches])


def pool_sizes(
    names: Sequence[str],
    rate: Sequence[float],
    mean_batch: Sequence[float],
    preemptions: Sequence[int],
) -> Described:
    """Show throughput, mean batch and preemptions of runs of the same requests.

    Parameters
    ----------
    names : sequence of str
        The runs, by their pool.
    rate : sequence of float
        Generated tokens per second.
    mean_batch : sequence of float
        Answers that decode in a step.
    preemptions : sequence of int
    """
    figure, (left, right) = subplots(2, height=2.8)
    rows = np.arange(len(names))[::-1]
    left.barh(rows, rate, 0.6, color=BLUE)
    for row, value in zip(rows, rate, strict=True):
        left.annotate(number(value), (value, row), (4, -4), textcoords="offset points")
    left.margins(x=0.15)
    left.set_yticks(rows, names)
    left.set_ylabel(tr("pool"))
    left.set_title(tr("Throughput, measured"))
    left.set_xlabel(tr("generated tokens/s"))
    right.barh(rows + 0.2, mean_batch, 0.36, color=GREEN, label=tr("mean batch"))
    right.barh(
        rows - 0.2,
        preemptions,
        0.36,
        color=VERMILION,
        hatch="//",
        edgecolor="white",
        label=tr("preemptions"),
    )
    for row, batch, count in zip(rows, mean_batch, preemptions, strict=True):
        for value, digits, shift in ((batch, 1, 0.2), (count, 0, -0.2)):
            right.annotate(
                number(value, digits),
                (value, row + shift),
                (4, -4),
                textcoords="offset points",
            )
    right.margins(x=0.15)
    right.set_yticks(rows, [""] * len(names))
    right.set_title(tr("What was in it"))
    right.set_xlabel(tr("answers, and how often one gave way"))
    figure.legend(frameon=False, loc="outside lower right", ncols=2)
    runs = "; ".join(
        tr(
            "{name}: mean batch {batch}, preemptions {count}",
            name=name,
            batch=number(batch, 1),
            count=count,
        )
        for name, batch, count in zip(names, mean_batch, preemptions, strict=True)
    )
    return Described(figure, f"{runs}.")


def first_tokens(
    without: Sequence[float],
    with_cache: Sequence[float],
    tokens: Sequence[tuple[int, int]],
) -> Described:
    """Show time to first token turn by turn, without and with a prefix cache.

    Parameters
    ----------
    without, with_cache : sequence of float
        Seconds.
    tokens : sequence of (int, int)
        Prompt tokens computed in each turn, without and with.
    """
    figure, (ax,) = subplots(1, height=2.6)
    turns = np.arange(len(without))
    for shift, values, colour, hatch, name in (
        (-0.2, without, LIGHT, "//", tr("without a cache")),
        (0.2, with_cache, BLUE, "", tr("with a prefix cache")),
    ):
        bars = ax.bar(
            turns + shift,
            values,
            0.4,
            color=colour,
            hatch=hatch,
            edgecolor=GREY,
            label=name,
        )
        ax.bar_label(bars, [number(value, 2) for value in values], padding=2)
    ax.margins(y=0.4)
    ax.set_xticks(turns, [str(turn + 1) for turn in turns])
    ax.set_title(tr("Time to first token"))
    ax.set_xlabel(tr("turn of the conversation"))
    ax.set_ylabel(tr("s"))
    ax.legend(frameon=False, loc="upper center", ncols=2)
    listed = "; ".join(f"{i}: {a} / {b}" for i, (a, b) in enumerate(tokens, start=1))
    return Described(
        figure,
        tr(
            "Prompt tokens computed by turn, without / with a cache: {list}.",
            list=listed,
        ),
    )


def _two_bars(ax: Axes, values: tuple[float, float], names: tuple[str, str]) -> None:
    bars = ax.barh([1, 0], values, 0.6, color=[BLUE, LIGHT], edgecolor=GREY)
    bars[1].set_hatch("//")
    ax.bar_label(bars, [number(value, 2) for value in values], padding=3)
    ax.set_yticks([1, 0], names)
    ax.margins(x=0.2)
