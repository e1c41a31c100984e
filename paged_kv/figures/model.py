"""Figures of lesson 09.7: a real model served from the pool.

Times differ from run to run: they stand in the pictures, never in the captions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, MultipleLocator, NullLocator
from numpy.typing import ArrayLike

from paged_kv.figures.style import (
    BLUE,
    GREEN,
    GREY,
    LIGHT,
    ORANGE,
    VERMILION,
    Described,
    subplots,
)
from paged_kv.messages import language, tr
from paged_kv.model.measure import Quality, StepTime
from paged_kv.serving import number


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
    styles = ((BLUE, "o-"), (VERMILION, "s-"))
    fastest = 0.0
    for (context, times), (colour, style) in zip(steps.items(), styles, strict=True):
        rate = np.divide(batches, [time.total for time in times])
        rates.plot(
            batches, rate, style, color=colour, label=tr("context {n}", n=context)
        )
        rates.annotate(
            number(rate[-1]),
            (batches[-1], rate[-1]),
            (0, 5),
            textcoords="offset points",
            ha="center",
        )
        rates.plot(batches, rate[0] * np.array(batches), "--", color=GREY, zorder=0)
        fastest = max(fastest, float(rate.max()))
    rates.set_ylim(0, 1.5 * fastest)
    rates.xaxis.set_major_locator(MultipleLocator(4))
    rates.set_title(tr("Throughput"))
    rates.set_ylabel(tr("tokens/s"))
    rates.legend(frameon=False, loc="upper left")
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
    shares = [100 * time.attention / time.total for time in times]
    labels = [f"{number(share)}\N{NO-BREAK SPACE}%" for share in shares]
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


def layer_map(K: ArrayLike, V: ArrayLike, layer: int) -> Described:
    """Show the magnitudes of K and V of one layer: channels by tokens.

    Parameters
    ----------
    K, V : array_like, shape (n_tokens, n_kv_heads, head_dim)
    layer : int
        For the title.
    """
    figure, axes = subplots(2, height=3.4, sharey=True)
    ratios = {}
    for ax, name, X in zip(axes, ("K", "V"), (K, V), strict=True):
        size = np.abs(np.asarray(X))
        head_dim = size.shape[2]
        rows = size.reshape(len(size), -1).T
        image = ax.imshow(rows, aspect="auto", cmap="cividis", interpolation="nearest")
        bar = figure.colorbar(image, ax=ax, label=tr("magnitude"), shrink=0.9)
        _plain(bar.ax.yaxis)
        for head in range(1, size.shape[1]):
            ax.axhline(head * head_dim - 0.5, color="white", linewidth=1)
        ax.set_title(tr("|{name}|, layer {layer}", name=name, layer=layer))
        ax.set_xlabel(tr("token"))
        by_channel = rows.mean(axis=1)
        ratios[name] = float(by_channel.max() / np.median(by_channel))
    axes[0].set_ylabel(tr("channel (white lines: heads)"))
    return Described(
        figure,
        tr(
            "Mean magnitude of the largest channel over that of the median one: K {k}, "
            "V {v}. In K such channels are bright lines across all tokens.",
            k=number(ratios["K"]),
            v=number(ratios["V"]),
        ),
    )


def layer_errors(
    names: Sequence[str], k_only: Sequence[float], v_only: Sequence[float]
) -> Described:
    """Compare attention's error in a layer when only K and when only V is quantised.

    Parameters
    ----------
    names : sequence of str
        Schemes.
    k_only, v_only : sequence of float
        Errors of attention's output, relative to its size.
    """
    figure, (ax,) = subplots(1, height=3.6)
    rows = np.arange(len(names))[::-1]
    for shift, values, colour, hatch, label in (
        (0.2, k_only, BLUE, "", tr("only K quantised")),
        (-0.2, v_only, ORANGE, "//", tr("only V quantised")),
    ):
        bars = ax.barh(
            rows + shift,
            100 * np.array(values),
            0.38,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=label,
        )
        labels = [number(100 * value, 1) for value in values]
        ax.bar_label(bars, labels, padding=3, fontsize=9)
    ax.set_xscale("log")
    ax.set_xlim(1, 150)
    ax.set_xticks([1, 2, 5, 10, 20, 50, 100])
    ax.xaxis.set_minor_locator(NullLocator())
    _plain(ax.xaxis)
    ax.set_yticks(rows, names)
    ax.set_title(tr("Attention of one layer from a quantised pool"))
    ax.set_xlabel(tr("error of the output, %"))
    ax.legend(frameon=False)
    worse = [n for n, k, v in zip(names, k_only, v_only, strict=True) if k > v]
    return Described(
        figure,
        tr(
            "An error in K costs more than one in V in {n} of {m} schemes: {list}.",
            n=len(worse),
            m=len(names),
            list=", ".join(worse),
        ),
    )


def bits_ladder(results: Mapping[str, tuple[float, Quality]]) -> Described:
    """Show perplexity against bits per element, each scheme a point with its name.

    Parameters
    ----------
    results : mapping of str to (float, Quality)
        As for `predictions`; the first is the exact storage, shown as a line.
    """
    figure, (ax,) = subplots(1, height=3.6)
    (_, exact), *schemes = results.values()
    ax.axhline(exact.perplexity, color=GREY, linestyle="--", label=tr("exact pool"))
    bits = [b for b, _ in schemes]
    ax.scatter(bits, [q.perplexity for _, q in schemes], color=BLUE, zorder=2)
    named = sorted(list(results.items())[1:], key=lambda item: item[1][0])
    for i, (name, (b, q)) in enumerate(named):
        crowded = i + 1 < len(named) and named[i + 1][1][0] - b < 0.3
        ax.annotate(
            name,
            (b, q.perplexity),
            (-6 if crowded else 6, 4),
            textcoords="offset points",
            ha="right" if crowded else "left",
            fontsize=9,
        )
    ax.margins(x=0.14, y=0.1)
    _plain(ax.yaxis)
    ax.set_title(tr("Perplexity by bits"))
    ax.set_xlabel(tr("bits per element, everything counted"))
    ax.set_ylabel(tr("perplexity"))
    ax.grid(alpha=0.25)
    ax.legend(frameon=False)
    listed = "; ".join(f"{name}: {number(b, 1)}" for name, (b, _) in named)
    return Described(figure, tr("Bits per element by scheme: {list}.", list=listed))


def predictions(results: Mapping[str, tuple[float, Quality]]) -> Described:
    """Show what each storage does to a model's predictions.

    The last digits depend on the processor, since a rounding may change a code: the
    caption names only orders of magnitude.

    Parameters
    ----------
    results : mapping of str to (float, Quality)
        Scheme → bits per element and quality, the exact one first.
    """
    figure, axes = subplots(3, height=3.2, sharey=True)
    rows = np.arange(len(results))[::-1]
    qualities = [quality for _, quality in results.values()]
    panels = (
        (tr("perplexity"), [q.perplexity for q in qualities], 2),
        (tr("KL, nats"), [q.kl for q in qualities], 4),
        (tr("another token, %"), [100 * (1 - q.top1) for q in qualities], 1),
    )
    for ax, (name, values, digits) in zip(axes, panels, strict=True):
        colours = [GREY, *[BLUE] * (len(results) - 1)]
        bars = ax.barh(rows, values, 0.6, color=colours)
        ax.bar_label(bars, [number(value, digits) for value in values], padding=3)
        ax.set_xlabel(name)
        ax.margins(x=0.5)
    axes[1].set_xscale("log")
    axes[1].set_xlim(1e-4, 1e2)
    axes[0].axvline(qualities[0].perplexity, color=GREY, linestyle="--", linewidth=1)
    labels = [f"{name} ({number(bits, 1)})" for name, (bits, _) in results.items()]
    axes[0].set_yticks(rows, labels)
    axes[0].set_ylabel(tr("scheme (bits per element)"))
    groups: dict[str, list[str]] = {}
    schemes = list(results.items())[1:]
    for name, (_, quality) in sorted(schemes, key=lambda item: item[1][1].kl):
        groups.setdefault(_order(quality.kl), []).append(name)
    listed = "; ".join(f"{order}: {', '.join(g)}" for order, g in groups.items())
    figure.suptitle(tr("Predictions from a quantised pool"))
    return Described(figure, tr("KL in nats {list}.", list=listed))


def _order(kl: float) -> str:
    limits = (0.01, 0.05)  # far from what any of the lesson's schemes has
    for limit in limits:
        if kl < limit:
            return tr("below {limit}", limit=number(limit, 2))
    return tr("above {limit}", limit=number(limits[-1], 2))


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
    _plain(ax.yaxis)
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
    _plain(ax.xaxis)


def _plain(axis: Axis) -> None:
    """Write an axis' numbers without powers, with the language's decimal mark."""

    def text(value: float, _: int) -> str:
        return f"{value:g}".replace(".", "," if language() == "ru" else ".")

    axis.set_major_formatter(FuncFormatter(text))
