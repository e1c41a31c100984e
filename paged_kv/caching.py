"""What both prefix caches share: what they accept, checked, and the statistics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.allocator import BlockAllocator, OutOfBlocks
from paged_kv.sequence import Sequence

Tokens = NDArray[np.int64]


class NeverFits(OutOfBlocks, ValueError):
    """A prompt needs more blocks than the whole pool has: do not try it again."""


@dataclass
class CacheStats:
    """What a prefix cache saved so far.

    Attributes
    ----------
    lookups : int
        Requests admitted.
    lookup_tokens : int
        Tokens of their prompts.
    hit_tokens : int
        Those of them whose K and V were found, and need no prefill.
    evictions : int
        Cached blocks that were dropped to make room or because they were overwritten.
    """

    lookups: int = 0
    lookup_tokens: int = 0
    hit_tokens: int = 0
    evictions: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of the prompts' tokens that needed no prefill, 0 … 1."""
        return self.hit_tokens / self.lookup_tokens if self.lookup_tokens else 0.0

    def count(self, n_tokens: int, n_cached: int) -> None:
        """Note an admitted prompt of `n_tokens`, of which `n_cached` were found."""
        self.lookups += 1
        self.lookup_tokens += n_tokens
        self.hit_tokens += n_cached


def as_tokens(tokens: ArrayLike) -> Tokens:
    """Return token ids as an array of int64.

    Raises
    ------
    ValueError
        For anything but a flat list of whole numbers from 0 on.
    """
    given = np.asarray(tokens)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ValueError(
            "tokens must be a flat list of whole numbers, got shape "
            f"{given.shape} of {given.dtype}"
        )
    ids = given.astype(np.int64, copy=False)
    if ids.size and ids.min() < 0:  # also what does not fit into int64
        raise ValueError(f"token ids must be 0 or more, got {given[ids < 0][0]}")
    return ids


def prompt_blocks(pool: BlockAllocator, seq_id: object, n_tokens: int) -> int:
    """Return how many blocks a prompt takes, or refuse what can never fit.

    Parameters
    ----------
    pool : BlockAllocator
    seq_id : object
        Name of the request, for the message.
    n_tokens : int
        Length of the prompt.

    Raises
    ------
    NeverFits
        When it needs more blocks than the whole pool has.
    ValueError
        For an empty prompt.
    """
    if not n_tokens:
        raise ValueError(f"request {seq_id!r} has an empty prompt")
    total = -(-n_tokens // pool.block_size)
    if total > pool.num_blocks:
        raise NeverFits(
            f"request {seq_id!r} of {n_tokens} tokens needs {total} blocks, the whole "
            f"pool has {pool.num_blocks}: it can never be admitted"
        )
    return total


def publishable(pool: BlockAllocator, seq: Sequence, tokens: ArrayLike) -> Tokens:
    """Return those of a sequence's first tokens that fill whole blocks.

    Parameters
    ----------
    pool : BlockAllocator
        The cache's pool.
    seq : Sequence
    tokens : array_like of int, shape (n,)
        What its first n positions hold.

    Raises
    ------
    RuntimeError
        For a sequence that was freed.
    ValueError
        For a sequence of another pool, or more tokens than it has.
    """
    ids = as_tokens(tokens)
    if seq.freed:
        raise RuntimeError(f"sequence {seq.seq_id!r} was freed: publish it before")
    if seq.pool is not pool:
        raise ValueError(
            f"sequence {seq.seq_id!r} has its blocks in another pool than this cache"
        )
    if len(ids) > len(seq):
        raise ValueError(
            f"{len(ids)} tokens to publish, but sequence {seq.seq_id!r} holds "
            f"{len(seq)}"
        )
    return ids[: len(ids) // pool.block_size * pool.block_size]
