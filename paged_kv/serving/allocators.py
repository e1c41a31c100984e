"""Four ways to give requests memory for their KV cache, behind one interface.

Three reserve a contiguous chunk for the whole request when it is admitted (the Orca
baselines of SOSP'23, section 6.1); the fourth takes blocks as tokens come.

Everything is counted in slots: one slot holds K and V of one token. Requests differ in
length but grow in step, one token per iteration. So a request admitted after iteration
`i` with `n` tokens always has ``iteration + n − i`` tokens, and the totals of the whole
batch can be moved on by many iterations with a few additions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from paged_kv.allocator import BlockAllocator
from paged_kv.audit import PoolCorrupted
from paged_kv.serving.buddy import BuddyAllocator
from paged_kv.spec import whole


class Usage(NamedTuple):
    """Where the slots of the cache are; the four numbers add up to all of them.

    Attributes
    ----------
    tokens : int
        Slots that hold a token: the useful ones.
    reservation : int
        Reserved slots that the request will fill later.
    internal : int
        Slots given to a request that hold nothing: never filled (reservation), or the
        empty end of a last block (paging).
    other : int
        The rest: free slots, and what rounding up to a power of two adds (external
        fragmentation and other in figure 2 of the paper).
    """

    tokens: int
    reservation: int
    internal: int
    other: int


class Span(NamedTuple):
    """Consecutive slots that one running request has been given.

    Attributes
    ----------
    request, start, slots : int
        Whose they are, the first of them, and how many.
    tokens, reservation, internal : int
        What they are used for, in this order from the first on; as in `Usage`. The rest
        is what rounding up adds.
    """

    request: int
    start: int
    slots: int
    tokens: int
    reservation: int
    internal: int


@dataclass
class _Held:
    """What one running request holds. Tokens now: ``iteration + offset``."""

    offset: int
    final: int
    reserved: int = 0
    start: int = 0


class Allocator(ABC):
    """Memory for running requests.

    Parameters
    ----------
    num_slots : int
        Slots of the cache.

    Attributes
    ----------
    iteration : int
        Iterations run so far.
    tokens : int
        Tokens that all running requests hold now.
    name : str
        English name, also the key of its translation.
    """

    name = ""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = whole("num_slots", num_slots, 1)
        self.iteration = 0
        self.tokens = 0
        self._held: dict[int, _Held] = {}

    def __len__(self) -> int:
        """Return the number of running requests."""
        return len(self._held)

    @abstractmethod
    def can_ever_fit(self, prompt: int, output: int) -> bool:
        """Whether the request fits into an otherwise empty cache, to its end."""

    @abstractmethod
    def admit(self, request: int, length: int, remaining: int) -> bool:
        """Give a request memory for its next iteration, or change nothing.

        Parameters
        ----------
        request : int
            Its number; must not be running.
        length : int
            Tokens to store now: the prompt, and after a preemption the answer so far.
        remaining : int
            Tokens still to come. Only an oracle may look at this in advance.

        Returns
        -------
        bool
            Whether it was admitted.
        """

    @abstractmethod
    def release(self, request: int) -> None:
        """Take back everything that a running request holds."""

    def room(self, at_most: int) -> int:
        """Return how many iterations, up to `at_most`, there is memory for."""
        return at_most

    @abstractmethod
    def advance(self, steps: int) -> tuple[int, int, int]:
        """Run `steps` iterations: every running request grows by as many tokens.

        Returns
        -------
        tokens, reservation, internal : int
            As in `Usage`, each summed over the states after every iteration.
        """

    @abstractmethod
    def usage(self) -> Usage:
        """Return where the slots are now."""

    def _grow(self, steps: int) -> int:
        """Move on and return the sum of `tokens` over the states after each step."""
        n = len(self._held)
        summed = steps * self.tokens + n * steps * (steps + 1) // 2
        self.iteration += steps
        self.tokens += n * steps
        return summed


class ReservingAllocator(Allocator):
    """Reserves one contiguous chunk per request, from a buddy allocator."""

    def __init__(self, num_slots: int, max_len: int = 2048) -> None:
        super().__init__(num_slots)
        self.max_len = whole("max_len", max_len, 2)
        self.buddy = BuddyAllocator(num_slots)
        self._final = self._reserved = 0

    @abstractmethod
    def reserve(self, length: int, remaining: int) -> int:
        """Slots to reserve for a request, at least ``length + remaining``."""

    def can_ever_fit(self, prompt: int, output: int) -> bool:
        """See `Allocator.can_ever_fit`; nothing may be longer than `max_len`."""
        chunk = self.buddy.chunk_size(self.reserve(prompt, output))
        largest = 1 << (self.num_slots.bit_length() - 1)
        return prompt + output <= self.max_len and chunk <= largest

    def admit(self, request: int, length: int, remaining: int) -> bool:
        """See `Allocator.admit`."""
        reserved = self.reserve(length, remaining)
        start = self.buddy.allocate(reserved)
        if start is None:
            return False
        final = length + remaining
        self._held[request] = _Held(length - self.iteration, final, reserved, start)
        self.tokens += length
        self._final += final
        self._reserved += reserved
        return True

    def release(self, request: int) -> None:
        """See `Allocator.release`."""
        held = self._held.pop(request)
        self.buddy.release(held.start)
        self.tokens -= self.iteration + held.offset
        self._final -= held.final
        self._reserved -= held.reserved

    def advance(self, steps: int) -> tuple[int, int, int]:
        """See `Allocator.advance`."""
        tokens = self._grow(steps)
        internal = self._reserved - self._final
        return tokens, steps * self._final - tokens, steps * internal

    def usage(self) -> Usage:
        """See `Allocator.usage`."""
        return Usage(
            self.tokens,
            self._final - self.tokens,
            self._reserved - self._final,
            self.num_slots - self._reserved,
        )

    def spans(self) -> list[Span]:
        """Return the chunk of each running request, in order of admission."""
        spans = []
        for request, held in self._held.items():
            tokens = self.iteration + held.offset
            spans.append(
                Span(
                    request,
                    held.start,
                    self.buddy.chunk_size(held.reserved),
                    tokens,
                    held.final - tokens,
                    held.reserved - held.final,
                )
            )
        return spans


class MaxReservation(ReservingAllocator):
    """Reserves the longest length the model allows: Orca (Max)."""

    name = "Orca (Max)"

    def reserve(self, length: int, remaining: int) -> int:
        """See `ReservingAllocator.reserve`."""
        return self.max_len


class Pow2Reservation(ReservingAllocator):
    """Guesses the answer's length to within a factor of two: Orca (Pow2)."""

    name = "Orca (Pow2)"

    def reserve(self, length: int, remaining: int) -> int:
        """See `ReservingAllocator.reserve`."""
        return min(length + (1 << (remaining - 1).bit_length()), self.max_len)


class OracleReservation(ReservingAllocator):
    """Knows the answer's length in advance, which no real system does."""

    name = "Orca (Oracle)"

    def reserve(self, length: int, remaining: int) -> int:
        """See `ReservingAllocator.reserve`."""
        return length + remaining


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
        growth = self._starts[self.iteration % self.block_size]
        needed = self.used + growth + self.blocks_for(length + 1)
        if needed > self.num_blocks - self.watermark_blocks:
            return False
        offset = length - self.iteration
        self._held[request] = _Held(offset, length + remaining)
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
