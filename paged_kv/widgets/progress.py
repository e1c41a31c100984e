"""A bar for what takes longer than two seconds, where somebody is watching."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

import ipywidgets as widgets
from IPython.display import display

T = TypeVar("T")


def progress(steps: Iterable[T], total: int) -> Iterator[T]:
    """Pass `steps` on, and show how many of `total` are done.

    Only a notebook server's kernel shows a bar (the server names the notebook in
    ``JPY_SESSION_NAME``): a build or a test would store it. It goes when all is done.
    """
    if "JPY_SESSION_NAME" not in os.environ:
        yield from steps
        return
    bar = widgets.IntProgress(0, 0, total)
    display(bar)  # type: ignore[no-untyped-call]
    try:
        for done, step in enumerate(steps, start=1):
            yield step
            bar.value = min(done, total)
    finally:
        bar.close()
