"""Figures of lesson 09.1: paging against reservation, over time and by size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.ticker import FuncFormatter

from paged_kv.figures.style import (
    BLUE,
    LINES,
    ORANGE,
    VERMILION,
    Described,
    plain_number,
    subplots,
)
from paged_kv.messages import tr
from paged_kv.serving import Result, number
from paged_kv.serving.report import system_name


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
    left.yaxis.set_major_formatter(FuncFormatter(lambda y, _: plain_number(y)))
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
