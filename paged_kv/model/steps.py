"""What an engine's step computes, and the record of it."""

from __future__ import annotations

from typing import NamedTuple

from paged_kv.model.adapter import AnySequence
from paged_kv.model.requests import Answer


class Chunk(NamedTuple):
    """The next `n` tokens of an answer: its newest one (decode), or of the prompt.

    After a preemption, tokens generated before count as prompt, but for the newest.
    """

    answer: Answer
    seq: AnySequence
    n: int
    is_decode: bool


class Step(NamedTuple):
    """What one step did.

    Attributes
    ----------
    prefill, decode : int
        Tokens of prompts, and answers that got their next token by decoding.
    running, waiting, used : int
        Answers and blocks after the step.
    preemptions : int
        In this step.
    seconds, attention_seconds : float
        The whole pass through the model, and the part that reads and writes the pool.
    """

    prefill: int
    decode: int
    running: int
    waiting: int
    used: int
    preemptions: int
    seconds: float
    attention_seconds: float
