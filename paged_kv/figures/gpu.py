"""Figures of lesson 09.6: what a program instance reads, and how fast decode reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

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
from paged_kv.serving import number, percent

_BARS = ((GREY, "//"), (ORANGE, ".."), (SKY, ""), (BLUE, "\\\\"), (GREEN, "xx"))


def program_reads(
    mine: NDArray[np.bool_], anyone: NDArray[np.bool_], table: Sequence[int]
) -> Described:
    """Show the slots of a cache that one program instance reads, and all others do.

    Parameters
    ----------
    mine, anyone : ndarray of bool, shape (num_blocks, block_size, n_kv_heads)
        Read by this program instance; read by any.
    table : sequence of int
        Its sequence's blocks, in logical order.
    """
    num_blocks, block_size, n_kv_heads = mine.shape
    figure, (ax,) = subplots(1, height=0.75 + 0.42 * n_kv_heads)
    width = block_size + 3
    for block, slot, head in np.ndindex(mine.shape):
        colour = LIGHT
        if anyone[block, slot, head]:
            colour = VERMILION if mine[block, slot, head] else SKY
        place = (block * width + slot, n_kv_heads - 1 - head)
        ax.add_patch(Rectangle(place, 1, 0.8, facecolor=colour, linewidth=0))
    for logical, block in enumerate(table):
        ax.text(
            block * width + block_size / 2,
            n_kv_heads + 0.15,
            tr("logical {n}", n=logical),
            ha="center",
            va="bottom",
            color=VERMILION,
        )
    ax.set_xlim(-1, num_blocks * width - 2)
    ax.set_ylim(-0.2, n_kv_heads + 0.7)
    ax.set_xticks(
        [block * width + block_size / 2 for block in range(num_blocks)],
        [str(block) for block in range(num_blocks)],
    )
    ax.set_yticks([n_kv_heads - 0.6 - head for head in range(n_kv_heads)])
    ax.set_yticklabels([str(head) for head in range(n_kv_heads)])
    ax.tick_params(length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.set_title(tr("What one program instance reads (vermilion)"))
    ax.set_xlabel(tr("physical block, {n} slots each", n=block_size))
    ax.set_ylabel(tr("KV head"))
    heads = np.flatnonzero(mine.any(axis=(0, 1))).tolist()
    return Described(
        figure,
        tr(
            "Vermilion: this program instance reads {mine} slots of KV head {heads}, "
            "in the blocks {blocks}. Blue: the others read {others} slots. Grey: "
            "nobody reads {nobody}.",
            mine=int(mine.sum()),
            heads=", ".join(map(str, heads)),
            blocks=", ".join(map(str, table)),
            others=int((anyone & ~mine).sum()),
            nobody=int((~anyone).sum()),
        ),
    )


def shares_of_copy(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    sizes: Sequence[str],
    copy_speed: float,
) -> Described:
    """Show how fast K and V are read, in GB/s and as shares of what a copy moves.

    Parameters
    ----------
    panels : mapping of str to mapping of str to sequence of float
        Storage type → way → share for each of `sizes`; at most five ways.
    sizes : sequence of str
        Batch and context of each group of bars.
    copy_speed : float
        Bytes per second of the copy.
    """
    figure, axes = subplots(len(panels), height=1.3 + 0.7 * len(sizes), sharey=True)
    gigabytes = copy_speed / 1e9
    for ax, (dtype, ways) in zip(axes, panels.items(), strict=True):
        height = 0.8 / len(ways)
        for i, ((way, shares), (colour, hatch)) in enumerate(
            zip(ways.items(), _BARS, strict=False)
        ):
            rows = np.arange(len(sizes)) + (i - (len(ways) - 1) / 2) * height
            ax.barh(
                rows,
                shares,
                height,
                label=way,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0,
            )
        ax.axvline(1, color=INK, linestyle="--", linewidth=1)
        ax.set_yticks(range(len(sizes)), sizes)
        ax.xaxis.set_major_formatter(PercentFormatter(1))
        ax.set_title(dtype)
        ax.set_xlabel(tr("share of a copy's bytes per second"))
        top = ax.secondary_xaxis(
            "top",
            functions=(
                lambda x: np.multiply(x, gigabytes),
                lambda x: np.divide(x, gigabytes),
            ),
        )
        top.set_xlabel(tr("GB/s"))
    axes[0].invert_yaxis()
    axes[0].set_ylabel(tr("requests × tokens"))
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    return Described(
        figure,
        tr(
            "Bytes of K and V read per second by each way of decoding, measured in "
            "this run, as a share of a copy's (dashed line). Groups: {sizes}.",
            sizes=", ".join(sizes),
        ),
    )


def paging_cost(
    slowdowns: Mapping[str, float], paper: tuple[float, float]
) -> Described:
    """Compare times with those over contiguous memory, beside the paper's figure.

    Parameters
    ----------
    slowdowns : mapping of str to float
        Way → its time over that of contiguous memory.
    paper : (float, float)
        The range that the paper gives.
    """
    figure, (ax,) = subplots(1, height=2.0)
    rows = np.arange(len(slowdowns))[::-1]
    ax.barh(rows, list(slowdowns.values()), 0.55, color=BLUE)
    ax.axvspan(*paper, color=VERMILION, alpha=0.35, linewidth=0)
    ax.axvline(1, color=INK, linestyle="--", linewidth=1)
    ax.set_yticks(rows, list(slowdowns))
    ax.set_xlim(0, max(*slowdowns.values(), paper[1]) * 1.1)
    ax.set_title(tr("What paging costs"))
    ax.set_xlabel(tr("time, contiguous memory = 1 (vermilion: the paper's kernel)"))
    return Described(
        figure,
        tr(
            "Time of decode over pages against contiguous memory (dashed line), "
            "measured in this run. The paper's kernel: {low}–{high} slower.",
            low=number(100 * (paper[0] - 1)),
            high=percent(paper[1] - 1),
        ),
    )
