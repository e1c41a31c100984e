"""Which leaf of the radix tree is given up first: one small class for each rule."""

from __future__ import annotations

from typing import Any, Protocol


class Used(Protocol):
    """What a policy may ask about a node of the tree.

    Attributes
    ----------
    created, last_used : float
        Times of the cache's clock.
    hits : int
        Requests that matched it.
    """

    created: float
    last_used: float
    hits: int


class Policy(Protocol):
    """Orders the leaves: the one with the least priority is evicted first.

    The priority of a node may rise as it is used, and never falls.
    """

    def priority(self, node: Used) -> Any:
        """Return something that can be compared."""


class LRU:
    """Least recently used first."""

    def priority(self, node: Used) -> float:
        """Return the time of the last use."""
        return node.last_used


class LFU:
    """Least frequently used first; among equals the least recently used."""

    def priority(self, node: Used) -> tuple[int, float]:
        """Return the number of hits, then the time of the last use."""
        return node.hits, node.last_used


class FIFO:
    """Oldest first, used or not."""

    def priority(self, node: Used) -> float:
        """Return the time of creation."""
        return node.created


POLICIES: dict[str, Policy] = {"lru": LRU(), "lfu": LFU(), "fifo": FIFO()}
