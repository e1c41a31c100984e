"""Paging: blocks are taken as tokens come, counted or with real block tables."""

from __future__ import annotations

from paged_kv.allocator import BlockAllocator
from paged_kv.audit import PoolCorrupted
from paged_kv.serving.allocators.base import Allocator, Held, Span, Usage
from paged_kv.spec import whole


class BlockCounter(Allocator):
    """Paging by numbers of blocks alone, for very long runs.

    Parameters
    ----------
    num_slots : int
        Slots of the cache; a rest smaller than a block is never used.
    block_size : int
        Tokens per block.
    watermark : float
        Share of the blocks that admission leaves free, so that a request admitted now
        is not preempted at once (1 % in vLLM).

    Raises
    ------
    ValueError
        When no block fits into the slots, or for a watermark outside 0 … 1.
    """

    name = "Paged"

    def __init__(
        self, num_slots: int, block_size: int = 16, watermark: float = 0.01
    ) -> None:
        super().__init__(num_slots)
        self.block_size = whole("block_size", block_size, 1)
        self.num_blocks = self.num_slots // self.block_size
        if not self.num_blocks:
            raise ValueError(f"{num_slots} slots are less than a block of {block_size}")
        if not 0 <= watermark < 1:
            raise ValueError(f"watermark must be in [0, 1), got {watermark!r}")
        self.watermark_blocks = int(watermark * self.num_blocks)
        self.used = 0
        # Running requests by the remainder of the iterations at which each one starts
        # a block: _starts[iteration % block_size] of them need one in the next.
        self._starts = [0] * self.block_size

    def blocks_for(self, length: int) -> int:
        """Blocks that hold `length` tokens."""
        return -(-length // self.block_size)

    def can_ever_fit(self, prompt: int, output: int) -> bool:
        """See `Allocator.can_ever_fit`."""
        limit = self.num_blocks - self.watermark_blocks
        return self.blocks_for(prompt + output) <= limit

    def admit(self, request: int, length: int, remaining: int) -> bool:
        """See `Allocator.admit`; the blocks of the next iteration must be there too."""
        self._require_new(request)
        growth = self._starts[self.iteration % self.block_size]
        needed = self.used + growth + self.blocks_for(length + 1)
        if needed > self.num_blocks - self.watermark_blocks:
            return False
        offset = length - self.iteration
        self._held[request] = Held(offset, length + remaining)
        self._starts[-offset % self.block_size] += 1
        self.tokens += length
        self.used += self.blocks_for(length)
        return True

    def release(self, request: int) -> None:
        """See `Allocator.release`."""
        offset = self._held.pop(request).offset
        self._starts[-offset % self.block_size] -= 1
        self.tokens -= self.iteration + offset
        self.used -= self.blocks_for(self.iteration + offset)

    def room(self, at_most: int) -> int:
        """See `Allocator.room`."""
        n = len(self._held)
        if not n:
            return at_most
        # In any block_size iterations on end, every request starts one block.
        cycles, free = divmod(self.num_blocks - self.used, n)
        steps = cycles * self.block_size
        if steps >= at_most:
            return at_most
        for growth in self._growth(self.block_size):
            free -= growth
            if free < 0:
                break
            steps += 1
        return min(steps, at_most)

    def advance(self, steps: int) -> tuple[int, int, int]:
        """See `Allocator.advance`."""
        n, bs = len(self._held), self.block_size
        cycles, rest = divmod(steps, bs)
        # Over a whole cycle the empty ends of last blocks take each size once.
        empty = n * cycles * (bs * (bs - 1) // 2)
        waste = self.used * bs - self.tokens
        for growth in self._growth(rest):
            waste += growth * bs - n
            empty += waste
            self.used += growth
        self.used += n * cycles
        return self._grow(steps), 0, empty

    def usage(self) -> Usage:
        """See `Allocator.usage`."""
        given = self.used * self.block_size
        return Usage(self.tokens, 0, given - self.tokens, self.num_slots - given)

    def _growth(self, steps: int) -> list[int]:
        """Return the blocks started in each of the next `steps` ≤ block_size."""
        first = self.iteration % self.block_size
        wrapped = first + steps - self.block_size
        return self._starts[first : first + steps] + self._starts[: max(0, wrapped)]


class PagedAllocator(BlockCounter):
    """Paging with real block tables, over the books of the course's block pool.

    Counts exactly as `BlockCounter` does, and knows besides which block is whose.

    Attributes
    ----------
    books : BlockAllocator
        Reference counts and the free list, without memory.
    tables : dict of int to list of int
        Block table of each running request.
    """

    def __init__(
        self, num_slots: int, block_size: int = 16, watermark: float = 0.01
    ) -> None:
        super().__init__(num_slots, block_size, watermark)
        self.books = BlockAllocator(self.num_blocks, block_size)
        self.tables: dict[int, list[int]] = {}

    def admit(self, request: int, length: int, remaining: int) -> bool:
        """See `Allocator.admit`."""
        if not super().admit(request, length, remaining):
            return False
        self.tables[request] = self.books.allocate_many(self.blocks_for(length))
        return True

    def release(self, request: int) -> None:
        """See `Allocator.release`; blocks go back tail first."""
        super().release(request)
        self.books.release_many(reversed(self.tables.pop(request)))

    def advance(self, steps: int) -> tuple[int, int, int]:
        """See `Allocator.advance`."""
        sums = super().advance(steps)
        for request, table in self.tables.items():
            length = self.iteration + self._held[request].offset
            if missing := self.blocks_for(length) - len(table):
                table += self.books.allocate_many(missing)
        return sums

    def spans(self) -> list[Span]:
        """Return every block of the running requests, in order of admission."""
        size = self.block_size
        spans = []
        for request, table in self.tables.items():
            length = self.iteration + self._held[request].offset
            for i, block in enumerate(table):
                tokens = min(size, length - i * size)
                spans.append(
                    Span(request, block * size, size, tokens, 0, size - tokens)
                )
        return spans

    def held_blocks(self) -> list[int]:
        """Return the block ids that running requests hold, for `books.check`."""
        return [block for table in self.tables.values() for block in table]

    def check(self) -> None:
        """Audit tables and counts against the books.

        Raises
        ------
        PoolCorrupted
            When a block is in two tables or none, or the counts differ.
        """
        self.books.check(holders=[self])
        if self.books.used != self.used:
            raise PoolCorrupted(f"{self.used} blocks counted, {self.books.used} in use")
