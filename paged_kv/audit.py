"""The audit of a pool's books: every reference must have a holder, and the reverse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class PoolCorrupted(RuntimeError):
    """An invariant of the pool does not hold; raised only by `check`."""


class HasBlockTable(Protocol):
    """What an audit reads of a sequence."""

    block_table: list[int]

    def __len__(self) -> int: ...


class HoldsBlocks(Protocol):
    """What an audit reads of a holder: a cache that keeps references of its own."""

    def held_blocks(self) -> Iterable[int]:
        """Yield a block id for each reference held."""


def audit(
    ref: NDArray[np.int32],
    held: NDArray[np.int32],
    free: Iterable[int],
    listed: Counter[int],
) -> None:
    """Compare the books with the holders, block by block.

    Parameters
    ----------
    ref, held : ndarray of int32, shape (num_blocks,)
        As in `BlockAllocator`.
    free : iterable of int
        The free list.
    listed : Counter
        How often tables and holders list each block; see `listed_by`.

    Raises
    ------
    PoolCorrupted
        When a count differs from the number of holders, more references are held than
        there are, or a block is free with references or neither free nor referenced.
    """
    if outside := [b for b in listed if not 0 <= b < len(ref)]:
        raise PoolCorrupted(f"blocks outside 0…{len(ref) - 1}: {outside}")
    free = Counter(free)
    counts = zip(ref.tolist(), held.tolist(), strict=True)
    for block, (count, n_held) in enumerate(counts):
        if count != listed[block]:
            raise PoolCorrupted(
                f"block {block}: count {count}, listed {listed[block]} times"
            )
        if not 0 <= n_held <= count:
            raise PoolCorrupted(f"block {block}: {n_held} references held of {count}")
        if free[block] != (count == 0):
            raise PoolCorrupted(
                f"block {block}: count {count}, {free[block]} times in the free list"
            )


def listed_by(
    sequences: Iterable[HasBlockTable], holders: Iterable[HoldsBlocks], block_size: int
) -> Counter[int]:
    """Return how often block tables and holders list each block.

    Parameters
    ----------
    sequences, holders : iterable
        As in `BlockAllocator.check`.
    block_size : int
        Tokens per block.

    Raises
    ------
    PoolCorrupted
        When a table does not have ceil(len / block_size) entries.
    """
    listed: Counter[int] = Counter()
    for seq in sequences:
        table, length = list(seq.block_table), len(seq)
        needed = -(-length // block_size)
        if len(table) != needed:
            name = getattr(seq, "seq_id", seq)
            raise PoolCorrupted(
                f"sequence {name!r} of {length} tokens lists {len(table)} blocks, "
                f"needs {needed}"
            )
        listed.update(table)
    for holder in holders:
        listed.update(holder.held_blocks())
    return listed
