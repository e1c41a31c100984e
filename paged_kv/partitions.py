"""Attention in parts that are merged exactly: Flash-Decoding and cascade attention.

Both stand on `AttentionState`. They differ from plain paged attention in who computes
what, and cascade attention in how often a shared prefix is read.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.attention import (
    AttentionState,
    paged_attention,
    partial_attention,
    require_tokens,
)
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence
from paged_kv.spec import whole


class Attended(NamedTuple):
    """The result, and what had to be read from memory for it.

    Attributes
    ----------
    out : ndarray of float32, shape (n_heads, head_dim) or (batch, n_heads, head_dim)
    kv_bytes : int
        K and V of one layer, in whole blocks as they are read.
    state_bytes : int
        Partial states (out and lse, float32) that were merged.
    """

    out: NDArray[Any]
    kv_bytes: int
    state_bytes: int


def flash_decoding(
    pool: BlockPool,
    seq: Sequence,
    layer: int,
    q: ArrayLike,
    scale: float,
    partition_tokens: int = 512,
) -> Attended:
    """Split one sequence into partitions, attend to each apart, and merge.

    A GPU gives each partition to a worker of its own; otherwise one long sequence would
    keep a single one busy. The bytes of K and V are those of plain attention.

    Parameters
    ----------
    pool, seq, layer, q, scale
        As for `paged_attention`.
    partition_tokens : int
        Tokens per partition, a multiple of the block size.

    Returns
    -------
    Attended
        ``out`` of shape (n_heads, head_dim).

    Raises
    ------
    ValueError
        As `paged_attention`, or for partitions that cut a block.
    RuntimeError
        For a sequence that was freed.

    Notes
    -----
    Flash-Decoding (Dao et al., 2023); vLLM's second CUDA kernel took partitions of
    512 tokens.
    """
    partition_tokens = whole("partition_tokens", partition_tokens, 1)
    if partition_tokens % pool.block_size:
        raise ValueError(
            f"partition_tokens must be a multiple of the block size {pool.block_size}, "
            f"got {partition_tokens}"
        )
    require_tokens(seq)
    step = partition_tokens // pool.block_size
    n_blocks = _blocks(pool, len(seq))
    parts = [
        partial_attention(pool, seq, layer, q, scale, start, start + step)
        for start in range(0, n_blocks, step)
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    return Attended(merged.out, n_blocks * _block_bytes(pool), _state_bytes(parts))


def decode_batch(
    pool: BlockPool, seqs: Seq[Sequence], layer: int, q: ArrayLike, scale: float
) -> Attended:
    """Attend for each sequence apart, the plain way; a shared prefix is read by each.

    Parameters
    ----------
    seqs : sequence of Sequence
        One or more, at least one token each.
    q : array_like, shape (len(seqs), n_heads, head_dim)
        One query per sequence.
    pool, layer, scale
        As for `paged_attention`.

    Returns
    -------
    Attended
        ``out`` of shape (len(seqs), n_heads, head_dim); no states were merged.

    Raises
    ------
    ValueError
        As `paged_attention`, or when the queries are not one per sequence.
    RuntimeError
        For a sequence that was freed.
    """
    q = _batch_of_queries(seqs, q)
    out = np.stack(
        [
            paged_attention(pool, seq, layer, query, scale)
            for seq, query in zip(seqs, q, strict=True)
        ]
    )
    n_blocks = sum(_blocks(pool, len(seq)) for seq in seqs)
    return Attended(out, n_blocks * _block_bytes(pool), 0)


def cascade_attention(
    pool: BlockPool, seqs: Seq[Sequence], layer: int, q: ArrayLike, scale: float
) -> Attended:
    """Attend to the blocks that all sequences share once for the whole batch.

    The queries of all sequences meet the shared prefix together, then each its own
    suffix, and the two states are merged.

    Parameters
    ----------
    pool, seqs, layer, q, scale
        As for `decode_batch`. The shared prefix is found by comparing block tables.

    Returns
    -------
    Attended
        ``out`` of shape (len(seqs), n_heads, head_dim); the shared prefix counts once.

    Raises
    ------
    ValueError, RuntimeError
        As `decode_batch`.

    Notes
    -----
    Cascade attention of FlashInfer (2024) and vLLM. With one sequence, or no full block
    in common, this is plain attention.
    """
    q = _batch_of_queries(seqs, q)
    shared = _shared_blocks(pool, seqs)
    batch, n_heads, head_dim = q.shape
    # Query head h of every sequence reads the same KV head, so the batch becomes part
    # of the group: (n_kv_heads, batch · group) query heads for one walk of the prefix.
    n_kv, group = pool.n_kv_heads, n_heads // pool.n_kv_heads
    if n_heads % n_kv:
        raise ValueError(f"n_heads must be a multiple of {n_kv}, got {n_heads}")
    grouped = q.reshape(batch, n_kv, group, head_dim).swapaxes(0, 1)
    together = grouped.reshape(-1, head_dim)
    state = partial_attention(pool, seqs[0], layer, together, scale, 0, shared)
    out = state.out.reshape(n_kv, batch, group, head_dim).swapaxes(0, 1)
    lse = state.lse.reshape(n_kv, batch, group).swapaxes(0, 1)
    prefixes = [
        AttentionState(out[i].reshape(n_heads, head_dim), lse[i].reshape(n_heads))
        for i in range(batch)
    ]
    suffixes = [
        partial_attention(pool, seq, layer, query, scale, shared)
        for seq, query in zip(seqs, q, strict=True)
    ]
    merged = [p.merge(s).out for p, s in zip(prefixes, suffixes, strict=True)]
    n_blocks = shared + sum(_blocks(pool, len(seq)) - shared for seq in seqs)
    states = _state_bytes(prefixes + suffixes) if shared else 0
    return Attended(np.stack(merged), n_blocks * _block_bytes(pool), states)


def _batch_of_queries(seqs: Seq[Sequence], q: ArrayLike) -> NDArray[Any]:
    q = np.asarray(q)
    if q.ndim != 3 or not len(seqs) or len(q) != len(seqs):
        raise ValueError(
            f"q must be ({len(seqs)}, n_heads, head_dim), one query for each of "
            f"{len(seqs)} sequences, got {q.shape}"
        )
    for seq in seqs:
        require_tokens(seq)
    return q


def _shared_blocks(pool: BlockPool, seqs: Seq[Sequence]) -> int:
    """Leading blocks that all sequences list, each full in all of them."""
    if len(seqs) < 2:
        return 0
    full = min(len(seq) for seq in seqs) // pool.block_size
    tables = zip(*(seq.block_table[:full] for seq in seqs), strict=True)
    shared = 0
    for blocks in tables:
        if len(set(blocks)) > 1:
            break
        shared += 1
    return shared


def _blocks(pool: BlockPool, length: int) -> int:
    return -(-length // pool.block_size)


def _block_bytes(pool: BlockPool) -> int:
    return pool.bytes_per_block() // pool.n_layers


def _state_bytes(states: Seq[AttentionState]) -> int:
    return sum(state.out.nbytes + state.lse.nbytes for state in states)
