"""Numbers for the lesson: speed by batch, and what a storage does to predictions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paged_kv.attention import paged_attention
from paged_kv.model.cache import Part, Timed, attend_to, positions
from paged_kv.model.generation import CHUNK
from paged_kv.model.llama import Attend, Llama
from paged_kv.pool import BlockPool
from paged_kv.quantization.ladder import Scheme
from paged_kv.sequence import Sequence as PagedSequence

Array = NDArray[Any]
Watch = Callable[[int, Array, Array, Array], None]


class StepTime(NamedTuple):
    """Seconds of a decode step: in the pool, and in everything else."""

    weights: float
    attention: float

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return self.weights + self.attention


def decode_time(
    model: Llama,
    batch: int,
    context: int,
    steps: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> StepTime:
    """Time decode steps of `batch` sequences of `context` tokens and a few more.

    What the blocks hold does not matter to the time, so they are filled with random
    numbers instead of computing prompts.

    Parameters
    ----------
    steps : int
        Steps to take the quickest of, after one that warms up: whatever else the
        machine does makes a step slower, never quicker.
    """
    c = model.config
    size = 16
    blocks = -(-(context + steps + 1) // size)
    pool = BlockPool(batch * blocks, c.n_layers, c.n_kv_heads, c.head_dim, size)
    rng = np.random.default_rng(0)
    for store in (pool.k, pool.v):
        store[:] = rng.standard_normal(store.shape[1:], np.float32)
    sequences = [PagedSequence(pool, i) for i in range(batch)]
    for seq in sequences:
        seq.reserve(context)
    tokens = rng.integers(0, c.vocab_size, size=batch)
    times = []
    for _ in range(steps + 1):
        start = clock()
        for seq in sequences:
            seq.reserve(1)
        parts = [Part(seq, len(seq) - 1, 1) for seq in sequences]
        attend = Timed(attend_to(pool, parts, paged_attention), clock)
        model.logits(model.forward(tokens, positions(parts), attend))
        times.append((clock() - start, attend.seconds))
    total, attention = min(times[1:])
    return StepTime(total - attention, attention)


def log_probabilities(
    model: Llama,
    tokens: Sequence[int],
    pool: BlockPool,
    chunk: int = CHUNK,
    watch: Watch | None = None,
) -> Array:
    """Predict each token of a text from those before it, with K and V in `pool`.

    Parameters
    ----------
    watch : callable, optional
        Is shown each layer's number, q, k and v, chunk by chunk.

    Returns
    -------
    ndarray of float32, shape (T − 1, vocab_size)
        Logs of the probabilities of every token at positions 1 … T − 1.

    Raises
    ------
    OutOfBlocks
        When the pool cannot take the text; its blocks are given back.
    """
    seq = PagedSequence(pool, "text")
    rows = np.empty((len(tokens) - 1, model.config.vocab_size), np.float32)
    try:
        for start in range(0, len(rows), chunk):
            part = tokens[start : min(start + chunk, len(rows))]
            seq.reserve(len(part))
            parts = [Part(seq, start, len(part))]
            attend = _watched(attend_to(pool, parts, paged_attention), watch)
            hidden = model.forward(np.array(part), positions(parts), attend)
            rows[start : start + len(part)] = _log_softmax(model.logits(hidden))
    finally:
        seq.free()
    return rows


def decoded_log_probabilities(
    model: Llama, tokens: Sequence[int], scheme: Scheme
) -> Array:
    """As `log_probabilities`, as if the text were decoded token by token.

    Then every query reads the last, unfilled block exactly, and the scheme's window.
    In a prefill all queries of a chunk read the same codes. To get the former at the
    speed of the latter, this keeps K and V both exact and as they are read back,
    without a pool; without a window the result is that of a `QuantizedBlockPool`.
    """
    n = len(tokens) - 1
    coded = np.array([scheme.coded_tokens(length) for length in range(1, n + 1)])
    whole = replace(scheme, window=0)

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        read_k, read_v = whole.read_back(k, v)
        out = np.empty_like(q)
        for far in np.unique(coded):  # queries that read the same tokens as codes
            rows = np.flatnonzero(coded == far)
            stop = rows[-1] + 1
            K = np.concatenate([read_k[:far], k[far:stop]])
            V = np.concatenate([read_v[:far], v[far:stop]])
            out[rows] = _causal(q[rows], K, V)
        return out

    hidden = model.forward(np.array(tokens[:n]), np.arange(n), attend)
    return _log_softmax(model.logits(hidden))


def _causal(q: Array, K: Array, V: Array) -> Array:
    """Attention of the last len(q) tokens, each over all up to itself."""
    n, n_heads, head_dim = q.shape
    n_kv_heads = K.shape[1]
    rows = (q * np.float32(head_dim**-0.5)).reshape(n, n_kv_heads, -1, head_dim)
    S = rows.transpose(1, 2, 0, 3) @ K.transpose(1, 2, 0)[:, None]
    S = np.where(np.tri(n, len(K), len(K) - n, dtype=bool), S, np.float32(-np.inf))
    P = np.exp(S - S.max(axis=-1, keepdims=True))
    P /= P.sum(axis=-1, keepdims=True)
    out: Array = P @ V.swapaxes(0, 1)[:, None]
    return out.transpose(2, 0, 1, 3).reshape(n, n_heads, head_dim)


def _watched(attend: Attend, watch: Watch | None) -> Attend:
    if watch is None:
        return attend

    def watched(layer: int, q: Array, k: Array, v: Array) -> Array:
        watch(layer, q, k, v)
        return attend(layer, q, k, v)

    return watched


def _log_softmax(logits: Array) -> Array:
    """Turn scores into logs of probabilities, in place: row by row stays in cache."""
    for row in logits:
        row -= row.max()
        row -= np.log(np.exp(row).sum())
    return logits


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
    pairs = zip(exact, other, strict=True)
    divergence = np.array([np.exp(p) @ (p - q) for p, q in pairs])
    same = exact.argmax(axis=-1) == other.argmax(axis=-1)
    return Quality(
        perplexity=float(np.exp(-picked.mean(dtype=np.float64))),
        kl=max(0.0, float(divergence.mean(dtype=np.float64))),
        top1=float(same.mean()),
    )
