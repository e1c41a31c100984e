"""What every allocator of slots has in common: its interface and its totals.

Everything is counted in slots: one slot holds K and V of one token. Requests differ in
length but grow in step, one token per iteration. So a request admitted after iteration
`i` with `n` tokens always has ``iteration + n − i`` tokens, and the totals of the whole
batch can be moved on by many iterations with a few additions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

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
class Held:
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

    Raises
    ------
    ValueError
        For a number of slots below 1.
    """

    name = ""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = whole("num_slots", num_slots, 1)
        self.iteration = 0
        self.tokens = 0
        self._held: dict[int, Held] = {}

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

        Raises
        ------
        ValueError
            When the request is running already, or is longer than the model allows.
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

    def _require_new(self, request: int) -> None:
        if request in self._held:
            raise ValueError(f"request {request} is running already")

    def _grow(self, steps: int) -> int:
        """Move on and return the sum of `tokens` over the states after each step."""
        n = len(self._held)
        summed = steps * self.tokens + n * steps * (steps + 1) // 2
        self.iteration += steps
        self.tokens += n * steps
        return summed
