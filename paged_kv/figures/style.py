"""What all figures have in common: colours, lines, numbers, and a description."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, ScalarFormatter

from paged_kv.serving import number

# Okabe–Ito, safe for colour-blind readers; vermilion marks what the text is about.
BLUE, VERMILION = "#0072B2", "#D55E00"
GREEN, ORANGE, PURPLE, SKY = "#009E73", "#E69F00", "#CC79A7", "#56B4E9"
INK, GREY, LIGHT = "#1a1a1a", "#767676", "#D9D9D9"

#: A second channel beside colour, so that systems differ in grey as well.
LINES: tuple[dict[str, Any], ...] = (
    {"color": GREY, "linestyle": ":", "marker": "s"},
    {"color": ORANGE, "linestyle": "-.", "marker": "^"},
    {"color": GREEN, "linestyle": "--", "marker": "D"},
    {"color": BLUE, "linestyle": "-", "marker": "o"},
)


class Described:
    """A figure, and under it a caption that says what it shows.

    JupyterLab gives pictures no alternative text, so the description is text of its
    own; the picture carries it too, for converters that use it. It is deterministic:
    nbval compares it, and not the picture. Numbers on the axes are written as the
    current language does, unless the figure has given them a format of its own.

    Parameters
    ----------
    figure : Figure
    text : str
        What the figure shows, with its main numbers.

    Raises
    ------
    ValueError
        When axes lack a title, or an axis with numbers a label.
    """

    def __init__(self, figure: Figure, text: str) -> None:
        axes = [axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)]
        plain = [
            a for a in axes if isinstance(a.get_major_formatter(), ScalarFormatter)
        ]
        localise(*plain)
        missing = _missing_labels(figure)
        if missing:
            raise ValueError(f"the figure needs {', '.join(missing)}: {text}")
        self.figure, self.text = figure, text

    def __repr__(self) -> str:
        return self.text

    def _ipython_display_(self) -> None:
        from IPython.display import display

        buffer = BytesIO()
        self.figure.savefig(buffer, format="png")
        png = b64encode(buffer.getvalue()).decode()
        display(  # type: ignore[no-untyped-call]
            {"image/png": png, "text/plain": self.text},
            metadata={"image/png": {"alt": self.text}},
            raw=True,
        )
        caption = f'<p style="max-width:48em;margin:0">{escape(self.text)}</p>'
        display(  # type: ignore[no-untyped-call]
            {"text/html": caption, "text/plain": ""}, raw=True
        )


def _missing_labels(figure: Figure) -> list[str]:
    """Return what a reader of the figure would look for in vain."""
    missing = []
    for i, ax in enumerate(figure.axes):
        titles = [ax.get_title(loc) for loc in ("left", "center", "right")]
        # A colour bar belongs to axes that have a title.
        if not any([figure.get_suptitle(), *titles, ax.get_label() == "<colorbar>"]):
            missing.append(f"a title of axes {i}")
        same_y = ax.get_shared_y_axes().get_siblings(ax)
        labels_of_y = [figure.get_supylabel(), *(peer.get_ylabel() for peer in same_y)]
        if _has_numbers(ax.yaxis) and not any(labels_of_y):
            missing.append(f"a y label of axes {i}")
        if _has_numbers(ax.xaxis) and not any(
            [figure.get_supxlabel(), ax.get_xlabel()]
        ):
            missing.append(f"an x label of axes {i}")
    return missing


def _has_numbers(axis: Axis) -> bool:
    """Return whether ticks are marked with numbers: names need no label."""
    marks = [tick.get_text() for tick in axis.get_ticklabels()]
    return not all(mark[:1].isalpha() for mark in marks if mark)


def subplots(
    columns: int, height: float = 2.8, **options: Any
) -> tuple[Figure, tuple[Axes, ...]]:
    """Return a closed figure with `columns` axes side by side, opaque and plain."""
    figure, axes = plt.subplots(
        1,
        columns,
        figsize=(7.4, height),
        dpi=110,
        layout="constrained",
        squeeze=False,
        **options,
    )
    plt.close(figure)
    figure.set_facecolor("white")
    for ax in axes[0]:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, tuple(axes[0])


def named_line(
    ax: Axes,
    x: Sequence[float],
    y: Sequence[float],
    name: str,
    at: int,
    offset: tuple[float, float],
    ha: str = "left",
    **look: Any,
) -> None:
    """Draw a line with its name beside point `at`, `offset` points away from it."""
    ax.plot(x, y, markersize=4, **look)
    place = (x[at], y[at])
    colour = look["color"]
    ax.annotate(name, place, offset, textcoords="offset points", ha=ha, color=colour)


def localise(*axes: Axis) -> None:
    """Write the numbers of axes as the current language does."""
    for axis in axes:
        axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))


def plain_number(value: float) -> str:
    """Return a number with no more than the decimals it needs."""
    digits = next((d for d in range(6) if abs(value - round(value, d)) < 1e-9), 6)
    return number(value, digits)
