"""The exact values of blocks that are not full yet."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class OpenBlock(NamedTuple):
    """Exact K and V of one block.

    Attributes
    ----------
    k, v : ndarray, shape (n_layers, block_size, n_kv_heads, head_dim)
        Never zeroed; slots that were not written hold anything.
    written : ndarray of bool, shape (n_layers, block_size)
        Slots written since the block was opened, and those it was opened with.
    """

    k: NDArray[Any]
    v: NDArray[Any]
    written: NDArray[np.bool_]


class OpenBlocks(dict[int, OpenBlock]):
    """Open blocks by their physical id: memory is taken only while a block is open.

    Parameters
    ----------
    shape : tuple of int
        (n_layers, block_size, n_kv_heads, head_dim).
    dtype : dtype
        Type of the exact values.

    Attributes
    ----------
    peak : int
        The most blocks that were open at one time.
    """

    def __init__(self, shape: tuple[int, int, int, int], dtype: np.dtype[Any]) -> None:
        super().__init__()
        self.shape, self.dtype = shape, dtype
        self.peak = 0

    def open(self, block: int) -> OpenBlock:
        """Return the exact values of `block`, opened when it was not."""
        if block not in self:
            k, v = np.empty(self.shape, self.dtype), np.empty(self.shape, self.dtype)
            self._add(block, OpenBlock(k, v, np.zeros(self.shape[:2], np.bool_)))
        return self[block]

    def copy_block(self, source: int, target: int) -> None:
        """Make `target` what `source` is: open with the same values, or not open."""
        self.close([target])
        if exact := self.get(source):
            self._add(target, OpenBlock(*(part.copy() for part in exact)))

    def close(self, blocks: list[int]) -> None:
        """Give the memory of `blocks` back, as far as they are open."""
        for block in blocks:
            self.pop(block, None)

    def _add(self, block: int, exact: OpenBlock) -> None:
        self[block] = exact
        self.peak = max(self.peak, len(self))
