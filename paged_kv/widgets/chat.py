"""A chat with the model, and the blocks that it fills while it answers."""

from __future__ import annotations

import time
from html import escape
from typing import Any

import ipywidgets as widgets

from paged_kv.attention import paged_attention
from paged_kv.messages import tr
from paged_kv.model import Chat, Llama, Tokenizer
from paged_kv.model.cache import Attention
from paged_kv.pool import BlockPool, OutOfBlocks
from paged_kv.sequence import Sequence
from paged_kv.widgets.explorer import BlockExplorer
from paged_kv.widgets.page import Picture, page, title
from paged_kv.widgets.record import record
from paged_kv.widgets.render import draw
from paged_kv.widgets.stored import StoredWidget, button

_REDRAW_SECONDS = 0.2  # the explorer, while tokens stream


class ChatWidget(StoredWidget):
    """Ask, read the answer as it comes, and watch the pool below it.

    Parameters
    ----------
    model : Llama
    tokenizer : Tokenizer
    num_blocks : int
        Blocks of 16 tokens in the pool; a long conversation fills them.
    max_tokens : int
        Most tokens of an answer.
    pool_type, sequence_type, attention
        The module's, or a student's.
    """

    def __init__(
        self,
        model: Llama,
        tokenizer: Tokenizer,
        num_blocks: int = 32,
        max_tokens: int = 64,
        pool_type: Any = BlockPool,
        sequence_type: Any = Sequence,
        attention: Attention = paged_attention,
    ) -> None:
        c = model.config
        self._pool = pool_type(num_blocks, c.n_layers, c.n_kv_heads, c.head_dim)
        self._options: dict[str, Any] = {
            "max_tokens": max_tokens,
            "sequence_type": sequence_type,
            "attention": attention,
        }
        self._model, self._tokenizer = model, tokenizer
        self._spec = c.kv_spec()
        self._said, self._below = widgets.HTML(), widgets.VBox()
        # Sends its value on Enter only.
        self._question = widgets.Text(
            placeholder=tr("Ask in English"), continuous_update=False
        )
        self._question.add_class("ask")
        self._ask_button = button(tr("ask"), tr("Send the question"), self._pressed)
        over = button(
            tr("new chat"), tr("Forget all and free the blocks"), self.restart
        )
        self._question.observe(lambda _: self._pressed(), "value")
        controls = widgets.HBox([self._question, self._ask_button, over])
        controls.add_class("controls")
        self._start()
        children = [widgets.HTML(title(tr("Chat"))), self._said, controls, self._below]
        super().__init__(children, "chat.css")
        self._draw()

    def ask(self, question: str) -> None:
        """Ask, and stream the answer into the widget."""
        self._note = ""
        self._recording.split()
        last = time.monotonic()
        try:
            for answer in self._chat.ask(question):
                self._answer = answer
                self._draw()
                if time.monotonic() - last > _REDRAW_SECONDS:
                    self._explorer.show(len(self._recording) - 1)
                    last = time.monotonic()
        except (OutOfBlocks, ValueError) as error:
            self._note = str(error)
        self._answer = ""
        self._draw()
        self._explorer.show(len(self._recording) - 1)

    def restart(self) -> None:
        """Free the blocks and begin a new chat."""
        self._chat.close()
        self._recording.stop()
        self._start()
        self._draw()

    def picture(self) -> Picture:
        """Return the conversation and the pool, standing still."""
        pool = draw(self._recording, model=self._spec)
        said = page(title(tr("Chat")) + self._html(), tr("Chat"), "chat.css")
        lines = [f"{who}: {text}" for who, text, _ in self._turns()]
        return Picture(
            lambda: said + pool._repr_html_(),
            lambda: "\n".join([*lines, "", repr(pool)]),
        )

    def _start(self) -> None:
        self._chat = Chat(self._model, self._tokenizer, self._pool, **self._options)
        self._recording = record(self._pool, self._chat.seq)
        self._explorer = BlockExplorer(self._recording, model=self._spec)
        self._below.children = [self._explorer]
        self._answer = self._note = ""

    def _pressed(self) -> None:
        question = self._question.value.strip()
        if question:
            self._question.value = ""
            self._ask_button.disabled = True
            try:
                self.ask(question)
            finally:
                self._ask_button.disabled = False

    def _draw(self) -> None:
        self._said.value = self._html()

    def _turns(self) -> list[tuple[str, str, str]]:
        """Return (who, what, class) of all that was said so far."""
        names = {"user": (tr("you"), "me"), "assistant": (tr("model"), "")}
        turns = []
        for role, text in self._chat.messages:
            who, kind = names[role]
            turns.append((who, text, kind))
        if self._answer:
            turns.append((tr("model"), self._answer, ""))
        if self._note:
            turns.append((tr("pool"), self._note, ""))
        return turns

    def _html(self) -> str:
        items = "".join(
            f'<li class="{kind}"><b>{escape(who)}: </b>{escape(text)}</li>'
            for who, text, kind in self._turns()
        )
        return f'<ol class="said">{items}</ol>'
