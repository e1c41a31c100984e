"""Figures of lesson 09.7: what a model predicts from a quantised pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike

from paged_kv.figures.style import (
    BLUE,
    GREY,
    ORANGE,
    Described,
    localise,
    subplots,
)
from paged_kv.messages import tr
from paged_kv.model.measure import Quality
from paged_kv.serving import number


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
        figure.colorbar(image, ax=ax, label=tr("magnitude"), shrink=0.9)
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
    localise(ax.xaxis)
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
