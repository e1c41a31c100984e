"""What int8 blocks become when a step of quantisation is done wrongly.

A wrong result is compared with the result of each of these mistakes: equal numbers name
the mistake, whatever the code looks like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.messages import tr
from paged_kv.quantization import dequantize_block_int8, quantize_block_int8

Array = NDArray[Any]
HEADS, DIM = 3, 8  # of all blocks that the cases make


def _amax(K: Array) -> Array:
    return np.asarray(np.abs(K).max(axis=(0, 2), keepdims=True))


def _range(K: Array) -> Array:
    high = K.max(axis=(0, 2), keepdims=True)
    return np.asarray(high - K.min(axis=(0, 2), keepdims=True))


def one_scale_cause() -> str:
    """Return the explanation of one scale for all heads."""
    return tr(
        "All heads share one scale, so the largest head decides how "
        "coarse the others are. Take the maximum over axes 0 and 2 only."
    )


def _range_cause() -> str:
    return tr(
        "The scale comes from the range, `max - min`. These codes are symmetric and "
        "have no zero point: take the largest magnitude, `max|K|`."
    )


#: K → the scale that a mistake gives.
SCALE_FLAWS: dict[str, tuple[Callable[[Array], Array], Callable[[], str]]] = {
    "one-scale-for-all-heads": (
        lambda K: np.full((1, K.shape[1], 1), np.abs(K).max() / 127),
        one_scale_cause,
    ),
    "range-in-place-of-amax": (
        lambda K: _range(K) / 254,
        _range_cause,
    ),
    "range-over-255": (
        lambda K: _range(K) / 255,
        _range_cause,
    ),
    "sign-lost": (
        lambda K: K.max(axis=(0, 2), keepdims=True) / 127,
        lambda: tr(
            "The scale comes from the largest value; the largest magnitude "
            "may belong to a negative one. Take `np.abs` first."
        ),
    ),
    "divided-by-128": (
        lambda K: _amax(K) / 128,
        lambda: tr(
            "With `amax / 128` the largest value becomes 128, and int8 ends "
            "at 127. Divide by 127."
        ),
    ),
    "divided-by-255": (
        lambda K: _amax(K) / 255,
        lambda: tr(
            "255 levels cover both signs; the magnitude has 127 of them. Divide by 127."
        ),
    ),
    "scale-not-divided": (
        _amax,
        lambda: tr("The scale is the value of one step: `amax / 127`."),
    ),
    "scale-inverted": (
        lambda K: 127 / _amax(K),
        lambda: tr(
            "The scale is upside down: `127 / amax`. It is what a code is "
            "multiplied by when it is read back, `amax / 127`."
        ),
    ),
}

#: K / scale → the codes that a mistake gives.
CODE_FLAWS: dict[str, tuple[Callable[[Array], Array], Callable[[], str]]] = {
    "truncated": (
        np.trunc,
        lambda: tr(
            "The codes are cut off towards 0, which doubles the largest "
            "error. Round before the cast: `np.round`."
        ),
    ),
    "floored": (
        np.floor,
        lambda: tr(
            "The codes are rounded down, which doubles the largest error and "
            "shifts everything. Round to the nearest: `np.round`."
        ),
    ),
}


def _frozen(K: Array, _: Array) -> Array:
    return _with_scale(K, _amax(K[:1]) / 127)


def _of_first_block(K: Array, first: Array) -> Array:
    return _with_scale(K, _amax(first) / 127)


def _one_scale(K: Array, _: Array) -> Array:
    return _with_scale(K, np.abs(K).max() / 127)


def _with_scale(K: Array, scale: Any) -> Array:
    return np.asarray(np.clip(np.round(K / scale), -127, 127) * scale)


def _requantised(K: Array, _: Array) -> Array:
    """Quantise all that is there after each append, from what reads back."""
    read = K[:0]
    for k in K:
        read = np.concatenate([read, k[None]])
        read = dequantize_block_int8(*quantize_block_int8(read))
    return read


#: A block and the first block of the sequence → how it reads with a mistake.
BLOCK_FLAWS: dict[str, tuple[Callable[[Array, Array], Array], Callable[[], str]]] = {
    "requantised": (
        _requantised,
        lambda: tr(
            "The block was quantised again with each token, from values that had been "
            "rounded before, and the errors add up. Keep the tail exact and quantise "
            "once, when the block is full."
        ),
    ),
    "scale-frozen": (
        _frozen,
        lambda: tr(
            "The scale comes from the first token of the block, and later ones are "
            "larger: they were cut off. The maximum is known when the block is full."
        ),
    ),
    "scale-of-first-block": (
        _of_first_block,
        lambda: tr(
            "Every block uses the scale of the first one. Each block has scales of "
            "its own: that is what makes blocks independent."
        ),
    ),
    "one-scale-for-all-heads": (
        _one_scale,
        one_scale_cause,
    ),
}
