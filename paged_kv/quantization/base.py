"""What every quantiser of KV blocks has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.pool import real_numbers

Array = NDArray[Any]
Params = tuple[Array, ...]

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
LARGEST_FLOAT16 = float(np.finfo(np.float16).max)


class Quantizer(ABC):
    """Turns blocks of K or V into packed codes and parameters, and back.

    A block is the K or the V of n tokens of one layer, shape
    (..., n, n_kv_heads, head_dim). Leading axes are further blocks: nothing, no scale
    and no group, ever spans two blocks or two heads, so codes and parameters of a
    block do not depend on what it is quantised together with.

    Attributes
    ----------
    name : str
        For tables and axes, the same in every language.
    """

    name: str

    @abstractmethod
    def quantize(self, block: ArrayLike) -> tuple[Array, Params]:
        """Return packed codes (one byte or less an element) and their parameters.

        Parameters
        ----------
        block : array_like, shape (..., n, n_kv_heads, head_dim)
            Finite, at most `largest(head_dim)` in magnitude; n may be 0.

        Returns
        -------
        codes : ndarray of int8 or uint8
        params : tuple of ndarray
            Scales and the like; each keeps the leading axes of the block.

        Raises
        ------
        ValueError
            For a shape or a value that cannot be quantised.
        TypeError
            For something that does not hold real numbers.
        """

    @abstractmethod
    def dequantize(self, codes: Array, params: Params) -> NDArray[np.float32]:
        """Return the block as it reads back, float32."""

    def unpacked(self, codes: Array) -> Array:
        """Return one whole number per element, for people to look at."""
        return codes

    def largest(self, head_dim: int) -> float:
        """Return the largest magnitude that a block may hold.

        Half of what the narrowest parameter can hold: room for rounding outwards.
        """
        return LARGEST_FLOAT32 / 2

    def bits_per_element(self, shape: Seq[int]) -> float:
        """Return stored bits per element of a block, all parameters counted.

        The block is really quantised and its bytes are counted, so nothing can be
        forgotten. What all blocks share (a rotation, a static scale) is not counted.

        Parameters
        ----------
        shape : sequence of int
            (n, n_kv_heads, head_dim), none of them 0.

        Raises
        ------
        ValueError
            For another shape.
        """
        if len(shape) != 3 or min(shape) < 1:
            raise ValueError(
                f"shape must be (n, n_kv_heads, head_dim), none of them 0, got {shape}"
            )
        codes, params = self.quantize(np.zeros(shape, np.float32))
        stored = codes.nbytes + sum(p.nbytes for p in params)
        return 8 * stored / float(np.prod(shape))

    def _as_block(self, block: ArrayLike) -> NDArray[np.float32]:
        """Return `block` as float32, checked."""
        given = real_numbers("block", block)
        if given.ndim < 3:
            raise ValueError(
                f"block must be (..., n, n_kv_heads, head_dim), got {given.shape}"
            )
        with np.errstate(over="ignore"):  # reported as infinite below
            values = given.astype(np.float32, copy=False)
        largest = self.largest(given.shape[-1])
        # Written so that NaN fails too.
        if not (np.abs(values) <= largest).all():
            if not np.isfinite(values).all():
                raise ValueError("block has NaN or infinite values: it has no scale")
            raise ValueError(
                f"{self.name} takes values up to {largest:g}, "
                f"got {float(np.abs(values).max()):g}"
            )
        return values

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
