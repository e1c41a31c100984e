"""Figures of lesson 09.5: outlier channels, the tail, bits against error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MultipleLocator
from numpy.typing import ArrayLike

from paged_kv.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Described,
    localise,
    subplots,
)
from paged_kv.messages import tr
from paged_kv.serving import number

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, GREY, INK)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", "-.", ":", "-", "--", "-.")


def channel_sizes(K: ArrayLike, V: ArrayLike) -> Described:
    """Show the largest magnitude of each channel of one head, of K and of V.

    Parameters
    ----------
    K, V : array_like, shape (n_tokens, head_dim)
        One head. Channels above twice the median are marked.
    """
    figure, axes = subplots(2, sharey=True)
    largest = {}
    for ax, name, X in zip(axes, ("K", "V"), (K, V), strict=True):
        amax = np.abs(np.asarray(X)).max(axis=0)
        outliers = np.flatnonzero(amax > 2 * np.median(amax))
        channels = np.arange(len(amax))
        bars = ax.bar(channels, amax, width=0.9, color=GREY)
        for channel in outliers.tolist():
            bars[channel].set_color(VERMILION)
            place = (channel, amax[channel])
            ax.annotate(
                str(channel), place, (0, 2), textcoords="offset points", ha="center"
            )
        ax.axhline(np.median(amax), color=INK, linewidth=0.8, linestyle="--")
        ax.set_title(name)
        ax.set_xlabel(tr("channel (dashed: the median)"))
        largest[name] = float(amax.max() / np.median(amax))
    axes[0].yaxis.set_major_locator(MultipleLocator(4))
    axes[0].set_ylabel(tr("largest magnitude"))
    return Described(
        figure,
        tr(
            "Largest magnitude of each channel of one head: in K the largest channel "
            "is {k} times the median one, in V {v} times.",
            k=number(largest["K"], 1),
            v=number(largest["V"], 1),
        ),
    )


def tail_errors(errors: Mapping[str, float]) -> Described:
    """Compare the largest errors of the ways to treat a growing block.

    Parameters
    ----------
    errors : mapping of str to float
        Name of the way → largest error of an element; the first one is the best.
    """
    figure, (ax,) = subplots(1, height=2.2)
    names, values = list(errors), list(errors.values())
    rows = np.arange(len(names))[::-1]
    colours = [BLUE, *[GREY] * (len(names) - 1)]
    bars = ax.barh(rows, values, color=colours, height=0.6)
    ax.bar_label(bars, [number(value, 3) for value in values], padding=3)
    ax.set_yticks(rows, names)
    ax.set_xscale("log")
    ax.set_xlim(min(values) / 3, max(values) * 3)
    _plain_numbers(ax)
    ax.set_title(tr("Largest error in a block that grew token by token"))
    ax.set_xlabel(tr("largest error of an element, in units of K (logarithmic)"))
    listed = ", ".join(f"{n}: {number(v, 3)}" for n, v in errors.items())
    return Described(figure, tr("Largest error: {list}.", list=listed))


def bits_and_error(series: Mapping[str, Sequence[tuple[float, float]]]) -> Described:
    """Show the ladder: bits per element against the error of attention's output.

    Parameters
    ----------
    series : mapping of str to sequence of (float, float)
        Family of schemes → (bits, relative error) of each member.
    """
    figure, (ax,) = subplots(1, height=3.6)
    for i, (name, points) in enumerate(series.items()):
        bits, errors = zip(*sorted(points), strict=True)
        ax.plot(
            bits,
            errors,
            color=_COLOURS[i],
            marker=_MARKERS[i],
            linestyle=_DASHES[i],
            markersize=6,
            label=name,
        )
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: _percent(v)))
    ax.yaxis.set_minor_formatter(FuncFormatter(lambda v, _: ""))
    ax.xaxis.set_major_locator(MultipleLocator(1))
    ax.set_title(tr("What each bit buys"))
    ax.set_xlabel(tr("bits per element, everything counted"))
    ax.set_ylabel(tr("error of the output, %"))
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, ncols=2, fontsize=9)
    listed = "; ".join(
        f"{name}: "
        + ", ".join(f"{number(b, 1)} → {_percent(e)}" for b, e in sorted(points))
        for name, points in series.items()
    )
    text = tr(
        "Bits per element → error of attention's output in %. {list}.", list=listed
    )
    return Described(figure, text)


def window_cost(
    lengths: Sequence[int], bits: Mapping[str, Sequence[float]]
) -> Described:
    """Show bits per element against the length of the cache.

    Parameters
    ----------
    lengths : sequence of int
        Tokens in the cache.
    bits : mapping of str to sequence of float
        Scheme → bits at each length.
    """
    figure, (ax,) = subplots(1)
    for i, (name, values) in enumerate(bits.items()):
        ax.plot(lengths, values, _DASHES[i], color=_COLOURS[i], label=name)
    ax.set_xscale("log", base=2)
    ax.set_xlim(lengths[0], lengths[-1])
    ax.set_ylim(0, 17)
    ax.yaxis.set_major_locator(MultipleLocator(4))
    ax.legend(frameon=False)
    _plain_numbers(ax)
    ax.set_title(tr("The price of an exact window"))
    ax.set_xlabel(tr("tokens in the cache"))
    ax.set_ylabel(tr("bits per element"))
    first, last = lengths[0], lengths[-1]
    listed = "; ".join(
        f"{name}: {number(values[0], 1)} → {number(values[-1], 1)}"
        for name, values in bits.items()
    )
    text = tr(
        "Bits per element at {first} and at {last} tokens. {list}.",
        first=number(first),
        last=number(last),
        list=listed,
    )
    return Described(figure, text)


def sensitivity(
    names: Sequence[str], k_only: Sequence[float], v_only: Sequence[float]
) -> Described:
    """Compare the output's error when only K and when only V is quantised.

    Parameters
    ----------
    names : sequence of str
        Quantisers.
    k_only, v_only : sequence of float, same length
        Relative errors of attention's output.
    """
    figure, (ax,) = subplots(1)
    places = np.arange(len(names))
    for shift, values, colour, hatch, label in (
        (-0.2, k_only, BLUE, "", tr("only K quantised")),
        (0.2, v_only, ORANGE, "//", tr("only V quantised")),
    ):
        percent = [100 * value for value in values]
        bars = ax.bar(
            places + shift,
            percent,
            0.38,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=label,
        )
        ax.bar_label(bars, [_percent(value) for value in values], padding=2, fontsize=9)
    ax.set_xticks(places, names)
    ax.margins(y=0.15)
    ax.set_title(tr("Which is worse, an error in K or in V"))
    ax.set_xlabel(tr("quantiser"))
    ax.set_ylabel(tr("error of the output, %"))
    ax.legend(frameon=False)
    listed = "; ".join(
        f"{name}: K {_percent(k)}, V {_percent(v)}"
        for name, k, v in zip(names, k_only, v_only, strict=True)
    )
    return Described(figure, tr("Error of the output in %: {list}.", list=listed))


def _plain_numbers(ax: Axes) -> None:
    localise(ax.xaxis)
    ax.xaxis.set_minor_formatter(FuncFormatter(lambda v, _: ""))


def _percent(value: float) -> str:
    """Return percent with two significant digits."""
    percent = 100 * value
    return number(percent, 0 if percent >= 10 else 1 if percent >= 1 else 2)
