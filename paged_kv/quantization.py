"""Quantisers of one KV block."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
        round(Kb / scale), within ±127.
    scale : ndarray of float32, shape (1, n_kv_heads, 1)
        max|Kb| / 127 over tokens and channels; 0 for a head of zeros.

    Raises
    ------
    ValueError
        For another number of dimensions, or NaN and infinities, which have no scale.

    Notes
    -----
    The error of an element is at most scale / 2 = max|Kb| / 254.
    """
    Kb = np.asarray(Kb, np.float32)
    if Kb.ndim != 3:
        raise ValueError(f"block must be (n, n_kv_heads, d), got shape {Kb.shape}")
    if not np.isfinite(Kb).all():
        raise ValueError("block has NaN or infinite values: it has no scale")
    amax = np.abs(Kb).max(axis=(0, 2), keepdims=True, initial=0.0)
    scale = amax / np.float32(127)
    # amax / 127 of the smallest subnormals is itself 0: such a head reads as zeros.
    divisor = np.where(scale > 0, scale, np.float32(np.inf))
    codes = np.clip(np.round(Kb / divisor), -127, 127).astype(np.int8)
    return codes, scale


def dequantize_block_int8(codes: ArrayLike, scale: ArrayLike) -> NDArray[np.float32]:
    """Return codes · scale as float32; the inverse of `quantize_block_int8`.

    Parameters
    ----------
    codes : array_like of int8, shape (n, n_kv_heads, d)
    scale : array_like of float32, shape (1, n_kv_heads, 1)
    """
    return np.asarray(codes, np.float32) * np.asarray(scale, np.float32)
