"""Figures of lessons 09.2 and 09.3: what a shared prefix saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paged_kv.figures.style import (
    BLUE,
    LIGHT,
    LINES,
    Described,
    subplots,
)
from paged_kv.messages import tr
from paged_kv.serving import number


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
