"""What a picture says about a moment: owners, fill, totals, and what does not add up.

Worked out from tables and counts alone, never from what the pool claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paged_kv.widgets.history import Moment, blocks_alone
from paged_kv.widgets.snapshot import IntArray, Table

FREE, PRIVATE, SHARED = 0, 1, 2


class Facts:
    """Everything the renderer asks about one moment.

    Parameters
    ----------
    moment : Moment
    marked : sequence of int
        Blocks to point at.

    Attributes
    ----------
    num_blocks, block_size : int
    ref : ndarray of int32, shape (num_blocks,)
        Reference counts.
    listed : ndarray of int64, shape (num_blocks,)
        How often live tables and caches list each block.
    owner : ndarray of int64, shape (num_blocks,)
        A table that lists the block, −1 if none does.
    fill : ndarray of int64, shape (num_blocks,)
        Slots that hold a token.
    look : ndarray of int8, shape (num_blocks,)
        FREE, PRIVATE or SHARED.
    change : ndarray of int32, shape (num_blocks,)
        By how much the count changed at this step.
    written, freed : ndarray of bool, shape (num_blocks,)
        Blocks that were handed out or took a token, or became free, at this step.
    """

    def __init__(self, moment: Moment, marked: Sequence[int] = ()) -> None:
        state = moment.after
        self.moment = moment
        self.marked = frozenset(marked)
        self.num_blocks = n = len(state.ref)
        self.block_size = state.block_size
        self.ref = state.ref
        self.listed = np.zeros(n, np.int64)
        self.owner = np.full(n, -1)
        self.fill = np.zeros(n, np.int64)
        for i, table in self.live:
            ids = table.blocks
            inside = (ids >= 0) & (ids < n)
            tokens = slots_filled(table, self.block_size)[inside]
            ids = ids[inside]
            np.add.at(self.listed, ids, 1)
            self.owner[ids] = i
            np.maximum.at(self.fill, ids, tokens)
        held = np.maximum(self.ref, self.listed)
        self.look = np.minimum(held, SHARED).astype(np.int8)
        self.change = self.ref - moment.before.ref
        self.written, self.freed = self._touched(moment)

    def _touched(self, moment: Moment) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        before, after = moment.before, moment.after
        freed = (before.ref > 0) & (after.ref == 0)
        written = (before.ref == 0) & (after.ref > 0)
        actor = moment.event.actor
        if moment.event.kind == "append" and actor is not None:
            table = after.tables[actor]
            old = before.tables[actor].length if actor < len(before.tables) else 0
            size = self.block_size
            ids = table.blocks[old // size : -(-table.length // size)]
            if table.length > old:
                written[ids[(ids >= 0) & (ids < self.num_blocks)]] = True
        return written, freed

    @cached_property
    def looks(self) -> NDArray[np.int64]:
        """One number per block, equal where two blocks look the same in a table."""
        owner = np.where(self.look == PRIVATE, self.owner, self.owner < 0)
        touched = self.written * 2 + self.freed
        return (owner + 1) * 16 + self.look * 4 + touched

    @cached_property
    def live(self) -> list[tuple[int, Table]]:
        """Sequences and caches that hold blocks or may take some, with their index."""
        tables = enumerate(self.moment.after.tables)
        return [(i, table) for i, table in tables if table.live]

    @cached_property
    def owners(self) -> list[list[int]]:
        """For each block the tables that list it, in table order."""
        owners: list[list[int]] = [[] for _ in range(self.num_blocks)]
        for i, table in self.live:
            for block in dict.fromkeys(table.blocks.tolist()):
                if 0 <= block < self.num_blocks:
                    owners[block].append(i)
        return owners

    @property
    def used(self) -> int:
        """Blocks with a count above 0."""
        return int(np.count_nonzero(self.ref))

    @property
    def free(self) -> int:
        """Blocks with count 0."""
        return self.num_blocks - self.used

    @property
    def peak(self) -> int | None:
        """The most blocks in use so far, as the pool says."""
        return self.moment.after.books.peak

    @property
    def alone(self) -> int:
        """Blocks that the live sequences would take if nobody shared."""
        return blocks_alone(self.moment.after)

    @property
    def saved(self) -> int:
        """Blocks saved by sharing: `alone` less the blocks that sequences list."""
        lists = [table.blocks for _, table in self.live if not table.cache]
        listed = len(np.unique(np.concatenate(lists))) if lists else 0
        return max(0, self.alone - listed)

    @property
    def slots(self) -> int:
        """Slots in the blocks that tables list."""
        return int(np.count_nonzero(self.listed)) * self.block_size

    @property
    def waste(self) -> int:
        """Empty ones among `slots`."""
        return self.slots - int(self.fill.sum())


def slots_filled(table: Table, block_size: int) -> IntArray:
    """Return how many slots of each block of a table hold its tokens, shape (n,)."""
    if table.cache:
        return np.full(len(table.blocks), block_size, np.int32)
    starts = np.arange(len(table.blocks), dtype=np.int32) * block_size
    return np.clip(table.length - starts, 0, block_size).astype(np.int32)


def rising_runs(ids: NDArray[np.integer]) -> list[tuple[int, int]]:
    """Return `ids` as runs (first, last) of numbers that follow one another."""
    if not len(ids):
        return []
    cuts = np.flatnonzero(np.diff(ids) != 1) + 1
    firsts = ids[np.concatenate(([0], cuts))]
    lasts = ids[np.concatenate((cuts - 1, [len(ids) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
