"""Codes and parameters of all blocks of a pool, for K or for V."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.quantization.base import Quantizer


class CodeStore:
    """Arrays of packed codes and their parameters, indexed by (layer, block).

    Parameters
    ----------
    quantizer : Quantizer
        Decides what is stored: one block is quantised to learn shapes and dtypes.
    n_layers, num_blocks : int
    block_shape : tuple of int
        (block_size, n_kv_heads, head_dim).

    Attributes
    ----------
    arrays : list of ndarray, each (n_layers, num_blocks, ...)
        Codes first, then the parameters. Never zeroed.
    """

    def __init__(
        self,
        quantizer: Quantizer,
        n_layers: int,
        num_blocks: int,
        block_shape: tuple[int, int, int],
    ) -> None:
        self.quantizer = quantizer
        codes, params = quantizer.quantize(np.zeros(block_shape, np.float32))
        self.arrays: list[NDArray[Any]] = [
            np.empty((n_layers, num_blocks, *part.shape), part.dtype)
            for part in (codes, *params)
        ]

    def write(self, index: Any, block: ArrayLike) -> None:
        """Quantise a block (or equally many as `index` names) and keep its codes."""
        codes, params = self.quantizer.quantize(block)
        for array, part in zip(self.arrays, (codes, *params), strict=True):
            array[index] = part

    def read(self, index: Any) -> NDArray[np.float32]:
        """Return the blocks at `index` as they read back."""
        codes, *params = (array[index] for array in self.arrays)
        return self.quantizer.dequantize(codes, tuple(params))

    def copy(self, source: int, target: int) -> None:
        """Copy a block's codes and all its parameters, in every layer."""
        for array in self.arrays:
            array[:, target] = array[:, source]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)
