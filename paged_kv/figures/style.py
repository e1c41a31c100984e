"""What all figures have in common: colours, size, background, and a description."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe–Ito, safe for colour-blind readers; vermilion marks what the text is about.
BLUE, VERMILION = "#0072B2", "#D55E00"
GREEN, ORANGE, PURPLE, SKY = "#009E73", "#E69F00", "#CC79A7", "#56B4E9"
INK, GREY, LIGHT = "#1a1a1a", "#767676", "#D9D9D9"


class Described:
    """A figure with a text that says what it shows.

    A notebook stores the picture and, as its text, the description: whoever cannot see
    the picture reads that. It is deterministic, so nbval compares it.

    Parameters
    ----------
    figure : Figure
    text : str
        What the figure shows, with its main numbers.
    """

    def __init__(self, figure: Figure, text: str) -> None:
        self.figure, self.text = figure, text

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        buffer = BytesIO()
        self.figure.savefig(buffer, format="png")
        png = b64encode(buffer.getvalue()).decode()
        data = {"image/png": png, "text/plain": self.text}
        return data, {"image/png": {"alt": self.text}}


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
