"""Figures of the exercises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from paged_kv.figures.style import BLUE, GREY, LIGHT, VERMILION, subplots
from paged_kv.messages import tr


def block_size_tradeoff(
    block_sizes: Sequence[int], waste: ArrayLike, table_entries: Sequence[int]
) -> Figure:
    """Show what a block size costs: empty slots on the left, table on the right.

    Parameters
    ----------
    block_sizes : sequence of int
        Tokens per block.
    waste : array_like of float, same length
        Empty slots as a share of all slots taken, 0 … 1.
    table_entries : sequence of int, same length
        Entries of all block tables together.
    """
    figure, (left, right) = subplots(2)
    names = [str(size) for size in block_sizes]
    percent = 100 * np.asarray(waste)
    left.bar_label(left.bar(names, percent, color=BLUE), fmt="%.2f", padding=2)
    left.set_ylabel(tr("empty slots, %"))
    right.bar_label(right.bar(names, table_entries, color=GREY), padding=2)
    right.set_ylabel(tr("block table entries"))
    for ax in (left, right):
        ax.set_xlabel(tr("block size, tokens"))
        ax.margins(y=0.12)
    return figure


def token_weights(right: ArrayLike, wrong: ArrayLike, block_size: int) -> Figure:
    """Compare the softmax weights of tokens, right and wrong, block by block.

    Parameters
    ----------
    right, wrong : array_like of float, shape (L,)
        Weight of each token; each sums to 1.
    block_size : int
        Tokens per block; boundaries are drawn.
    """
    figure, (ax,) = subplots(1)
    right = np.asarray(right)
    tokens = np.arange(len(right))
    ax.bar(tokens, right, color=LIGHT, width=0.9, label=tr("with α"))
    ax.plot(
        tokens,
        wrong,
        linestyle="none",
        marker="_",
        markersize=6,
        markeredgewidth=2,
        color=VERMILION,
        label=tr("without α"),
    )
    for boundary in range(block_size, len(right), block_size):
        ax.axvline(boundary - 0.5, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_xlim(-0.7, len(right) - 0.3)
    ax.set_xlabel(tr("token (dotted lines: block boundaries)"))
    ax.set_ylabel(tr("weight"))
    ax.legend(frameon=False)
    return figure


def blocks_by_forks(
    forks: Sequence[int], used: Sequence[int], unshared: Sequence[int]
) -> Figure:
    """Show how blocks in use grow with the number of forks of one prompt.

    Parameters
    ----------
    forks : sequence of int
        Requests forked from the prompt.
    used, unshared : sequence of int, same length
        Blocks with a shared prefix, and with a copy of it for each request.
    """
    figure, (ax,) = subplots(1)
    for counts, colour, name in (
        (unshared, GREY, tr("without sharing")),
        (used, BLUE, tr("with copy-on-write")),
    ):
        ax.plot(forks, counts, marker="o", markersize=4, color=colour)
        ax.annotate(
            name,
            (forks[-1], counts[-1]),
            xytext=(-6, 6),
            textcoords="offset points",
            ha="right",
            color=colour,
        )
    ax.set_ylim(0, 1.12 * max(*used, *unshared))
    ax.set_xlabel(tr("forks"))
    ax.set_ylabel(tr("blocks in use"))
    return figure
