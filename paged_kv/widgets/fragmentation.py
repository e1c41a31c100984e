"""The fragmentation view: where memory goes in several systems, step by step."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from paged_kv.messages import tr
from paged_kv.serving.workload import Workload
from paged_kv.spec import whole
from paged_kv.widgets.fragmentation_run import (
    external_steps,
    run_all,
    small_workload,
)
from paged_kv.widgets.fragmentation_view import (
    SHEET,
    body,
    last_step,
    lead,
    name,
    plain,
)
from paged_kv.widgets.page import Picture, page, title
from paged_kv.widgets.stored import StoredWidget, button

_PLAY_MILLISECONDS = 250


class FragmentationView(StoredWidget):
    """Reserved slots, buddy chunks and blocks side by side, under the same requests.

    The systems are those of the simulator; one step gives every running request one
    token.

    Parameters
    ----------
    workload : Workload, optional
        Who asks when, in steps; 48 short requests when not given.
    num_slots : int
        Slots of each system, 16 … 4096.
    max_len : int
        What Orca (Max) reserves; no request may be longer.
    block_size : int
        Slots of a block. The requests are a tenth of real ones, and so are the blocks.
    oracle : bool
        Whether to show Orca (Oracle) as well.
    step : int, optional
        Where to start; when not given, where paging holds most tokens while another
        system is stopped by external fragmentation.

    Raises
    ------
    ValueError
        For sizes out of range, a step after the last one, or a request that some
        system can never hold.
    """

    def __init__(
        self,
        workload: Workload | None = None,
        num_slots: int = 1024,
        max_len: int = 256,
        block_size: int = 8,
        *,
        oracle: bool = False,
        step: int | None = None,
    ) -> None:
        if whole("num_slots", num_slots, 16) > 4096:
            raise ValueError(f"num_slots must be at most 4096 to see them: {num_slots}")
        if workload is None:
            workload = small_workload().no_longer_than(max_len)
        self.runs = run_all(workload, num_slots, max_len, block_size, oracle)
        last = last_step(self.runs)
        self._external = external_steps(self.runs)
        if step is None:
            step = max(self._external or range(last), key=self._fullest)
        if whole("step", step, 0) > last:
            raise ValueError(f"step {step} does not exist: the last one is {last}")
        self._body = widgets.HTML()
        self.slider = widgets.IntSlider(
            step,
            0,
            last,
            readout=False,
            tooltip=tr("Step"),
            layout={"flex": "1 1 auto", "width": "auto"},
        )
        self.play = widgets.Play(
            value=step, max=last, interval=_PLAY_MILLISECONDS, show_repeat=False
        )
        # In the browser alone: playing needs no answer from the kernel.
        widgets.jslink((self.play, "value"), (self.slider, "value"))
        self.previous = button("‹", tr("Previous step"), lambda: self._go(-1))
        self.next = button("›", tr("Next step"), lambda: self._go(1))
        self.next_external = button(
            tr("next external fragmentation"),
            tr("Go to the next step at which free slots are in too small pieces"),
            self._go_external,
        )
        controls = widgets.HBox(
            [self.previous, self.next, self.play, self.slider, self.next_external]
        )
        controls.add_class("controls")
        head = widgets.HTML(title(name(), lead(self.runs)))
        super().__init__([head, controls, self._body], SHEET)
        self.slider.observe(self._draw, "value")
        self._draw()

    def picture(self) -> Picture:
        """Return the still picture of the current step."""
        runs, step = self.runs, self.slider.value
        return Picture(
            lambda: page(title(name(), lead(runs)) + body(runs, step), name(), SHEET),
            lambda: plain(runs, step),
        )

    def _draw(self, _: Any = None) -> None:
        step = self.slider.value
        self._body.value = body(self.runs, step)
        self.previous.disabled = step == 0
        self.next.disabled = step == self.slider.max
        self.next_external.disabled = not any(s > step for s in self._external)

    def _fullest(self, step: int) -> int:
        return self.runs[-1].at(step).usage.tokens

    def _go(self, by: int) -> None:
        self.slider.value += by  # it stays within its ends

    def _go_external(self) -> None:
        later = (s for s in self._external if s > self.slider.value)
        self.slider.value = next(later, self.slider.value)
