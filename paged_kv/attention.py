"""Attention over pages: by blocks, with an online softmax, and exactly mergeable.

Shapes: q (n_heads, head_dim), one query per head; keys and values
(tokens, n_kv_heads, head_dim). Query head h reads KV head h // (n_heads / n_kv_heads),
so heads are grouped by reshaping q to (n_kv_heads, group, head_dim); nothing is
repeated. Everything is accumulated in float32.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.pool import BlockPool, real_numbers
from paged_kv.sequence import Sequence

Array = NDArray[Any]

# Bytes of K read at once. A block of 16 tokens is too little work for one numpy call,
# and more than about 1 MiB no longer fits the processor's cache.
BYTES_AT_ONCE = 1 << 20


class AttentionState(NamedTuple):
    """Attention of one query over some of the tokens, ready to be merged.

    Attributes
    ----------
    out : ndarray of float32, shape (n_heads, head_dim)
        Softmax-weighted values over these tokens alone; 0 over no tokens.
    lse : ndarray of float32, shape (n_heads,)
        Log of the sum of exp(score); −inf over no tokens.
    """

    out: Array
    lse: Array

    @classmethod
    def empty(cls, n_heads: int, head_dim: int) -> AttentionState:
        """Return attention over no tokens, the identity of `merge`."""
        out = np.zeros((n_heads, head_dim), np.float32)
        return cls(out, np.full(n_heads, -np.inf, np.float32))

    def merge(self, other: AttentionState) -> AttentionState:
        """Return attention over the tokens of both; exact, associative, any order.

        Raises
        ------
        ValueError
            When the shapes differ.

        Notes
        -----
        ``lse = log(exp(a) + exp(b))`` and each side weighs ``exp(its lse − lse)``.
        Used by Flash-Decoding (parts of one sequence) and cascade attention (shared
        prefix and own suffix).
        """
        if self.out.shape != other.out.shape or self.lse.shape != other.lse.shape:
            raise ValueError(f"cannot merge {self.out.shape} with {other.out.shape}")
        top = np.maximum(self.lse, other.lse)
        shift = np.where(np.isneginf(top), np.float32(0), top)  # −inf − −inf is NaN
        mine, theirs = np.exp(self.lse - shift), np.exp(other.lse - shift)
        total = mine + theirs
        divisor = np.where(total > 0, total, np.float32(1))
        weight_mine, weight_theirs = mine / divisor, theirs / divisor
        out = self.out * weight_mine[:, None] + other.out * weight_theirs[:, None]
        with np.errstate(divide="ignore"):  # log 0 = −inf is the empty state
            return AttentionState(out, shift + np.log(total))


def reference_attention(
    K: ArrayLike, V: ArrayLike, q: ArrayLike, scale: float
) -> Array:
    """Attention over contiguous K and V, the plain softmax of the textbook.

    Parameters
    ----------
    K, V : array_like, shape (L, n_kv_heads, head_dim)
        L at least 1.
    q : array_like, shape (n_heads, head_dim)
        n_heads is a multiple of n_kv_heads.
    scale : float
        Usually 1 / sqrt(head_dim).

    Returns
    -------
    ndarray of float32, shape (n_heads, head_dim)

    Raises
    ------
    ValueError
        For shapes that do not fit, L = 0, or q or a scale that is not finite.
    TypeError
        For K, V or q that do not hold real numbers.
    """
    K, V = (
        real_numbers(name, array).astype(np.float32, copy=False)
        for name, array in (("K", K), ("V", V))
    )
    if K.ndim != 3 or K.shape != V.shape or not K.size:
        raise ValueError(
            "K and V must both be (L, n_kv_heads, head_dim), none of them 0, "
            f"got {K.shape} and {V.shape}"
        )
    grouped = _group_heads(q, K.shape[1], K.shape[2], scale)
    scores = grouped @ K.transpose(1, 2, 0)  # (n_kv_heads, group, L)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out = weights @ V.swapaxes(0, 1) / weights.sum(axis=-1, keepdims=True)
    return np.asarray(out.reshape(-1, K.shape[2]), np.float32)


def gather_kv(pool: BlockPool, seq: Sequence, layer: int) -> tuple[Array, Array]:
    """Copy a sequence's K and V of one layer out of its blocks, for checking only.

    Parameters
    ----------
    pool, seq, layer
        As for `paged_attention`; the sequence may be empty.

    Returns
    -------
    K, V : ndarray, shape (length, n_kv_heads, head_dim)
        In the pool's dtype (float32 from a quantised pool).

    Raises
    ------
    ValueError
        For a layer outside the pool, a table too short for its length, or block ids
        outside the pool.
    RuntimeError
        For a sequence that was freed.
    """
    K, V = pool.read_blocks(layer, _blocks_of(pool, seq))
    return K[: len(seq)], V[: len(seq)]


def paged_attention(
    pool: BlockPool, seq: Sequence, layer: int, q: ArrayLike, scale: float
) -> Array:
    """Attention of one query over a sequence's blocks, walking its block table.

    Parameters
    ----------
    pool : BlockPool
        Holds K and V.
    seq : Sequence
        At least one token; only its `block_table` and length are read.
    layer : int
        Which layer's K and V.
    q : array_like, shape (n_heads, head_dim)
        n_heads is a multiple of the pool's n_kv_heads.
    scale : float
        Usually 1 / sqrt(head_dim).

    Returns
    -------
    ndarray of float32, shape (n_heads, head_dim)

    Raises
    ------
    ValueError
        For shapes that do not fit, q or a scale that is not finite, an empty
        sequence, a table too short for its length, or block ids outside the pool.
    TypeError
        For q that does not hold real numbers.
    RuntimeError
        For a sequence that was freed.

    Notes
    -----
    PagedAttention: Kwon et al., SOSP'23, section 4.1; the online softmax is the inner
    loop of FlashAttention (Dao et al., 2022, algorithm 1).
    """
    require_tokens(seq)
    return partial_attention(pool, seq, layer, q, scale).out


def partial_attention(
    pool: BlockPool,
    seq: Sequence,
    layer: int,
    q: ArrayLike,
    scale: float,
    start: int = 0,
    stop: int | None = None,
) -> AttentionState:
    """Attention over the logical blocks ``start … stop − 1``, to be merged.

    Parameters and errors as for `paged_attention`; `start` and `stop` slice the block
    table, and an empty sequence is no error.

    Returns
    -------
    AttentionState
        The empty state where the slice holds no token.
    """
    layer = pool.layer_index(layer)
    grouped = _group_heads(q, pool.n_kv_heads, pool.head_dim, scale)
    table = _blocks_of(pool, seq)
    start, stop, _ = slice(start, stop).indices(len(table))
    bs = pool.block_size
    step = max(1, BYTES_AT_ONCE // (4 * bs * pool.n_kv_heads * pool.head_dim))
    m = np.full((*grouped.shape[:2], 1), -np.inf, np.float32)  # running maximum
    l = np.zeros_like(m)  # running denominator
    acc = np.zeros_like(grouped)
    for first in range(start, stop, step):
        last = min(first + step, stop)
        K, V = pool.read_blocks(layer, table[first:last])
        valid = min(len(K), len(seq) - first * bs)  # less than len(K) in the tail only
        S = grouped @ K[:valid].astype(np.float32, copy=False).transpose(1, 2, 0)
        m_new = np.maximum(m, S.max(axis=-1, keepdims=True))
        alpha = np.exp(m - m_new)
        P = np.exp(S - m_new, out=S)
        l = l * alpha + P.sum(axis=-1, keepdims=True)
        acc = acc * alpha + P @ V[:valid].astype(np.float32, copy=False).swapaxes(0, 1)
        m = m_new
    if start >= stop:
        return AttentionState.empty(grouped.shape[0] * grouped.shape[1], pool.head_dim)
    out, lse = acc / l, m + np.log(l)
    return AttentionState(out.reshape(-1, pool.head_dim), lse.reshape(-1))


def require_tokens(seq: Sequence) -> None:
    """Raise RuntimeError for a freed sequence, ValueError for an empty one."""
    _require_live(seq)
    if not len(seq):
        raise ValueError(f"sequence {seq.seq_id!r} is empty: nothing to attend to")


def _require_live(seq: Sequence) -> None:
    if getattr(seq, "freed", False) is True:  # a student's class need not have it
        raise RuntimeError(f"sequence {seq.seq_id!r} was freed: its blocks are others'")


def _group_heads(q: ArrayLike, n_kv_heads: int, head_dim: int, scale: float) -> Array:
    """Return q · scale as (n_kv_heads, group, head_dim), checked."""
    q = real_numbers("q", q)
    if q.ndim != 2 or q.shape[1] != head_dim or len(q) % n_kv_heads or not len(q):
        raise ValueError(
            f"q must be (n_heads, {head_dim}) with n_heads a multiple of "
            f"{n_kv_heads}, got {q.shape}"
        )
    if not math.isfinite(scale):
        raise ValueError(f"scale must be finite, got {scale}")
    # float(): a float64 numpy scalar would turn everything after it into float64.
    with np.errstate(over="ignore"):  # reported as not finite below
        scaled = q.astype(np.float32) * float(scale)
    if not np.isfinite(scaled).all():
        raise ValueError("q · scale has NaN or values too large for float32")
    return scaled.reshape(n_kv_heads, -1, head_dim)


def _blocks_of(pool: BlockPool, seq: Sequence) -> NDArray[np.int64]:
    """Return the physical blocks that hold the sequence's tokens, checked.

    Blocks reserved ahead may follow in the table; they hold nothing and are left out.
    """
    _require_live(seq)
    needed = -(-len(seq) // pool.block_size)
    table = np.asarray(seq.block_table[:needed], np.int64)
    if len(table) < needed:
        raise ValueError(
            f"{len(seq)} tokens need {needed} blocks of {pool.block_size}, "
            f"the block table has {len(table)}"
        )
    if needed and not 0 <= table.min() <= table.max() < pool.num_blocks:
        raise ValueError(f"block ids outside 0…{pool.num_blocks - 1}: {table.tolist()}")
    return table
