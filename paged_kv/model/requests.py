"""What a user asks for, and what an engine keeps of it while it answers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from paged_kv.model.adapter import AnySequence
from paged_kv.model.config import LlamaConfig
from paged_kv.model.sampling import check_temperature
from paged_kv.spec import whole


@dataclass(eq=False)
class Request:
    """A prompt, and how to continue it.

    Parameters
    ----------
    prompt : sequence of int
        Token ids.
    max_tokens : int
        Most tokens to generate, per answer.
    temperature : float
        0 always takes the best token.
    seed : int
        Of the draws; each answer has its own.
    n : int
        Answers wanted. They share the prompt's blocks.
    stop : collection of int
        Ids that end an answer; they are not part of it.

    Attributes
    ----------
    answers : list of Answer
    number : int
        Set by the engine: earlier requests come first.
    submitted_at : float
        The engine's clock, in seconds.
    """

    prompt: Sequence[int]
    max_tokens: int = 64
    temperature: float = 0.0
    seed: int = 0
    n: int = 1
    stop: Collection[int] = ()
    number: int = field(default=-1, init=False)
    submitted_at: float = field(default=math.nan, init=False)

    def __post_init__(self) -> None:
        self.prompt = [whole("a token id", token, 0) for token in self.prompt]
        self.max_tokens = whole("max_tokens", self.max_tokens, 1)
        self.temperature = check_temperature(self.temperature)
        self.n = whole("n", self.n, 1)
        self.stop = frozenset(self.stop)
        self.answers = [Answer(self, i) for i in range(self.n)]
        self.answers[0].siblings = self.answers[1:]

    @property
    def most_cached(self) -> int:
        """Tokens whose K and V one answer may need at the same time.

        The last generated token is never fed back, so its K and V are not computed.
        """
        return len(self.prompt) + self.max_tokens - 1

    @property
    def done(self) -> bool:
        """Whether all answers are complete."""
        return all(answer.finish_reason for answer in self.answers)

    def check(self, config: LlamaConfig) -> None:
        """Raise ValueError for what the model cannot compute."""
        if not len(self.prompt):
            raise ValueError("the prompt is empty")
        if (largest := max(self.prompt)) >= config.vocab_size:
            raise ValueError(f"token id {largest} is outside 0…{config.vocab_size - 1}")
        if self.most_cached > config.context:
            raise ValueError(
                f"{len(self.prompt)} prompt tokens and max_tokens {self.max_tokens} go "
                f"beyond the model's context of {config.context}"
            )


@dataclass(eq=False)
class Answer:
    """One continuation of a request's prompt: the unit that an engine schedules.

    Attributes
    ----------
    tokens : list of int
        Generated so far.
    finish_reason : str
        "stop" or "length" when complete, else empty.
    seq : Sequence or None
        Its blocks while it runs.
    computed : int
        Tokens of the prompt and the answer whose K and V are written.
    n_cached : int
        Tokens of the prompt that were found ready when it was last admitted.
    siblings : list of Answer
        Answers to the same prompt, to be forked off when the prompt is computed.
    preemptions : int
        How often it lost its blocks and had to be computed anew.
    first_token_at, finished_at : float
        The engine's clock, in seconds; NaN until then.
    """

    request: Request
    index: int
    tokens: list[int] = field(default_factory=list)
    finish_reason: str = ""
    seq: AnySequence | None = None
    computed: int = 0
    n_cached: int = 0
    siblings: list[Answer] = field(default_factory=list)
    preemptions: int = 0
    first_token_at: float = math.nan
    finished_at: float = math.nan

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.request.seed, self.index])

    def __len__(self) -> int:
        """Tokens known: the prompt's and those generated."""
        return len(self.request.prompt) + len(self.tokens)

    @property
    def name(self) -> str:
        """Name for its sequence: ``req3``, or ``req3.1`` where there are several."""
        index = f".{self.index}" if self.request.n > 1 else ""
        return f"req{self.request.number}{index}"

    @property
    def decoding(self) -> bool:
        """Whether only the newest of its generated tokens is left to compute."""
        left = len(self) - self.computed
        return self.seq is not None and bool(self.tokens) and left == 1

    def add(self, token: int, now: float) -> bool:
        """Take the next token; return whether it is part of the answer.

        Until then K and V of the last known token count as not computed: whatever
        interrupts a step, the next one computes them again.
        """
        is_part = token not in self.request.stop
        self.computed = len(self)
        if is_part:
            self.tokens.append(token)
            if len(self.tokens) == 1:
                self.first_token_at = now
            if len(self.tokens) == self.request.max_tokens:
                self.finish_reason = "length"
        else:
            self.finish_reason = "stop"
        if self.finish_reason:
            self.finished_at = now
        return is_part

    def known(self, start: int, stop: int) -> list[int]:
        """Return the known tokens at positions ``start … stop − 1``."""
        n = len(self.request.prompt)
        if start >= n:
            return self.tokens[start - n : stop - n]
        return [*self.request.prompt[start:stop], *self.tokens[: max(0, stop - n)]]

    def __repr__(self) -> str:
        state = self.finish_reason or ("running" if self.seq is not None else "waiting")
        return f"Answer({self.name}, {state}, tokens={len(self.tokens)})"
