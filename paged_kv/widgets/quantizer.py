"""A quantiser at work: the block that goes in, its codes, and what is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import ipywidgets as widgets
import numpy as np
from numpy.typing import NDArray

from paged_kv.messages import language, tr
from paged_kv.quantization import (
    Codebook,
    Fp8E4M3,
    GroupedInt,
    Hadamard,
    Quantizer,
    RandomRotation,
    SymmetricInt,
)
from paged_kv.quantization.synthetic import synthetic_kv
from paged_kv.widgets.page import Picture, page, title
from paged_kv.widgets.stored import LABELLED, StoredWidget

SHEET = "quantizer.css"
TOKENS, CHANNELS = 8, 16
#: The block that bits are counted for, as in a model: 32 tokens, 8 heads of 128.
REAL_SHAPE = (32, 8, 128)
STRENGTHS = (1, 16)

Array = NDArray[Any]


@dataclass(frozen=True)
class Bench:
    """One quantiser and one block.

    Attributes
    ----------
    quantizer : Quantizer
    strength : float
        How many times larger the outlier channel is than the others.
    block, codes, error : ndarray, shape (TOKENS, CHANNELS)
        Codes are unpacked. Error is read back minus block.
    outlier : int
        The outlier channel.
    """

    quantizer: Quantizer
    strength: float
    block: Array
    codes: Array
    error: Array
    outlier: int

    @classmethod
    def of(cls, quantizer: Quantizer, strength: float) -> Bench:
        """Quantise the block that belongs to this strength."""
        # The first token is a sink, and small: leave it out.
        K, _ = synthetic_kv(
            TOKENS + 1, 1, CHANNELS, strength=strength, outliers=1, seed=4
        )
        block = K[1:]
        codes, params = quantizer.quantize(block)
        error = quantizer.dequantize(codes, params) - block
        return cls(
            quantizer,
            strength,
            block[:, 0],
            quantizer.unpacked(codes)[:, 0],
            error[:, 0],
            int(np.abs(block[:, 0]).mean(axis=0).argmax()),
        )

    @property
    def is_rotated(self) -> bool:
        """Whether the codes are those of other channels than the block's."""
        return isinstance(self.quantizer, Hadamard | RandomRotation)

    @property
    def outlier_of_codes(self) -> int | None:
        """The outlier channel of the codes; after a rotation there is none."""
        return None if self.is_rotated else self.outlier

    def others_error(self) -> float:
        """Return the rms error of all channels but the outlier."""
        others = np.delete(self.error, self.outlier, axis=1)
        return float(np.sqrt(np.square(others).mean()))


def quantizer_list() -> list[Quantizer]:
    """Return the quantisers of the widget, from eight bits to two."""
    return [
        SymmetricInt(8, "head"),
        SymmetricInt(8, "token"),
        Fp8E4M3(),
        SymmetricInt(4, "head"),
        SymmetricInt(4, "token"),
        Hadamard(SymmetricInt(4, "token")),
        GroupedInt(4, "channel"),
        GroupedInt(4, "token"),
        RandomRotation(Codebook(4)),
        RandomRotation(Codebook(3)),
        GroupedInt(2, "channel"),
        SymmetricInt(2, "head"),
    ]


class QuantizerBench(StoredWidget):
    """Choose a quantiser and how strong the outlier is; see block, codes and error.

    Parameters
    ----------
    quantizers : sequence of Quantizer, optional
        What the list offers; the course's own when not given.
    strength : int
        Outlier strength at the start, 1 … 16.
    start : str, optional
        Name of the quantiser to start with; the first one when not given.

    Raises
    ------
    ValueError
        When no quantiser has that name.
    """

    def __init__(
        self,
        quantizers: Sequence[Quantizer] | None = None,
        strength: int = 4,
        start: str = "",
    ) -> None:
        offered = list(quantizers or quantizer_list())
        named = {q.name: q for q in offered}
        start = start or offered[0].name
        if start not in named:
            raise ValueError(f"no quantiser {start!r}; there are: {', '.join(named)}")
        self._view = widgets.HTML()
        self.quantizer = widgets.Dropdown(
            options=list(named.items()),
            value=named[start],
            description=tr("quantiser"),
            style=LABELLED,
        )
        self.strength = widgets.IntSlider(
            strength,
            *STRENGTHS,
            readout=False,
            layout={"flex": "1 1 auto", "width": "auto"},
            tooltip=tr("Outlier strength"),
        )
        self._label = widgets.HTML()
        controls = widgets.HBox([self.quantizer, self._label, self.strength])
        controls.add_class("controls")
        super().__init__([widgets.HTML(_title()), controls, self._view], SHEET)
        for control in (self.quantizer, self.strength):
            control.observe(self._draw, "value")
        self._draw()

    def picture(self) -> Picture:
        """Return the still picture of what the widget shows now."""
        bench = self._bench()
        return Picture(lambda: draw_bench(bench), lambda: plain(bench))

    def _bench(self) -> Bench:
        return Bench.of(self.quantizer.value, self.strength.value)

    def _draw(self, _: Any = None) -> None:
        self._label.value = f"<span>{escape(_strength(self.strength.value))}</span>"
        self._view.value = body(self._bench())


