"""What every widget shares: core ipywidgets, and a still picture where none can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import ipywidgets as widgets

from paged_kv.messages import tr
from paged_kv.widgets.page import Picture, root_classes, style


class StoredWidget(widgets.VBox):  # type: ignore[misc]
    """A widget that a stored notebook, and a front-end without widgets, shows too.

    A display of it carries the still picture as HTML and as text beside the widget: the
    notebook build drops the widget (its model would be gone), the picture stays.

    Parameters
    ----------
    children : sequence of Widget
    *sheets : str
        Style sheets besides ``base.css``.
    """

    def __init__(self, children: Sequence[widgets.Widget], *sheets: str) -> None:
        # The script takes these words for the buttons that ipywidgets leaves nameless.
        words = (
            f'<i hidden data-play="{escape(tr("Play or pause"))}" '
            f'data-stop="{escape(tr("Back to the first step"))}"></i>'
        )
        frame = widgets.HTML(style(*sheets) + words)
        super().__init__([frame, *children])
        for name in root_classes(*sheets):
            self.add_class(name)

    def picture(self) -> Picture:
        """Return the still picture of what the widget shows now."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        still = self.picture()
        return {**bundle, "text/plain": repr(still), "text/html": still._repr_html_()}


def button(text: str, tooltip: str, action: Callable[[], object]) -> widgets.Button:
    """Return a button that calls `action` when it is pressed."""
    made = widgets.Button(description=text, tooltip=tooltip)
    if len(text) > 1:
        made.add_class("text")
    made.on_click(lambda _: action())
    return made


#: Style of a labelled field: as wide as its label needs.
LABELLED = {"description_width": "initial"}
