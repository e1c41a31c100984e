"""Figures of the exercises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from paged_kv.figures.style import (
    BLUE,
    GREY,
    LIGHT,
    VERMILION,
    Described,
    named_line,
    subplots,
)
from paged_kv.messages import tr
from paged_kv.serving import number, percent


def block_size_tradeoff(
    block_sizes: Sequence[int], waste: ArrayLike, table_entries: Sequence[int]
) -> Described:
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
    shares = np.asarray(waste)
    labels = [number(100 * share, 2) for share in shares]
    left.bar_label(left.bar(names, 100 * shares, color=BLUE), labels, padding=2)
    left.set_title(tr("Empty slots"))
    left.set_ylabel(tr("empty slots, %"))
    right.bar_label(right.bar(names, table_entries, color=GREY), padding=2)
    right.set_title(tr("Block tables"))
    right.set_ylabel(tr("block table entries"))
    for ax in (left, right):
        ax.set_xlabel(tr("block size, tokens"))
        ax.margins(y=0.12)
    return Described(
        figure,
        tr(
            "Blocks of {small} tokens leave {least} of the slots empty and need "
            "{most} table entries; blocks of {large} leave {worst} and need {few}.",
            small=block_sizes[0],
            least=percent(shares[0], 2),
            most=number(table_entries[0]),
            large=block_sizes[-1],
            worst=percent(shares[-1], 2),
            few=number(table_entries[-1]),
        ),
    )


def token_weights(right: ArrayLike, wrong: ArrayLike, block_size: int) -> Described:
    """Compare the softmax weights of tokens, right and wrong, block by block.

    Parameters
    ----------
    right, wrong : array_like of float, shape (L,)
        Weight of each token; each sums to 1.
    block_size : int
        Tokens per block; boundaries are drawn.
    """
    figure, (ax,) = subplots(1)
    right, wrong = np.asarray(right), np.asarray(wrong)
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
    ax.set_title(tr("Softmax weights of the tokens"))
    ax.set_xlabel(tr("token (dotted lines: block boundaries)"))
    ax.set_ylabel(tr("weight"))
    ax.legend(frameon=False)
    return Described(
        figure,
        tr(
            "With α the first block of {n} tokens has {right} of the weight, "
            "without α {wrong}.",
            n=block_size,
            right=percent(right[:block_size].sum(), 1),
            wrong=percent(wrong[:block_size].sum(), 1),
        ),
    )


def blocks_by_forks(
    forks: Sequence[int], used: Sequence[int], unshared: Sequence[int]
) -> Described:
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
        look = {"marker": "o", "color": colour}
        named_line(ax, forks, counts, name, -1, (-6, 6), "right", **look)
    ax.set_ylim(0, 1.12 * max(*used, *unshared))
    ax.set_xticks(forks)
    ax.set_title(tr("Blocks by the number of requests"))
    ax.set_xlabel(tr("forks"))
    ax.set_ylabel(tr("blocks in use"))
    return Described(
        figure,
        tr(
            "{n} forks take {used} blocks with copy-on-write, {unshared} without "
            "sharing.",
            n=forks[-1],
            used=used[-1],
            unshared=unshared[-1],
        ),
    )
