"""Figures of the lessons: each has a title, units, and a caption with its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter

from paged_kv.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    SKY,
    VERMILION,
    Described,
    subplots,
)
from paged_kv.messages import tr
from paged_kv.serving import Result, number
from paged_kv.serving.report import system_name

#: A second channel beside colour, so that systems differ in grey as well.
LINES: tuple[dict[str, Any], ...] = (
    {"color": GREY, "linestyle": ":", "marker": "s"},
    {"color": ORANGE, "linestyle": "-.", "marker": "^"},
    {"color": GREEN, "linestyle": "--", "marker": "D"},
    {"color": BLUE, "linestyle": "-", "marker": "o"},
)


def reserved_and_used(lengths: Sequence[int], max_len: int) -> Described:
    """Show requests that reserve `max_len` slots each, and how many they fill."""
    figure, (ax,) = subplots(1, height=2.4)
    rows = np.arange(len(lengths))
    ax.barh(rows, max_len, 0.7, color="white", edgecolor=GREY, hatch="//")
    ax.barh(rows, lengths, 0.7, color=BLUE)
    for row, length in zip(rows, lengths, strict=True):
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        ax.text(length + max_len / 80, float(row), str(length), va="center", bbox=box)
    ax.set_yticks(rows, [f"req{row}" for row in rows])
    ax.invert_yaxis()
    ax.set_xlim(0, max_len)
    ax.set_title(tr("Reserved (hatched) and filled (blue)"))
    ax.set_xlabel(tr("slots, one per token"))
    _localise(ax.xaxis)
    return Described(
        figure,
        tr(
            "{n} requests reserve {reserved} slots and fill {filled}, {share} %.",
            n=len(lengths),
            reserved=number(max_len * len(lengths)),
            filled=number(sum(lengths)),
            share=number(100 * sum(lengths) / max_len / len(lengths), 1),
        ),
    )


def throughput_by_batch(
    batches: Sequence[int], tokens_per_second: Sequence[float], marks: Sequence[int]
) -> Described:
    """Show the roofline of decode: tokens/s by batch, with some batches marked.

    Parameters
    ----------
    batches, tokens_per_second : sequence, same length
        Increasing batches.
    marks : sequence of int
        Two of `batches` to compare.
    """
    figure, (ax,) = subplots(1)
    ax.plot(batches, tokens_per_second, color=BLUE, linewidth=2)
    values = [tokens_per_second[list(batches).index(mark)] for mark in marks]
    for mark, value in zip(marks, values, strict=True):
        ax.plot(mark, value, "o", color=VERMILION)
        label = tr("batch {n}: {rate}", n=mark, rate=number(value))
        ax.annotate(label, (mark, value), (8, -14), textcoords="offset points")
    proportional = values[0] / marks[0] * np.array(batches)
    shown = proportional <= tokens_per_second[-1] * 1.05
    ax.plot(np.array(batches)[shown], proportional[shown], "--", color=GREY)
    end = int(shown.sum()) - 1
    ax.annotate(
        tr("if throughput grew with the batch"),
        (batches[end], proportional[end]),
        (8, -6),
        textcoords="offset points",
        color=GREY,
    )
    ax.set_xlim(0, batches[-1])
    ax.set_ylim(0, tokens_per_second[-1] * 1.12)
    ax.set_title(tr("Throughput grows more slowly than the batch"))
    ax.set_xlabel(tr("requests in the batch"))
    ax.set_ylabel(tr("tokens/s"))
    _localise(ax.xaxis, ax.yaxis)
    return Described(
        figure,
        tr(
            "Tokens per second by batch size: {a} requests give {x}, {b} give {y}, "
            "{ratio} times as many.",
            a=marks[0],
            x=number(values[0]),
            b=marks[1],
            y=number(values[1]),
            ratio=number(values[1] / values[0], 2),
        ),
    )


def chunk_map(chunks: Sequence[tuple[int, int, bool]], wanted: int) -> Described:
    """Show contiguous chunks by address, used and free.

    Parameters
    ----------
    chunks : sequence of (int, int, bool)
        First slot, slots, in use; as `BuddyAllocator.chunks` returns them.
    wanted : int
        Slots of a request that does not fit.
    """
    figure, (ax,) = subplots(1, height=1.7)
    for start, size, used in chunks:
        ax.broken_barh(
            [(start, size)],
            (0, 1),
            facecolor=GREY if used else "white",
            hatch="" if used else "//",
            edgecolor=INK,
            linewidth=0.6,
        )
        if not used:
            ax.text(start + size / 2, 1.12, str(size), ha="center", color=VERMILION)
    free = [size for _, size, used in chunks if not used]
    total = sum(size for _, size, _ in chunks)
    ax.set_xlim(0, total)
    ax.set_ylim(0, 1.45)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.set_title(tr("Free, but in pieces"))
    ax.set_xlabel(tr("slot (grey: in use, hatched: free, with its size)"))
    return Described(
        figure,
        tr(
            "Of {total} slots {free} are free, in {n} pieces of at most {largest}: a "
            "request for {wanted} slots does not fit.",
            total=number(total),
            free=number(sum(free)),
            n=len(free),
            largest=max(free),
            wanted=wanted,
        ),
    )


def memory_shares(
    results: Sequence[Result], published: Mapping[str, Sequence[float]]
) -> Described:
    """Show where the cache's memory is, ours above the paper's, system by system.

    Parameters
    ----------
    results : sequence of Result
    published : mapping of str to sequence of float
        Percent by the fields of `Usage`, NaN where the paper gives none.
    """
    figure, (ax,) = subplots(1, height=3.6)
    looks = (
        (BLUE, "", tr("token states")),
        (SKY, "///", tr("reservation")),
        (ORANGE, "xx", tr("internal fragmentation")),
        (LIGHT, "..", tr("external and other")),
    )
    names, y = [], 0.0
    for result in results:
        ours = [100 * share for share in result.shares.values()]
        theirs = [0.0 if math.isnan(p) else p for p in published[result.system]]
        theirs[-1] += 100 - sum(theirs)  # the rest, where the paper names no parts
        rows = ((ours, system_name(result.system)), (theirs, tr("paper")))
        for values, name in rows:
            left = 0.0
            for value, (colour, hatch, _) in zip(values, looks, strict=True):
                ax.barh(
                    y, value, 0.8, left, color=colour, hatch=hatch, edgecolor="white"
                )
                left += value
            share = number(values[0], 1)
            ax.text(1, y, share, va="center", color="white", weight="bold")
            names.append((y, name))
            y += 0.9
        y += 0.5
    ax.set_yticks([at for at, _ in names], [name for _, name in names])
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    ax.set_xlabel(tr("share of the cache, %"))
    ax.set_title(tr("Where the memory is, simulated and in the paper"), loc="left")
    handles = [
        ax.barh(0, 0, color=colour, hatch=hatch, edgecolor="white", label=name)
        for colour, hatch, name in looks
    ]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
        columnspacing=1,
    )
    shares = "; ".join(
        f"{system_name(r.system)} {number(100 * r.shares['tokens'], 1)}"
        for r in results
    )
    return Described(
        figure, tr("Share of the cache that holds tokens, %: {shares}.", shares=shares)
    )


def latency_by_rate(
    rates: Sequence[float], latencies: Mapping[str, Sequence[float]], limit: float
) -> Described:
    """Show normalised latency by arrival rate, one line per system.

    Parameters
    ----------
    rates : sequence of float
        Requests per second.
    latencies : mapping of str to sequence of float
        Seconds per token of each system, as many as rates.
    limit : float
        Latency at which rates are compared; drawn.
    """
    figure, (ax,) = subplots(1, height=3.2)
    for (system, values), line in zip(latencies.items(), LINES, strict=True):
        ax.plot(rates, values, label=system_name(system), markersize=4, **line)
    ax.axhline(limit, color=VERMILION, linewidth=1)
    ax.set_ylim(0, 2.2 * limit)
    ax.set_xlim(0, rates[-1])
    ax.set_title(tr("How many requests per second each system can take"))
    ax.set_xlabel(tr("arrival rate, requests/s"))
    _localise(ax.xaxis, ax.yaxis)
    ax.set_ylabel(tr("latency, s per token"))
    ax.legend(frameon=False, loc="upper left")
    ends = "; ".join(
        f"{system_name(s)} {number(_last_below(rates, v, limit), 2)}"
        for s, v in latencies.items()
    )
    return Described(
        figure,
        tr(
            "Largest rate drawn, in requests/s, with at most {limit} s per token: "
            "{ends}.",
            limit=number(limit, 1),
            ends=ends,
        ),
    )


def _last_below(rates: Sequence[float], values: Sequence[float], limit: float) -> float:
    below = [r for r, value in zip(rates, values, strict=True) if value <= limit]
    return max(below, default=math.nan)


def block_size_sweep(
    sizes: Sequence[int],
    latency: Mapping[str, Sequence[float]],
    waste: Mapping[str, Sequence[float]],
) -> Described:
    """Show latency and waste by block size, one line per workload.

    Parameters
    ----------
    sizes : sequence of int
        Tokens per block, powers of two.
    latency, waste : mapping of str to sequence of float
        Seconds per token, and empty slots as a share of all slots taken.
    """
    figure, (left, right) = subplots(2, height=3.0)
    looks = (LINES[3], LINES[1])
    for ax, lines in ((left, latency), (right, waste)):
        for (name, values), look in zip(lines.items(), looks, strict=True):
            factor = 100 if ax is right else 1
            shown = [factor * value for value in values]
            ax.plot(sizes, shown, label=name, markersize=4, **look)
            if ax is left:
                best = int(np.argmin(values))
                ax.plot(
                    sizes[best], values[best], "o", ms=10, mfc="none", mec=VERMILION
                )
        ax.set_xscale("log", base=2)
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.minorticks_off()
        ax.set_xlabel(tr("block size, tokens"))
    left.set_yscale("log")
    left.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _short(y)))
    left.set_title(tr("Latency (ring: the best size)"))
    left.set_ylabel(tr("s per token"))
    right.set_title(tr("Empty slots"))
    right.set_ylabel(tr("of all slots taken, %"))
    left.legend(frameon=False)
    best_sizes = "; ".join(
        f"{name} {sizes[int(np.argmin(values))]}" for name, values in latency.items()
    )
    return Described(
        figure, tr("Block size with the lowest latency: {sizes}.", sizes=best_sizes)
    )


def run_over_time(result: Result) -> Described:
    """Show a run: slots in use and requests, running and waiting, over time."""
    figure, (left, right) = subplots(2, height=2.8)
    samples = result.samples
    minutes = [sample.seconds / 60 for sample in samples]
    slots = sum(samples[0].usage)
    parts = np.array([sample.usage for sample in samples]).T * 100 / slots
    left.stackplot(minutes, parts[0], parts[1] + parts[2], colors=[BLUE, ORANGE])
    left.set_ylim(0, 100)
    left.set_title(tr("Memory (blue: tokens, orange: empty)"))
    left.set_ylabel(tr("share of the cache, %"))
    running = [sample.running for sample in samples]
    waiting = [sample.waiting for sample in samples]
    right.plot(minutes, running, color=BLUE, label=tr("running"))
    right.plot(minutes, waiting, color=VERMILION, linestyle="--", label=tr("waiting"))
    right.set_title(tr("Requests"))
    right.set_ylabel(tr("requests"))
    right.set_ylim(0, 1.35 * max(*running, *waiting))
    right.legend(frameon=False, ncols=2, loc="upper left")
    for ax in (left, right):
        ax.set_xlabel(tr("minutes"))
        ax.set_xlim(0, minutes[-1])
    return Described(
        figure,
        tr(
            "{system}: in the moments drawn up to {running} requests ran and up to "
            "{waiting} waited; {preemptions} preemptions in all.",
            system=system_name(result.system),
            running=max(running),
            waiting=max(waiting),
            preemptions=number(result.preemptions),
        ),
    )


def bytes_by_batch(
    batches: Sequence[int], plain: Sequence[float], cascade: Sequence[float]
) -> Described:
    """Show what one decode step reads, with the shared prefix read by each or once.

    Parameters
    ----------
    batches : sequence of int
        Requests that share a prefix.
    plain, cascade : sequence of float
        MiB of K and V read.
    """
    figure, (ax,) = subplots(1)
    for values, name, look in (
        (plain, tr("each request reads the prefix"), LINES[0]),
        (cascade, tr("cascade: read once"), LINES[3]),
    ):
        ax.plot(batches, values, label=name, markersize=4, **look)
    ax.set_ylim(bottom=0)
    ax.set_title(tr("Bytes that one decode step reads"))
    ax.set_xlabel(tr("requests with a common prefix"))
    _localise(ax.xaxis, ax.yaxis)
    ax.set_ylabel(tr("K and V, MiB"))
    ax.legend(frameon=False)
    return Described(
        figure,
        tr(
            "With {n} requests a step reads {plain} MiB, with cascade attention "
            "{cascade} MiB.",
            n=batches[-1],
            plain=number(plain[-1]),
            cascade=number(cascade[-1]),
        ),
    )


def saved_by_sharing(
    saved: Mapping[str, Mapping[int, float]],
    published: Mapping[str, Mapping[int, float]],
) -> Described:
    """Show memory saved by sharing, ours beside the paper's, in percent.

    Parameters
    ----------
    saved, published : mapping of str to mapping of int to float
        By method and number of answers.
    """
    figure, axes = subplots(2)
    names = {
        "parallel sampling": tr("parallel sampling"),
        "beam search": tr("beam search"),
    }
    pairs = []
    for ax, (method, ours) in zip(axes, saved.items(), strict=True):
        at = np.arange(len(ours))
        theirs = published[method]
        for shift, values, colour, hatch, name in (
            (-0.2, ours, BLUE, "", tr("simulated")),
            (0.2, theirs, LIGHT, "//", tr("paper")),
        ):
            heights = [values[n] for n in ours]
            bars = ax.bar(
                at + shift, heights, 0.4, color=colour, hatch=hatch, label=name
            )
            ax.bar_label(bars, [number(h, 1) for h in heights], padding=2)
        ax.set_xticks(at, [str(n) for n in ours])
        ax.margins(y=0.15)
        ax.set_title(names[method])
        ax.set_xlabel(tr("answers per request"))
        ax.set_ylabel(tr("blocks saved, %"))
        pairs.append(
            f"{names[method]}: "
            + ", ".join(f"{number(ours[n], 1)} / {number(theirs[n], 1)}" for n in ours)
        )
    axes[0].legend(frameon=False, loc="upper left")
    axes[0].set_ylim(0, axes[0].get_ylim()[1] * 1.3)
    return Described(
        figure,
        tr("Saved, simulated / paper, %: {pairs}.", pairs="; ".join(pairs)),
    )


def _localise(*axes: Axis) -> None:
    """Write the numbers of axes as the current language does."""
    for axis in axes:
        axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def _short(value: float) -> str:
    """Return a number with no more than the decimals it needs."""
    digits = next((d for d in range(4) if abs(value - round(value, d)) < 1e-9), 4)
    return number(value, digits)
