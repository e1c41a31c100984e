"""Where the model meets the pool: each layer writes to blocks, then reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paged_kv.attention import paged_attention
from paged_kv.model import adapter
from paged_kv.model.adapter import AnyPool, AnySequence
from paged_kv.model.llama import Attend
from paged_kv.pool import BlockPool

Array = NDArray[Any]
#: `paged_attention`, the module's or a student's: pool, seq, layer, q, scale → out.
Attention = Callable[[Any, Any, int, Array, float], Array]

# Keys scored at once in a prefill: all queries of a chunk against that many.
TOKENS_AT_ONCE = 256


class Part(NamedTuple):
    """The tokens of one sequence that a forward pass computes.

    Attributes
    ----------
    seq : Sequence
        The slots of these tokens are reserved.
    start, n : int
        Positions ``start … start + n − 1``.
    """

    seq: AnySequence
    start: int
    n: int


def positions(parts: Sequence[Part]) -> Array:
    """Return the position of each row of a forward pass over `parts`."""
    return np.concatenate([np.arange(p.start, p.start + p.n) for p in parts])


def attend_to(pool: AnyPool, parts: Sequence[Part], attention: Attention) -> Attend:
    """Return the callback for `Llama.forward` over the tokens of `parts`, in order.

    Parameters
    ----------
    attention : callable
        Takes the newest token of a sequence (decode), one query per head. The many
        queries of a prefill go through `causal_attention`, and so does a decode where
        the module's `paged_attention` meets a pool of another class.
    """
    slots = np.concatenate(
        [adapter.slots(pool, p.seq, p.start, p.start + p.n) for p in parts]
    )
    scale = float(adapter.sizes(pool).head_dim ** -0.5)

    fits = attention is not paged_attention or isinstance(pool, BlockPool)

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        adapter.write(pool, layer, slots, k, v)
        out = np.empty(q.shape, np.float32)
        row = 0
        for part in parts:
            rows = slice(row, row + part.n)
            newest = part.n == 1 and len(part.seq) == part.start + 1
            if newest and fits:
                out[row] = attention(pool, part.seq, layer, q[row], scale)
            else:
                out[rows] = causal_attention(pool, part, layer, q[rows], scale)
            row += part.n
        return out

    return attend


class Timed:
    """An `Attend` that adds up the seconds it takes."""

    def __init__(self, attend: Attend, clock: Callable[[], float]) -> None:
        self._attend, self._clock = attend, clock
        self.seconds = 0.0

    def __call__(self, layer: int, q: Array, k: Array, v: Array) -> Array:
        """See `Attend`."""
        start = self._clock()
        out = self._attend(layer, q, k, v)
        self.seconds += self._clock() - start
        return out


def causal_attention(
    pool: AnyPool, part: Part, layer: int, q: Array, scale: float
) -> Array:
    """Attention of n tokens of a sequence, each over all tokens up to itself.

    Parameters
    ----------
    part : Part
        Which tokens; K and V of these and of all before them are written.
    q : ndarray, shape (n, n_heads, head_dim)

    Returns
    -------
    ndarray of float32, shape (n, n_heads, head_dim)

    Notes
    -----
    The same online softmax as `paged_attention`, with a row per query and head.
    """
    seq, start, n = part
    _, _, bs, n_kv_heads, head_dim = adapter.sizes(pool)
    group = q.shape[1] // n_kv_heads
    # (n_kv_heads, n · group, head_dim): one product per KV head for all queries.
    rows = q.reshape(n, n_kv_heads, group, head_dim).swapaxes(0, 1)
    rows = rows.reshape(n_kv_heads, n * group, head_dim) * np.float32(scale)
    position = np.repeat(np.arange(start, start + n), group)[:, None]
    m = np.full((*rows.shape[:2], 1), -np.inf, np.float32)
    denominator, acc = np.zeros_like(m), np.zeros_like(rows)
    end = start + n
    table = np.array(seq.block_table[: -(-end // bs)], np.int64)
    step = max(1, TOKENS_AT_ONCE // bs)
    for first in range(0, len(table), step):
        K, V = adapter.read_blocks(pool, layer, table[first : first + step])
        valid = min(len(K), end - first * bs)
        K, V = (x[:valid].astype(np.float32, copy=False) for x in (K, V))
        S = rows @ K.transpose(1, 2, 0)
        token = np.arange(first * bs, first * bs + valid)
        if token[-1] > start:
            np.copyto(S, np.float32(-np.inf), where=token > position)
        # Token 0 is in the first step and seen by all, so m is finite from there on.
        m_new = np.maximum(m, S.max(axis=-1, keepdims=True))
        alpha = np.exp(m - m_new)
        S -= m_new
        P = np.exp(S, out=S)
        denominator = denominator * alpha + P.sum(axis=-1, keepdims=True)
        acc = acc * alpha + P @ V.swapaxes(0, 1)
        m = m_new
    out = (acc / denominator).reshape(n_kv_heads, n, group, head_dim)
    return np.ascontiguousarray(out.swapaxes(0, 1)).reshape(q.shape)