def draw_bench(bench: Bench) -> str:
    """Return the whole still picture as HTML."""
    chosen = f"{bench.quantizer.name}, {_strength(bench.strength)}"
    lead = f'<p class="qn">{escape(chosen)}</p>'
    return page(_title() + lead + body(bench), tr("Quantiser"), SHEET)


def body(bench: Bench) -> str:
    """Return the facts and the three tables."""
    largest = float(np.abs(bench.block).max())
    top_code = float(np.abs(bench.codes).max())
    # Errors have one colour scale for all quantisers, so that they can be compared.
    return (
        _facts(bench)
        + f'<p class="qn" aria-live="polite">{escape(_sentence(bench))}</p>'
        + _table(tr("Block of K"), bench.block, 1, largest, bench.outlier)
        + _table(tr("Codes"), bench.codes, 0, top_code, bench.outlier_of_codes)
        + _table(tr("Error"), bench.error, 2, 1.0, bench.outlier, is_error=True)
    )


def plain(bench: Bench) -> str:
    """Return the facts as text."""
    lines = [f"{bench.quantizer.name}, {_strength(bench.strength)}"]
    lines += [f"{name}: {value}" for name, value in _numbers(bench)]
    return "\n".join([*lines, _sentence(bench)])


def _title() -> str:
    lead = tr(
        "A block of {tokens} tokens and {channels} channels, one head.",
        tokens=TOKENS,
        channels=CHANNELS,
    )
    return title(tr("Quantiser"), lead)


def _strength(strength: float) -> str:
    return tr("outlier ×{strength}", strength=_number(strength, 0))


def _numbers(bench: Bench) -> list[tuple[str, str]]:
    tokens, heads, dim = REAL_SHAPE
    bits = bench.quantizer.bits_per_element(REAL_SHAPE)
    shape = f"{tokens}×{heads}×{dim}"
    return [
        (tr("bits per element, block {shape}", shape=shape), _number(bits, 3)),
        (tr("largest error"), _number(float(np.abs(bench.error).max()), 3)),
        (tr("rms error beside the outlier"), _number(bench.others_error(), 3)),
    ]


def _facts(bench: Bench) -> str:
    items = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in _numbers(bench)
    )
    return f'<dl class="qf">{"".join(items)}</dl>'


def _sentence(bench: Bench) -> str:
    zeros = np.delete(bench.codes, bench.outlier, axis=1)
    lost = int((zeros == 0).sum())
    if bench.is_rotated:
        return tr(
            "The codes are those of the rotated block: the outlier is spread over all "
            "channels of its token."
        )
    if isinstance(bench.quantizer, SymmetricInt):
        return tr(
            "Beside outlier channel {channel}, {lost} of {total} codes are 0.",
            channel=bench.outlier,
            lost=lost,
            total=zeros.size,
        )
    if isinstance(bench.quantizer, GroupedInt) and bench.quantizer.per == "channel":
        return tr(
            "Each channel has a minimum and a step of its own: the outlier disturbs "
            "nobody."
        )
    if isinstance(bench.quantizer, GroupedInt):
        return tr(
            "The channels of a token share a minimum and a step, and channel {channel} "
            "stretches it.",
            channel=bench.outlier,
        )
    if isinstance(bench.quantizer, Fp8E4M3):
        return tr(
            "The codes are bytes: sign, four bits of exponent, three of mantissa. The "
            "error grows with the number itself."
        )
    return bench.quantizer.name


def _table(
    name: str,
    values: Array,
    digits: int,
    largest: float,
    outlier: int | None,
    is_error: bool = False,
) -> str:
    columns = "".join(
        f'<th scope="col"{" class=out" if c == outlier else ""}>{c}</th>'
        for c in range(CHANNELS)
    )
    rows = []
    for t, row in enumerate(values):
        cells = "".join(_cell(v, digits, largest, is_error) for v in row.tolist())
        label = tr("token {token}", token=t)
        rows.append(f'<tr><th scope="row">{escape(label)}</th>{cells}</tr>')
    corner = f'<th scope="col">{escape(tr("channel"))}</th>'
    return (
        f'<table class="qt"><caption><b>{escape(name)}</b></caption>'
        f"<thead><tr>{corner}{columns}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _cell(value: float, digits: int, largest: float, is_error: bool) -> str:
    kind = "e" if is_error else "p" if value >= 0 else "n"
    weight = min(1.0, abs(value) / largest) if largest else 0.0
    text = _number(value, digits)
    return f'<td class="{kind}" style="--w:{weight:.2f}">{text}</td>'


def _number(value: float, digits: int) -> str:
    """Return a number with `digits` decimals, marked as in the language."""
    text = f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0: no "−0.0"
    text = text.replace("-", "−")
    return text.replace(".", ",") if language() == "ru" else text
