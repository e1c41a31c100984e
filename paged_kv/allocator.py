"""The books of a block pool: reference counts and a list of free blocks.

They stand apart from the memory (`paged_kv.pool`) so that the same books serve over
other storages (torch tensors, quantised codes) or over none at all (a simulator).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from paged_kv.audit import (
    HasBlockTable,
    HoldsBlocks,
    PoolCorrupted,
    audit,
    listed_by,
)
from paged_kv.free_queue import FreeList, FreeQueue, IndexesContents
from paged_kv.spec import whole

# Whoever uses the books names what `check` takes and raises: from here too.
__all__ = [
    "BlockAllocator",
    "DoubleFree",
    "HasBlockTable",
    "HoldsBlocks",
    "OutOfBlocks",
    "PoolCorrupted",
]


class OutOfBlocks(MemoryError):
    """The pool has fewer free blocks than an operation needs."""


class DoubleFree(ValueError):
    """A reference was dropped from a block that has none."""


class BlockAllocator:
    """Who owns which block. No memory, only the books.

    A reference is either the caller's own (`allocate`, given back by `release`) or
    held by a block table or a cache (`allocate_many` and `retain`, given back by
    `release_many`). `release` never drops a held one: whoever releases a block once too
    often cannot take it from a sequence that still reads it.

    Parameters
    ----------
    num_blocks : int
        Blocks in the pool, ids 0 … num_blocks − 1.
    block_size : int
        Tokens per block.

    Attributes
    ----------
    ref : ndarray of int32, shape (num_blocks,)
        References to each block.
    held : ndarray of int32, shape (num_blocks,)
        Those of them that block tables and caches hold.
    peak : int
        The most blocks that were in use at one time.

    Raises
    ------
    ValueError
        For a size that is not a whole number of at least 1.
    """

    def __init__(self, num_blocks: int, block_size: int = 16) -> None:
        self.num_blocks = whole("num_blocks", num_blocks, 1)
        self.block_size = whole("block_size", block_size, 1)
        self.ref: NDArray[np.int32] = np.zeros(self.num_blocks, dtype=np.int32)
        self.held: NDArray[np.int32] = np.zeros(self.num_blocks, dtype=np.int32)
        self.peak = 0
        # A stack with block 0 on top: O(1) both ways, and the block freed last, which
        # may still be warm in the processor's cache, is handed out first.
        self._free_list: FreeList = list(range(self.num_blocks - 1, -1, -1))
        self._index: IndexesContents | None = None

    @property
    def free(self) -> int:
        """Number of blocks that nobody references."""
        return len(self._free_list)

    @property
    def used(self) -> int:
        """Number of blocks that somebody references."""
        return self.num_blocks - len(self._free_list)

    def allocate(self) -> int:
        """Hand out one block with a reference count of 1, the caller's own.

        Raises
        ------
        OutOfBlocks
            When no block is free.
        """
        free_list = self._free_list
        if not free_list:
            raise OutOfBlocks(self._shortage(1))
        block = free_list.pop()
        self.ref[block] = 1
        used = self.num_blocks - len(free_list)
        if used > self.peak:
            self.peak = used
        return block

    def allocate_many(self, n: int) -> list[int]:
        """Hand out `n` blocks to a holder, or none at all.

        Raises
        ------
        OutOfBlocks
            When fewer than `n` blocks are free; none is taken then.
        """
        n = whole("n", n, 0)
        free_list = self._free_list
        if n > len(free_list):
            raise OutOfBlocks(self._shortage(n))
        blocks = [free_list.pop() for _ in range(n)]
        ids = np.array(blocks, dtype=np.intp)
        self.ref[ids] = self.held[ids] = 1
        self.peak = max(self.peak, self.used)
        return blocks

    def retain(self, blocks: Iterable[int]) -> None:
        """Let a holder share `blocks`, all of them in use: one reference more each.

        Raises
        ------
        ValueError
            When a block is free or outside the pool; no count changes then.
        """
        ids = self._block_ids(blocks)
        self._require_used(ids)
        np.add.at(self.ref, ids, 1)
        np.add.at(self.held, ids, 1)

    def index_with(self, index: IndexesContents) -> FreeQueue:
        """Let a prefix cache find blocks by contents: freed blocks keep theirs longest.

        From now on the block freed longest ago is handed out first, `touch` is O(1),
        and `index` is told of every block whose contents are about to change.

        Returns
        -------
        FreeQueue
            The free blocks, for the cache to look at.

        Raises
        ------
        ValueError
            When the pool has an index already.
        """
        if self._index is not None:
            raise ValueError(f"the pool is already indexed by {self._index!r}")
        self._index = index
        # The stack's top comes first, as before.
        self._free_list = queue = FreeQueue(reversed(list(self._free_list)), index)
        return queue

    def touch(self, blocks: Iterable[int]) -> None:
        """Let a holder share `blocks`, in use or free: a free one is taken back.

        Only for whoever knows what the blocks hold (see `index_with`): elsewhere the
        contents of a free block mean nothing, and `retain` refuses it.

        Raises
        ------
        ValueError
            When an id is outside the pool; no count changes then.
        """
        ids = self._block_ids(blocks)
        for block in set(ids):
            if not self.ref.item(block):
                self._free_list.remove(block)
        np.add.at(self.ref, ids, 1)
        np.add.at(self.held, ids, 1)
        self.peak = max(self.peak, self.used)

    def overwrite(self, block: int) -> None:
        """Announce that the free slots of a block in use are about to be filled.

        A block that a cache has indexed is full; it has free slots again only after
        its sequence was cut short, and then the index must let go of it.
        """
        if self._index is not None:
            self._index.forget(block)

    def hand_over(self, blocks: Iterable[int]) -> None:
        """Turn the caller's own references into held ones, for a cache to keep.

        A reference that is held already (a table's) only changes its holder: no count
        changes for it.

        Raises
        ------
        ValueError
            When a block is listed twice, is free or is outside the pool; no count
            changes then.
        """
        ids = self._block_ids(blocks)
        index = np.array(ids, dtype=np.intp)
        if len(set(ids)) < len(ids):
            raise ValueError(f"blocks {ids} list one block twice")
        self._require_used(ids)
        self.held[index] += self.ref[index] > self.held[index]

    def release(self, block: int) -> None:
        """Drop one reference of the caller's own; at zero the block becomes free.

        Raises
        ------
        DoubleFree
            When the block has no reference left, or only held ones.
        ValueError
            When the id is outside the pool.
        """
        block = operator.index(block)
        if not 0 <= block < self.num_blocks:
            raise ValueError(self._outside(block))
        count = self.ref.item(block)
        if count == 0:
            raise DoubleFree(f"block {block} is already free")
        if count <= self.held.item(block):
            raise DoubleFree(
                f"block {block} has {count} reference{'s' * (count != 1)}, all held by "
                "block tables or caches: free the sequence, not its block"
            )
        self.ref[block] = count - 1
        if count == 1:
            self._free_list.append(block)

    def release_many(self, blocks: Iterable[int]) -> None:
        """Drop a holder's references to `blocks`, in order, or none of them.

        Raises
        ------
        DoubleFree
            When a block is listed more often than it is held.
        ValueError
            When an id is outside the pool.
        """
        times = Counter(self._block_ids(blocks))
        index = np.fromiter(times, np.intp, len(times))
        dropped = np.fromiter(times.values(), np.int32, len(times))
        if (too_many := dropped > self.held[index]).any():
            block = int(index[too_many.argmax()])
            raise DoubleFree(
                f"block {block} is released {times[block]} times, "
                f"is held {self.held[block]} times"
            )
        self.held[index] -= dropped
        left = self.ref[index] - dropped
        self.ref[index] = left
        self._free_list.extend(
            [b for b, n in zip(times, left.tolist(), strict=True) if not n]
        )

    def check(
        self,
        sequences: Iterable[HasBlockTable] = (),
        holders: Iterable[HoldsBlocks] = (),
    ) -> None:
        """Audit the books against everybody who holds blocks.

        Parameters
        ----------
        sequences : iterable of Sequence
            All sequences that use this pool; freed ones may be among them.
        holders : iterable
            Caches with references of their own; each has `held_blocks()`.

        Raises
        ------
        PoolCorrupted
            When a count differs from the number of tables and holders that list the
            block, a block is free with references or neither free nor referenced, or
            a table does not have ceil(len / block_size) entries.
        """
        listed = listed_by(sequences, holders, self.block_size)
        audit(self.ref, self.held, self._free_list, listed)
        if self.peak < self.used:
            raise PoolCorrupted(f"peak {self.peak} is below used {self.used}")

    def _block_ids(self, blocks: Iterable[int]) -> list[int]:
        """Return ids as ints; a negative one must not wrap to the pool's end."""
        ids = list(map(operator.index, blocks))
        if ids and (min(ids) < 0 or max(ids) >= self.num_blocks):
            wrong = next(b for b in ids if not 0 <= b < self.num_blocks)
            raise ValueError(self._outside(wrong))
        return ids

    def _require_used(self, ids: list[int]) -> None:
        if 0 in (counts := self.ref[ids].tolist()):
            block = ids[counts.index(0)]
            raise ValueError(f"block {block} is free: allocate it, do not share it")

    def _outside(self, block: int) -> str:
        return f"block {block} is outside 0…{self.num_blocks - 1}"

    def _shortage(self, n: int) -> str:
        return (
            f"needs {n} block{'s' * (n != 1)}, {self.free} free of {self.num_blocks}; "
            "free a sequence or make the pool larger"
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_blocks={self.num_blocks}, "
            f"block_size={self.block_size}, used={self.used}, free={self.free}, "
            f"peak={self.peak})"
        )
