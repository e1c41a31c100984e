"""Several narrow codes in one byte (three bits: eight codes in three bytes)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.spec import whole

# Bits of a code → codes in a word, bytes of a word.
WORDS = {2: (4, 1), 3: (8, 3), 4: (2, 1), 8: (1, 1)}


def bit_width(bits: int, allowed: Iterable[int] = WORDS) -> int:
    """Return `bits` as an int, or raise ValueError when no code is that wide."""
    if (width := whole("bits", bits, 1)) not in allowed:
        raise ValueError(f"bits must be one of {tuple(allowed)}, got {bits!r}")
    return width


def pack(codes: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Return codes packed along the last axis.

    Lane i of the words holds the i-th part of the axis, not every i-th element: each
    lane is then one contiguous slice.

    Parameters
    ----------
    codes : ndarray of integers, shape (..., d)
        0 … 2**bits − 1.
    bits : int
        2, 3, 4 or 8.

    Returns
    -------
    ndarray of uint8, shape (..., d · bits / 8)

    Raises
    ------
    ValueError
        When d does not fill whole words.
    """
    lanes, width = WORDS[bits]
    if codes.shape[-1] % lanes:
        raise ValueError(
            f"{bits}-bit codes pack {lanes} to a word: head_dim must be a multiple of "
            f"{lanes}, got {codes.shape[-1]}"
        )
    per_lane = codes.shape[-1] // lanes
    words = np.zeros((*codes.shape[:-1], per_lane), np.uint8 if width == 1 else "u4")
    for i in range(lanes):
        lane = codes[..., i * per_lane : (i + 1) * per_lane].astype(words.dtype)
        words |= lane << (bits * i)
    if width == 1:
        return words
    return np.concatenate([(words >> 8 * i).astype(np.uint8) for i in range(width)], -1)


def unpack(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Return the codes that `pack` packed, shape (..., d)."""
    lanes, width = WORDS[bits]
    words: NDArray[Any] = packed
    if width > 1:
        columns = np.split(packed, width, axis=-1)
        words = columns[0].astype("u4")
        for i, column in enumerate(columns[1:], start=1):
            words |= column.astype("u4") << 8 * i
    mask = (1 << bits) - 1
    parts = [(words >> (bits * i) & mask).astype(np.uint8) for i in range(lanes)]
    return np.concatenate(parts, axis=-1)
