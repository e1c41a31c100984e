"""Where the model meets the pool: `Attend` callbacks that write to blocks and read them.

Both write k and v into slots reserved before (`Sequence.reserve`), so that each layer's
attention already sees the new tokens, then walk the block table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.attention import paged_attention
from paged_kv.model.llama import Attend
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence as PagedSequence

Array = NDArray[Any]
Attention = Callable[[BlockPool, PagedSequence, int, Array, float], Array]

# Keys scored at once in a prefill: all queries of a chunk against that many.
TOKENS_AT_ONCE = 256


def prefill(pool: BlockPool, seq: PagedSequence, slots: Array) -> Attend:
    """Return the callback for a chunk: the last ``len(slots)`` tokens of `seq`."""

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        pool.write(layer, slots, k, v)
        return causal_attention(pool, seq, layer, q, pool.head_dim**-0.5)

    return attend


def decode(
    pool: BlockPool,
    sequences: Sequence[PagedSequence],
    slots: Array,
    attention: Attention = paged_attention,
) -> Attend:
    """Return the callback for one new token of each sequence, in this order.

    Parameters
    ----------
    slots : ndarray of int64, shape (len(sequences),)
        The slot of each sequence's newest token.
    attention : callable
        `paged_attention` of the module, or the student's.
    """

    def attend(layer: int, q: Array, k: Array, v: Array) -> Array:
        pool.write(layer, slots, k, v)
        scale = pool.head_dim**-0.5
        rows = [
            attention(pool, seq, layer, row, scale)
            for seq, row in zip(sequences, q, strict=True)
        ]
        return np.stack(rows)

    return attend


def causal_attention(
    pool: BlockPool, seq: PagedSequence, layer: int, q: Array, scale: float
) -> Array:
    """Attention of the last T tokens of `seq`, each over all tokens up to itself.

    Parameters
    ----------
    q : ndarray, shape (T, n_heads, head_dim)
        Queries of tokens ``len(seq) − T … len(seq) − 1``, whose K and V are written.

    Returns
    -------
    ndarray of float32, shape (T, n_heads, head_dim)

    Notes
    -----
    The same online softmax as `paged_attention`, with a row per query and head.
    """
    n, n_heads, head_dim = q.shape
    group = n_heads // pool.n_kv_heads
    start, bs = len(seq) - n, pool.block_size
    # (n_kv_heads, n · group, head_dim): one product per KV head for all queries.
    rows = q.reshape(n, pool.n_kv_heads, group, head_dim).swapaxes(0, 1)
    rows = rows.reshape(pool.n_kv_heads, n * group, head_dim) * np.float32(scale)
    position = np.repeat(np.arange(start, start + n), group)[:, None]
    m = np.full((*rows.shape[:2], 1), -np.inf, np.float32)
    denominator, acc = np.zeros_like(m), np.zeros_like(rows)
    table = np.array(seq.block_table, np.int64)
    step = max(1, TOKENS_AT_ONCE // bs)
    for first in range(0, len(table), step):
        K, V = pool.read_blocks(layer, table[first : first + step])
        valid = min(len(K), len(seq) - first * bs)
        K, V = (x[:valid].astype(np.float32, copy=False) for x in (K, V))
        S = rows @ K.transpose(1, 2, 0)
        token = np.arange(first * bs, first * bs + valid)
        if token[-1] > start:
            S = np.where(token <= position, S, np.float32(-np.inf))
        # Token 0 is in the first step and seen by all, so m is finite from there on.
        m_new = np.maximum(m, S.max(axis=-1, keepdims=True))
        alpha, P = np.exp(m - m_new), np.exp(S - m_new)
        denominator = denominator * alpha + P.sum(axis=-1, keepdims=True)
        acc = acc * alpha + P @ V.swapaxes(0, 1)
        m = m_new
    out = (acc / denominator).reshape(pool.n_kv_heads, n, group, head_dim)
    return np.ascontiguousarray(out.swapaxes(0, 1)).reshape(q.shape)
