"""The online-softmax stepper: attention of one query over blocks, step by step."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets
import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.messages import tr
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence
from paged_kv.spec import whole
from paged_kv.widgets.page import Picture, page
from paged_kv.widgets.softmax_tables import View
from paged_kv.widgets.softmax_trace import Reading
from paged_kv.widgets.softmax_view import SHEET, body, header, name, plain
from paged_kv.widgets.stored import StoredWidget, button

#: Of q and K, and of V: with these, rounded numbers add up as the exact ones do.
SEEDS = 134_236, 6935


class SoftmaxStepper(StoredWidget):
    """Walk one query over the blocks of a sequence, and leave out what is needed.

    Without arguments it shows 40 tokens in the blocks 7, 0 and 12 of a small pool.

    Parameters
    ----------
    pool, seq : BlockPool, Sequence, optional
        The student's or ours, read once: later changes do not show.
    layer : int
    q : array_like, shape (n_heads, head_dim), optional
        One query per head.
    scale : float, optional
        ``1 / sqrt(head_dim)`` when not given.
    head : int
        The query head to show.
    step : int
        Where to start: a block in logical order, or the number of blocks for the
        output.
    rescale, mask : bool
        False leaves it out from the start; a box in the widget changes it.

    Raises
    ------
    ValueError
        For shapes that do not fit, a layer, head or step that does not exist, an empty
        sequence, or only some of `pool`, `seq` and `q`.
    """

    def __init__(
        self,
        pool: Any = None,
        seq: Any = None,
        layer: int = 0,
        q: ArrayLike | None = None,
        scale: float | None = None,
        head: int = 0,
        *,
        step: int = 0,
        rescale: bool = True,
        mask: bool = True,
    ) -> None:
        given = [argument is not None for argument in (pool, seq, q)]
        if any(given) and not all(given):
            raise ValueError("give pool, seq and q together, or none of them")
        if pool is None:
            pool, seq, q = example()
        self.reading = Reading(pool, seq, layer, q, scale, head)  # type: ignore[arg-type]
        last = len(self.reading.blocks)
        if whole("step", step, 0) > last:
            raise ValueError(f"step {step} does not exist: the output is step {last}")
        self._header, self._body = widgets.HTML(), widgets.HTML()
        self.slider = widgets.IntSlider(
            step, 0, last, readout=False, layout={"flex": "1 1 auto", "width": "auto"}
        )
        self.previous = button("‹", tr("Previous step"), lambda: self._go(-1))
        self.next = button("›", tr("Next step"), lambda: self._go(1))
        self.no_rescale = _box(tr("without rescaling"), not rescale)
        self.no_mask = _box(tr("without the mask"), not mask)
        controls = widgets.HBox(
            [self.previous, self.next, self.slider, self.no_rescale, self.no_mask]
        )
        controls.add_class("controls")
        super().__init__([self._header, controls, self._body], SHEET)
        for control in (self.slider, self.no_rescale, self.no_mask):
            control.observe(self._draw, "value")
        self._draw()

    def picture(self) -> Picture:
        """Return the still picture of the current step."""
        view = self._view()
        return Picture(
            lambda: page(header(view) + body(view), name(), SHEET), lambda: plain(view)
        )

    def _view(self) -> View:
        return View(
            self.reading,
            self.slider.value,
            rescale=not self.no_rescale.value,
            mask=not self.no_mask.value,
        )

    def _draw(self, _: Any = None) -> None:
        view = self._view()
        self._header.value, self._body.value = header(view), body(view)
        self.previous.disabled = self.slider.value == self.slider.min
        self.next.disabled = self.slider.value == self.slider.max

    def _go(self, by: int) -> None:
        self.slider.value += by  # it stays within its ends


def example() -> tuple[BlockPool, Sequence, NDArray[np.float32]]:
    """Return a pool, a sequence of 40 tokens in blocks 7, 0 and 12, and a query.

    An earlier request had the same blocks, so the slots beyond token 39 hold its data.
    """
    random = np.random.default_rng(SEEDS[0])
    q, K = random.normal(size=(1, 8)), random.normal(size=(2, 48, 1, 8))
    V = np.random.default_rng(SEEDS).normal(size=(2, 48, 1, 8))
    pool = BlockPool(16, n_layers=1, n_kv_heads=1, head_dim=8)
    pool.allocate_many(16)
    pool.release_many([12, 0, 7])  # the block freed last is handed out first
    earlier, seq = Sequence(pool, "earlier"), Sequence(pool, "req0")
    earlier.extend(K[0][None], V[0][None])
    earlier.free()
    seq.extend(K[1][None, :40], V[1][None, :40])
    return pool, seq, q.astype(np.float32)


def _box(text: str, value: bool) -> widgets.Checkbox:
    return widgets.Checkbox(
        value, description=text, indent=False, layout={"width": "auto"}
    )
