"""Figures of lesson 09.4, and a table: what prefix caches find, and what they lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paged_kv.figures.style import (
    BLUE,
    GREY,
    VERMILION,
    Described,
    named_line,
    subplots,
)
from paged_kv.messages import tr
from paged_kv.serving import Table, number, percent

#: Hash chain and radix tree; the marker and the line tell them apart without colour.
CHAIN: dict[str, Any] = {"color": BLUE, "linestyle": "-", "marker": "o"}
TREE: dict[str, Any] = {"color": VERMILION, "linestyle": "--", "marker": "s"}
LOOKS = (CHAIN, TREE)
PLAIN: dict[str, Any] = {"color": GREY, "linestyle": "--", "marker": "s"}

Rates = Mapping[str, Sequence[float]]


def hit_rates(
    x: Sequence[int], rates: Mapping[str, Rates], x_label: str, title: str
) -> Described:
    """Show the hit rate of both caches by block or pool size, a panel per workload.

    Parameters
    ----------
    x : sequence of int
        Sizes, each twice the one before.
    rates : mapping of str to mapping of str to sequence of float
        Workload → cache → hit rate, 0 … 1, for each x. The same two caches everywhere.
    x_label, title : str
        In the language in use.
    """
    figure, axes = subplots(len(rates), height=2.7, sharey=True)
    for ax, (workload, caches) in zip(axes, rates.items(), strict=True):
        # The tree is drawn wide and below, so that equal curves are seen as two.
        for (cache, values), look in zip(caches.items(), LOOKS, strict=True):
            wide = look is TREE
            ax.plot(
                range(len(x)),
                [100 * value for value in values],
                label=cache,
                markersize=7 if wide else 3.5,
                markerfacecolor="none" if wide else look["color"],
                **look,
            )
        step = 2 if len(x) > 4 else 1
        shown = range(0, len(x), step)
        ax.set_xticks(shown, [_short(x[i]) for i in shown])
        ax.set_title(workload, fontsize=10)
    axes[0].set_ylabel(tr("hit rate, %"))
    axes[0].set_ylim(0, 100)
    axes[0].legend(frameon=False, fontsize=8, loc="lower center")
    figure.supxlabel(x_label, fontsize=10)
    figure.suptitle(title, fontsize=11)
    ends = "; ".join(
        tr(
            "{workload}, {cache}: {first} to {last}",
            workload=workload,
            cache=cache,
            first=number(100 * values[0], 1),
            last=number(100 * values[-1], 1),
        )
        for workload, caches in rates.items()
        for cache, values in caches.items()
    )
    return Described(
        figure,
        tr(
            "{title}. Hit rate in % at the first and the last size: {ends}.",
            title=title,
            ends=ends,
        ),
    )


def hit_rate_table(x: Sequence[int], rates: Mapping[str, Rates], caption: str) -> Table:
    """Return the numbers of `hit_rates`: a row per workload and cache, in percent.

    Parameters
    ----------
    x, rates
        As for `hit_rates`.
    caption : str
        In the language in use.
    """
    rows = [
        [f"{workload}, {cache}", *(number(100 * value, 1) for value in values)]
        for workload, caches in rates.items()
        for cache, values in caches.items()
    ]
    return Table.from_rows(["", *map(str, x)], rows, caption)


def tail_or_head_first(
    taken: Sequence[int], tail_first: Sequence[int], head_first: Sequence[int]
) -> Described:
    """Show what is still found of a freed prompt while its blocks are reused.

    Parameters
    ----------
    taken : sequence of int
        Blocks handed out again.
    tail_first, head_first : sequence of int, same length
        Tokens that a lookup still finds.
    """
    figure, (ax,) = subplots(1)
    for values, look, name, where in (
        (tail_first, CHAIN, tr("freed tail first"), (8, 4)),
        (head_first, TREE, tr("freed head first"), (8, 8)),
    ):
        named_line(ax, taken, values, name, len(taken) // 3, where, **look)
    ax.set_title(tr("What is left of a prompt whose blocks are being reused"))
    ax.set_xlabel(tr("blocks of it that were handed out again"))
    ax.set_ylabel(tr("tokens still found"))
    return Described(
        figure,
        tr(
            "After {n} of its blocks were reused, {tail} tokens are found if they were "
            "freed tail first, and {head} if head first.",
            n=taken[1],
            tail=tail_first[1],
            head=head_first[1],
        ),
    )


def order_of_service(
    waiting: Sequence[int], fcfs: Sequence[float], longest: Sequence[float]
) -> Described:
    """Show the hit rate of two orders of service by the length of the queue.

    Parameters
    ----------
    waiting : sequence of int
        Requests that the scheduler sees at a time.
    fcfs, longest : sequence of float, same length
        Hit rate, 0 … 1, first come first served and longest prefix first.
    """
    figure, (ax,) = subplots(1)
    for rates, look, name in (
        (longest, CHAIN, tr("longest shared prefix first")),
        (fcfs, PLAIN, tr("first come, first served")),
    ):
        values = [100 * rate for rate in rates]
        places = range(len(waiting))
        named_line(ax, places, values, name, -1, (0, 8), "right", **look)
    ax.set_xticks(range(len(waiting)), [str(n) for n in waiting])
    ax.set_ylim(0, 100)
    ax.set_title(tr("What the order of service does to the hit rate"))
    ax.set_xlabel(tr("requests in the queue that the scheduler chooses from"))
    ax.set_ylabel(tr("hit rate, %"))
    return Described(
        figure,
        tr(
            "Hit rate at a queue of {n}: {fcfs} first come first served, {longest} "
            "longest shared prefix first.",
            n=waiting[-1],
            fcfs=percent(fcfs[-1], 1),
            longest=percent(longest[-1], 1),
        ),
    )


def _short(size: int) -> str:
    return str(size) if size < 1024 else f"{size // 1024}k"
