"""The block explorer: a recorded run under a slider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from paged_kv.messages import tr
from paged_kv.spec import PRESETS, KVCacheSpec
from paged_kv.widgets.facts import Facts
from paged_kv.widgets.history import History
from paged_kv.widgets.page import Picture
from paged_kv.widgets.render import (
    SHEET,
    body,
    draw,
    header,
    legend,
    model_spec,
    what,
)
from paged_kv.widgets.stored import LABELLED, StoredWidget, button
from paged_kv.widgets.timeline import timeline

_PLAY_MILLISECONDS = 700


class BlockExplorer(StoredWidget):
    """Walk through a recorded run, step by step.

    Parameters
    ----------
    history : History
        What `record` returned; it may still grow.
    step : int
        The step to start at; the last one by default.
    model : str or KVCacheSpec
        The model for the MiB; a list in the widget changes it.
    lead : str
        One sentence beside the title.

    Raises
    ------
    IndexError
        When the history has no such step.
    ValueError
        For an unknown model.

    Examples
    --------
    >>> history = record(pool, base)
    >>> request = base.fork("req0")
    >>> BlockExplorer(history)
    """

    def __init__(
        self,
        history: History,
        step: int = -1,
        model: str | KVCacheSpec = "llama-3-8b",
        lead: str = "",
    ) -> None:
        self.history = history
        self._lead = lead
        index = history.at(step).index
        self._header, self._body = widgets.HTML(), widgets.HTML()
        last = len(history) - 1
        self.slider = widgets.IntSlider(
            index, 0, last, readout=False, layout={"flex": "1 1 auto", "width": "auto"}
        )
        self.play = widgets.Play(
            value=index, max=last, interval=_PLAY_MILLISECONDS, show_repeat=False
        )
        # One way only: linked both ways, each move of the slider would also go to the
        # kernel as a move of the player, and wait for it.
        widgets.jsdlink((self.play, "value"), (self.slider, "value"))
        self.previous = button("‹", tr("Previous step"), self._go_back)
        self.next = button("›", tr("Next step"), self._go_on)
        self.next_copy = button(
            tr("next copy-on-write"), tr("Go to the next copy-on-write"), self._go_copy
        )
        self.model = _model_list(model_spec(model))
        controls = widgets.HBox(
            [
                self.previous,
                self.next,
                self.play,
                self.slider,
                self.next_copy,
                self.model,
            ]
        )
        controls.add_class("controls")
        first = Facts(history.at(index))
        super().__init__(
            [
                self._header,
                *self.tools(),
                controls,
                self._body,
                widgets.HTML(legend(first)),
            ],
            SHEET,
        )
        self.slider.observe(self._changed, "value")
        self.model.observe(self._changed, "value")
        self._draw()

    def tools(self) -> Sequence[widgets.Widget]:
        """Return widgets to stand above the timeline; a playground has some."""
        return ()

    def name(self) -> str:
        """Return the title."""
        return tr("Block explorer")

    def show(self, index: int) -> None:
        """Go to a step, also to one that came after the widget was made."""
        last = len(self.history) - 1
        if self.slider.max != last:
            self.slider.max = self.play.max = last
        if self.slider.value != index:
            self.slider.value = index  # draws
        else:
            self._draw()

    def _draw(self) -> None:
        index = self.slider.value
        facts = Facts(self.history.at(index))
        self._body.value = (
            timeline(self.history, index) + what(facts) + body(facts, steady=True)
        )
        self._header.value = header(facts, self.model.value, self._lead, self.name())
        self.previous.disabled = index == 0
        self.next.disabled = index == len(self.history) - 1
        self.next_copy.disabled = self.history.next_copy(index) is None
        if not self.play.playing:
            self.play.value = index  # to play on from here

    def picture(self) -> Picture:
        """Return the still picture of the current step."""
        return draw(
            self.history,
            step=self.slider.value,
            model=self.model.value,
            lead=self._lead,
            name=self.name(),
        )

    def _changed(self, _: Any) -> None:
        self._draw()

    def _go_back(self) -> None:
        self.show(max(0, self.slider.value - 1))

    def _go_on(self) -> None:
        self.show(min(self.slider.value + 1, len(self.history) - 1))

    def _go_copy(self) -> None:
        found = self.history.next_copy(self.slider.value)
        if found is not None:
            self.show(found)


def _model_list(spec: KVCacheSpec) -> widgets.Dropdown:
    specs = list(PRESETS.values())
    if spec not in specs:
        specs.insert(0, spec)
    options = [(known.name or tr("model"), known) for known in specs]
    return widgets.Dropdown(
        options=options, value=spec, description=tr("MiB of"), style=LABELLED
    )
