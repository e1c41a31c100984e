"""Reservation: a contiguous chunk for the whole request when it is admitted.

The three Orca baselines of SOSP'23, section 6.1; they differ in how much they reserve.
"""

from __future__ import annotations

from abc import abstractmethod

from paged_kv.serving.allocators.base import Allocator, Held, Span, Usage
from paged_kv.serving.buddy import BuddyAllocator
from paged_kv.spec import whole


class ReservingAllocator(Allocator):
    """Reserves one contiguous chunk per request, from a buddy allocator.

    Parameters
    ----------
    num_slots : int
        Slots of the cache.
    max_len : int
        Longest request that the model allows, in tokens; at least 2.

    Raises
    ------
    ValueError
        For a number below its least.
    """

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
        self._require_new(request)
        final = length + remaining
        if final > self.max_len:
            raise ValueError(
                f"request {request} of {final} tokens is longer than {self.max_len}"
            )
        reserved = self.reserve(length, remaining)
        start = self.buddy.allocate(reserved)
        if start is None:
            return False
        self._held[request] = Held(length - self.iteration, final, reserved, start)
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
