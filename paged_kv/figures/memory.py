"""Figures of lesson 09.0: where the memory goes, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from paged_kv.figures.style import (
    BLUE,
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
from paged_kv.serving import Result, number, percent
from paged_kv.serving.report import system_name


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
    return Described(
        figure,
        tr(
            "{n} requests reserve {reserved} slots and fill {filled}, {share}.",
            n=len(lengths),
            reserved=number(max_len * len(lengths)),
            filled=number(sum(lengths)),
            share=percent(sum(lengths) / max_len / len(lengths), 1),
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
