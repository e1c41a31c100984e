"""A conversation over one sequence: what was said stays in its blocks."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from paged_kv.attention import paged_attention
from paged_kv.model import adapter
from paged_kv.model.adapter import AnyPool
from paged_kv.model.cache import Attention
from paged_kv.model.generation import extend
from paged_kv.model.llama import Llama
from paged_kv.model.sampling import check_temperature, pick
from paged_kv.model.tokenizer import Message, Tokenizer
from paged_kv.pool import OutOfBlocks
from paged_kv.sequence import Sequence
from paged_kv.spec import whole


class Chat:
    """One person and the model, turn by turn.

    Each turn computes K and V of the new question and its answer alone; those of
    everything before are in the blocks.

    Parameters
    ----------
    model : Llama
    tokenizer : Tokenizer
    pool : BlockPool
        The module's, or a student's; `sequence_type` and `attention` as well.
    system : str, optional
        System message; the model's own by default.
    max_tokens : int
        Most tokens of an answer.
    temperature, seed
        As for `generate`.

    Attributes
    ----------
    messages : list of Message
        What was said, without the system message.
    seq : Sequence
    """

    def __init__(
        self,
        model: Llama,
        tokenizer: Tokenizer,
        pool: AnyPool,
        *,
        system: str | None = None,
        max_tokens: int = 64,
        temperature: float = 0.0,
        seed: int = 0,
        sequence_type: Any = Sequence,
        attention: Attention = paged_attention,
    ) -> None:
        self.model, self.tokenizer, self.pool = model, tokenizer, pool
        self.messages: list[Message] = []
        adapter.require_interface(pool, sequence_type)
        self.seq = sequence_type(pool, "chat")
        self._system = [] if system is None else [Message("system", system)]
        self._max_tokens = whole("max_tokens", max_tokens, 1)
        self._temperature = check_temperature(temperature)
        self._rng = np.random.default_rng(seed)
        self._attention = attention
        self._computed = 0  # tokens with K and V; fewer than `seq` has when interrupted
        self._pending: list[int] = []  # said after those
        self._stream: Generator[str, None, None] | None = None

    def ask(self, question: str) -> Iterator[str]:
        """Stream the answer: yield its text so far, after each token.

        An answer that is still being given ends here, with what was read of it.

        Raises
        ------
        OutOfBlocks
            When the pool could not hold the longest answer; nothing is said then.
        ValueError
            When the conversation outgrows the model's context.
        """
        if self._stream is not None:
            self._stream.close()
        turn = Message("user", question)
        if self.messages:
            new = self._pending + self.tokenizer.follow_up(question)
        else:
            new = self.tokenizer.chat([*self._system, turn])
        longest = self._computed + len(new) + self._max_tokens - 1
        context = self.model.config.context
        if longest > context:
            raise ValueError(f"the conversation goes beyond {context} tokens")
        missing = longest - len(self.seq)
        needed = adapter.blocks_needed(self.pool, self.seq, missing)
        if needed > self.pool.free:
            raise OutOfBlocks(
                f"this turn may need {needed} blocks, {self.pool.free} are free: "
                "start a new chat"
            )
        self._stream = self._answer(turn, new)
        return self._stream

    def close(self) -> None:
        """Free the blocks; the conversation cannot go on."""
        self.seq.free()

    def _answer(self, turn: Message, new: list[int]) -> Generator[str, None, None]:
        tokens: list[int] = []
        text = ""
        self.messages.append(turn)
        try:
            for _ in range(self._max_tokens):
                logits = extend(
                    self.model,
                    self.pool,
                    self.seq,
                    new,
                    self._attention,
                    self._computed,
                )
                token = pick(logits, self._temperature, self._rng)
                self._computed += len(new)
                new = [] if token == self.tokenizer.end else [token]
                if not new:
                    return
                tokens.append(token)
                text = self.tokenizer.decode(tokens)
                yield text
        finally:  # also when the reader has seen enough
            self._pending = new
            self.messages.append(Message("assistant", text))
