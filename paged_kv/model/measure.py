"""Numbers for the lesson: speed by batch, and what a storage does to predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paged_kv.attention import paged_attention
from paged_kv.model.cache import Part, attend_to, positions
from paged_kv.model.engine import Engine
from paged_kv.model.llama import Llama
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence as PagedSequence

Array = NDArray[Any]


class StepTime(NamedTuple):
    """Seconds of a decode step, median: in the pool, and in everything else."""

    weights: float
    attention: float

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return self.weights + self.attention


def decode_time(
    model: Llama, batch: int, context: int, steps: int = 8, **options: Any
) -> StepTime:
    """Time decode steps of `batch` sequences of about `context` tokens.

    Parameters
    ----------
    steps : int
        Steps to take the median of, after one that warms up.
    **options
        Of `Engine`, e.g. another pool or attention.
    """
    blocks = -(-(context + steps + 2) // 16)
    engine = Engine(
        model,
        batch * blocks,
        max_batch=batch,
        token_budget=batch * (context + 1),  # all prompts at once: one full batch
        **options,
    )
    rng = np.random.default_rng(0)
    for _ in range(batch):
        prompt = rng.integers(0, model.config.vocab_size, size=context).tolist()
        engine.submit(prompt, max_tokens=steps + 2)
    engine.run()
    full = [step for step in engine.steps if step.decode == batch and not step.prefill]
    attention = float(np.median([step.attention_seconds for step in full[1:]]))
    seconds = float(np.median([step.seconds for step in full[1:]]))
    return StepTime(seconds - attention, attention)


def log_probabilities(
    model: Llama, tokens: Sequence[int], pool: BlockPool, chunk: int = 256
) -> Array:
    """Predict each token of a text from those before it, with K and V in `pool`.

    Returns
    -------
    ndarray of float32, shape (T − 1, vocab_size)
        Logs of the probabilities of every token at positions 1 … T − 1.
    """
    seq = PagedSequence(pool, "text")
    rows = []
    for start in range(0, len(tokens) - 1, chunk):
        part = tokens[start : min(start + chunk, len(tokens) - 1)]
        seq.reserve(len(part))
        parts = [Part(seq, start, len(part))]
        attend = attend_to(pool, parts, paged_attention)
        hidden = model.forward(np.array(part), positions(parts), attend)
        logits = model.logits(hidden)
        logits -= logits.max(axis=-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        rows.append(logits)
    seq.free()
    return np.concatenate(rows)


@dataclass(frozen=True)
class Quality:
    """What a storage does to a model's predictions.

    Attributes
    ----------
    perplexity : float
        exp of the mean −log probability of the text's tokens.
    kl : float
        Mean Kullback–Leibler divergence from the exact predictions, in nats.
    top1 : float
        Share of positions with the same best token.
    """

    perplexity: float
    kl: float
    top1: float


def compare(exact: Array, other: Array, tokens: Sequence[int]) -> Quality:
    """Compare two results of `log_probabilities` for the same text."""
    targets = np.array(tokens[1:])
    picked = other[np.arange(len(targets)), targets]
    divergence = (np.exp(exact) * (exact - other)).sum(axis=-1)
    same = exact.argmax(axis=-1) == other.argmax(axis=-1)
    return Quality(
        perplexity=float(np.exp(-picked.mean(dtype=np.float64))),
        kl=max(0.0, float(divergence.mean(dtype=np.float64))),
        top1=float(same.mean()),
    )
