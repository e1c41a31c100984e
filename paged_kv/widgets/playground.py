"""A small pool to play with: append, fork, free, and see what happens to the blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import Any

import ipywidgets as widgets
import numpy as np

from paged_kv.messages import tr
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence as PagedSequence
from paged_kv.widgets.explorer import BlockExplorer
from paged_kv.widgets.record import Recording, record
from paged_kv.widgets.stored import LABELLED, button


class Playground(BlockExplorer):
    """Buttons that append to, fork and free sequences on a small pool.

    Every press is a step of the history. What is impossible explains itself and changes
    nothing, if the classes are right.

    Parameters
    ----------
    pool_class, sequence_class : type
        The student's classes or ours.
    num_blocks : int
        Blocks in the pool.
    block_size : int
        Slots in a block; few, so that a block is full soon.
    """

    def __init__(
        self,
        pool_class: type = BlockPool,
        sequence_class: type = PagedSequence,
        num_blocks: int = 16,
        block_size: int = 4,
    ) -> None:
        self._pool_class = pool_class
        self._sequence_class = sequence_class
        self._size = num_blocks, block_size
        self._token = np.zeros((1, 1, 1), np.float32)
        self.sequence = widgets.Dropdown(description=tr("sequence"), style=LABELLED)
        self.tokens = widgets.BoundedIntText(
            1,
            1,
            num_blocks * block_size,
            description=tr("tokens to append"),
            style=LABELLED,
        )
        super().__init__(self._start())
        self._show_names()

    def name(self) -> str:
        """Return the title."""
        return tr("Playground")

    def tools(self) -> Sequence[widgets.Widget]:
        """Return the row of buttons."""
        row = widgets.HBox(
            [
                self.sequence,
                self.tokens,
                button("append", tr("Append tokens to the sequence"), self.append),
                button("fork", tr("Fork the sequence"), self.fork),
                button("free", tr("Free the sequence"), self.free),
                button(tr("new sequence"), tr("Start another sequence"), self.add),
                button(tr("start over"), tr("Empty the pool"), self.restart),
            ]
        )
        row.add_class("controls")
        return (row,)

    def append(self) -> None:
        """Append the chosen number of tokens to the chosen sequence."""
        seq = self._chosen()
        if seq is not None:
            self._do("append", seq, lambda: self._append(seq, self.tokens.value))

    def fork(self) -> None:
        """Fork the chosen sequence; the child is chosen then."""
        seq = self._chosen()
        if seq is not None:
            name = self._next_name()
            child = self._do("fork", seq, lambda: seq.fork(name))
            if child is not None:
                self._live[name] = child
                self._show_names(name)

    def free(self) -> None:
        """Free the chosen sequence."""
        seq, name = self._chosen(), self.sequence.value
        # free returns None: wrapped, so that None means failure here too
        if seq is not None and self._do("free", seq, lambda: (seq.free(),)):
            del self._live[name]
            self._show_names()

    def add(self) -> None:
        """Start another, empty sequence."""
        name = self._next_name()

        def start() -> Any:
            seq = self._sequence_class(self._pool, name)
            self._recording.follow(seq)
            self._recording.note("new", seq)
            return seq

        seq = self._do("Sequence", None, start)
        if seq is not None:
            self._live[name] = seq
            self._show_names(name)

    def restart(self) -> None:
        """Begin again with an empty pool."""
        self._recording.stop()
        self.history = self._start()
        self._show_names()
        self.show(0)

    def _start(self) -> Recording:
        num_blocks, block_size = self._size
        self._pool = self._pool_class(num_blocks, 1, 1, 1, block_size=block_size)
        self._names = 0
        name = self._next_name()
        seq = self._sequence_class(self._pool, name)
        self._live = {name: seq}
        self._recording = record(self._pool, seq)
        return self._recording

    def _append(self, seq: Any, count: int) -> bool:
        for _ in range(count):
            seq.append(self._token, self._token)
        return True

    def _do(self, kind: str, seq: Any, action: Callable[[], Any]) -> Any:
        """Do one thing as one step and show it; return None when it failed."""
        self._recording.split()
        before = len(self._recording)
        result = None
        try:
            result = action()
        except Exception as error:
            # A method that does not exist raises before the recording sees a call.
            if len(self._recording) == before:
                self._recording.note(kind, seq, error)
        self.show(len(self._recording) - 1)
        return result

    def _chosen(self) -> Any:
        return self._live.get(self.sequence.value)

    def _next_name(self) -> str:
        """Return a, b, … z, then a1, b1 and so on."""
        letter, turn = self._names % 26, self._names // 26
        self._names += 1
        return ascii_lowercase[letter] + (str(turn) if turn else "")

    def _show_names(self, chosen: str | None = None) -> None:
        self.sequence.options = list(self._live)
        self.sequence.value = chosen or next(iter(self._live), None)
