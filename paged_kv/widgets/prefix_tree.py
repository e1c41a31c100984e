"""A radix tree to play with: ask, keep requests running, evict, and watch it change."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import ipywidgets as widgets

from paged_kv.allocator import OutOfBlocks
from paged_kv.messages import tr, trn
from paged_kv.pool import BlockPool
from paged_kv.radix_cache import RadixCache
from paged_kv.sequence import Sequence
from paged_kv.widgets.page import Picture, page, title
from paged_kv.widgets.stored import LABELLED, StoredWidget, button

SHEET = "prefix_tree.css"


class PrefixTree(StoredWidget):
    """Prompts of words, a tree with a word per page, and a pool that is soon full.

    Parameters
    ----------
    prompts : iterable of str
        Prompts to choose from; others can be typed.
    asked : int
        How many of them are asked at the start.
    num_blocks : int
        Words that the pool has room for.
    """

    def __init__(
        self, prompts: Iterable[str], asked: int = 0, num_blocks: int = 24
    ) -> None:
        options = list(prompts)
        self._num_blocks = num_blocks
        self._view = widgets.HTML()
        self.prompt = widgets.Combobox(
            value=options[0] if options else "",
            options=options,
            description=tr("prompt"),
            style=LABELLED,
            placeholder=tr("Prompt: words with spaces between them"),
        )
        self.prompt.add_class("pt-prompt")
        self.prompt.on_msg(self._on_field)
        controls = widgets.HBox(
            [
                self.prompt,
                button(tr("ask"), tr("Serve the prompt to its end"), self.ask),
                button(
                    tr("ask and keep running"),
                    tr("Serve the prompt and do not finish: its path stays locked"),
                    self.ask_and_keep,
                ),
                button(tr("finish all"), tr("Unlock everything"), self.finish_all),
                button(tr("evict a leaf"), tr("Evict one leaf"), self.evict),
                button(tr("start over"), tr("Empty the tree"), self.restart),
            ]
        )
        controls.add_class("controls")
        super().__init__([widgets.HTML(title(_name())), controls, self._view], SHEET)
        self.restart()
        for text in options[:asked]:
            self._ask(text, keep=False)

    def ask(self) -> None:
        """Serve the prompt to its end."""
        self._ask(self.prompt.value, keep=False)

    def ask_and_keep(self) -> None:
        """Serve the prompt, and leave it running."""
        self._ask(self.prompt.value, keep=True)

    def finish_all(self) -> None:
        """Free all running requests; their words stay in the tree."""
        n = len(self._running)
        while self._running:
            self._running.pop().free()
        self._say(trn("{n} request is finished.", "{n} requests are finished.", n))

    def evict(self) -> None:
        """Evict the leaf that is least recently used, if nobody locked it."""
        freed = self.cache.evict(1)
        if not freed:
            self._say(tr("Every leaf is locked, or there is none."))
            return
        self._say(
            trn(
                "{n} word of the oldest leaf is evicted.",
                "{n} words of the oldest leaf are evicted.",
                freed,
            )
        )

    def restart(self) -> None:
        """Begin again with an empty tree."""
        self.cache = RadixCache(BlockPool(self._num_blocks, 1, 1, 1, block_size=1))
        self._words: dict[str, int] = {}
        self._running: list[Sequence] = []
        self._say(tr("The tree is empty."))

    def picture(self) -> Picture:
        """Return the still picture of what the widget shows now."""
        html, text = (
            self._view.value,
            f"{self._said}\n{self.cache.render(decode=self._decode)}",
        )
        whole = page(title(_name()) + html, _name(), SHEET)
        return Picture(lambda: whole, lambda: text)

    def _on_field(self, _: object, content: dict[str, object], __: object) -> None:
        """Ask when Enter is pressed in the prompt's field."""
        # Text.on_submit is deprecated, and a change of value, in its place, does not
        # come when the same prompt is asked again.
        if content.get("event") == "submit":
            self.ask()

    def _ask(self, text: str, keep: bool) -> None:
        words = text.split()
        if not words:
            self._say(tr("The prompt is empty."))
            return
        if len(words) > self._num_blocks:
            self._say(tr("The prompt is longer than the whole pool."))
            return
        tokens = [self._words.setdefault(word, len(self._words)) for word in words]
        evicted = self.cache.stats.evictions
        try:
            seq, n_cached = self.cache.admit(text, tokens)
        except OutOfBlocks:
            self._say(tr("There is no room, even with every unlocked leaf evicted."))
            return
        self.cache.publish(seq, tokens)
        if keep:
            self._running.append(seq)
        else:
            seq.free()
        said = trn(
            "{hits} of {n} word was found in the tree.",
            "{hits} of {n} words were found in the tree.",
            len(words),
            hits=n_cached,
        )
        if evicted := self.cache.stats.evictions - evicted:
            said += " " + trn(
                "{n} word was evicted to make room.",
                "{n} words were evicted to make room.",
                evicted,
            )
        self._say(tr("“{text}”. {said}", text=text, said=said))

    def _say(self, text: str) -> None:
        pool = self.cache.pool
        room = tr("Pool: {used} of {n} in use.", used=pool.used, n=pool.num_blocks)
        self._said = f"{text} {room}"
        self._view.value = (
            f'<p class="pt" aria-live="polite">{escape(self._said)}</p>'
            + self.cache.render(html=True, decode=self._decode)
        )

    def _decode(self, tokens: list[int]) -> str:
        words = list(self._words)
        return " ".join(words[token] for token in tokens)


def _name() -> str:
    return tr("Radix tree")
