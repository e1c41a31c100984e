"""Integers with symmetric scales: int8 per block and head, and its relatives."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.quantization.base import Array, Params, Quantizer
from paged_kv.quantization.packing import bit_width, pack, unpack

#: The axes of (..., n, n_kv_heads, head_dim) that share a scale.
AXES = {"block": (-3, -2, -1), "head": (-3, -1), "token": (-1,)}


def quantize_block_int8(
    Kb: ArrayLike,
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantise a block to int8 with one symmetric scale per head.

    Parameters
    ----------
    Kb : array_like, shape (n, n_kv_heads, d)
        K or V of n tokens of one layer; finite.

    Returns
    -------
    codes : ndarray of int8, shape (n, n_kv_heads, d)
        −127 … 127; −128 is not used, so that the codes are symmetric.
    scale : ndarray of float32, shape (1, n_kv_heads, 1)
        max|Kb| / 127 of each head.

    Raises
    ------
    ValueError
        For another number of dimensions, or values without a scale (NaN, infinite,
        close to the largest float32).

    Notes
    -----
    The error of an element is at most scale / 2 = max|Kb| / 254.
    """
    if np.ndim(Kb) != 3:
        raise ValueError(f"block must be (n, n_kv_heads, d), got shape {np.shape(Kb)}")
    codes, (scale,) = SymmetricInt().quantize(Kb)
    return codes, scale


def dequantize_block_int8(codes: ArrayLike, scale: ArrayLike) -> NDArray[np.float32]:
    """Return codes · scale as float32; the inverse of `quantize_block_int8`.

    Parameters
    ----------
    codes : array_like of int8, shape (n, n_kv_heads, d)
    scale : array_like of float32, shape (1, n_kv_heads, 1)
    """
    return np.asarray(codes, np.float32) * np.asarray(scale, np.float32)


class SymmetricInt(Quantizer):
    """Signed integers times a float32 scale, no zero point.

    Parameters
    ----------
    bits : {8, 4, 3, 2}
        Levels are −q … q with q = 2**(bits − 1) − 1.
    per : {"head", "token", "block"}
        What has a scale of its own: a head of a block (the lecture's int8), a head of
        one token (vLLM's per-token-head), or only the whole block.

    Raises
    ------
    ValueError
        For other bits, or another axis.

    Notes
    -----
    The error of an element is at most scale / 2 = amax / (2 q).
    """

    def __init__(
        self, bits: int = 8, per: Literal["head", "token", "block"] = "head"
    ) -> None:
        if per not in AXES:
            raise ValueError(f"per must be one of {tuple(AXES)}, got {per!r}")
        self.bits, self.per = bit_width(bits), per
        self.q = 2 ** (self.bits - 1) - 1
        self.name = f"int{self.bits}/{per}"

    def quantize(self, block: ArrayLike) -> tuple[Array, Params]:
        """See `Quantizer.quantize`; the one parameter is the scale."""
        values = self._as_block(block)
        codes, scale = _round_to_scale(values, AXES[self.per], self.q)
        if self.bits == 8:
            return codes, (scale,)
        return pack(codes + np.int8(self.q), self.bits), (scale,)

    def dequantize(self, codes: Array, params: Params) -> NDArray[np.float32]:
        """See `Quantizer.dequantize`."""
        return dequantize_block_int8(self.unpacked(codes), params[0])

    def unpacked(self, codes: Array) -> Array:
        """See `Quantizer.unpacked`."""
        if self.bits == 8:
            return codes
        return unpack(codes, self.bits).view(np.int8) - np.int8(self.q)


def _round_to_scale(
    values: NDArray[np.float32], axes: tuple[int, ...], q: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return codes −q … q and the scale amax / q over `axes`."""
    amax = np.abs(values).max(axis=axes, keepdims=True, initial=0.0)
    scale = amax / np.float32(q)
    # amax / q of the smallest subnormals is itself 0: such a head reads as zeros.
    divisor = np.where(scale > 0, scale, np.float32(np.inf))
    codes = np.clip(np.round(values / divisor), -q, q).astype(np.int8)
    return codes, scale
