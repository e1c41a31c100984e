"""The order in which free blocks are handed out again, when their contents matter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Protocol


class FreeList(Protocol):
    """What the allocator does with its free blocks; `list` and `FreeQueue` fit."""

    def pop(self) -> int:
        """Remove and return the block to hand out next."""

    def append(self, block: int, /) -> None:
        """Add a block that was freed."""

    def extend(self, blocks: Iterable[int], /) -> None:
        """Add blocks in the order in which they were freed."""

    def remove(self, block: int, /) -> None:
        """Take one block out, wherever it stands."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...


class IndexesContents(Protocol):
    """A cache that finds blocks by their contents, free ones included."""

    def forget(self, block: int) -> None:
        """Drop `block` from the index: its contents are about to change."""


class FreeQueue:
    """Free blocks, the one freed longest ago first; O(1) removal from the middle.

    It stands in for the allocator's plain stack once a prefix cache indexes the pool:
    a block freed just now is the one whose contents are most likely asked for again,
    so it is handed out last, and a block that is asked for leaves the queue from
    wherever it stands.

    Parameters
    ----------
    blocks : iterable of int
        Blocks that are free already, the first to be handed out first.
    index : IndexesContents
        Is told of each block that is handed out: its contents are lost then.

    Notes
    -----
    An OrderedDict is a linked list with an index: what vLLM's free queue is, too. A
    plain dict would not do: it finds its first key by walking over all deleted ones.
    """

    def __init__(self, blocks: Iterable[int], index: IndexesContents) -> None:
        self._blocks = OrderedDict.fromkeys(blocks)
        self._index = index

    def pop(self) -> int:
        """Remove and return the block freed longest ago; the index forgets it."""
        block, _ = self._blocks.popitem(last=False)
        self._index.forget(block)
        return block

    def append(self, block: int) -> None:
        """Add a block that was freed just now."""
        self._blocks[block] = None

    def extend(self, blocks: Iterable[int]) -> None:
        """Add blocks in the order in which they were freed."""
        self._blocks.update(dict.fromkeys(blocks))

    def remove(self, block: int) -> None:
        """Take one block out, wherever it stands; it keeps its contents."""
        del self._blocks[block]

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[int]:
        return iter(self._blocks)
