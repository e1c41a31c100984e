"""Lloyd–Max codebooks: the best levels for numbers that are normally distributed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.quantization.base import LARGEST_FLOAT16, Array, Params, Quantizer
from paged_kv.quantization.packing import bit_width, pack, unpack

#: Bits → the positive levels of the codebook with the least squared error for N(0, 1)
#: (Max, 1960, table I, to more digits). The negative ones mirror them.
POSITIVE_LEVELS = {
    2: (0.4527800, 1.5104176),
    3: (0.2450942, 0.7560053, 1.3439093, 2.1519457),
    4: (
        *(0.1283950, 0.3880483, 0.6567591, 0.9423405),
        *(1.2562312, 1.6180464, 2.0690172, 2.7325896),
    ),
}


class Codebook(Quantizer):
    """Each element becomes the index of the nearest level, times a float16 rms.

    Parameters
    ----------
    bits : {2, 3, 4}

    Raises
    ------
    ValueError
        For other bits.

    Notes
    -----
    The levels are the best ones for a normal distribution. The elements of K are not
    normal, but after a random rotation they nearly are: use it as
    ``RandomRotation(Codebook(bits))``, as TurboQuant does (arXiv 2504.19874, without
    its 1-bit correction of the residual). The parameter is the root mean square of
    each token and head.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bit_width(bits, POSITIVE_LEVELS)
        self.name = f"lloyd-max{self.bits}/token"
        positive = np.array(POSITIVE_LEVELS[self.bits], np.float32)
        self.levels: NDArray[np.float32] = np.concatenate([-positive[::-1], positive])
        self.edges = (self.levels[1:] + self.levels[:-1]) / 2

    def quantize(self, block: ArrayLike) -> tuple[Array, Params]:
        """See `Quantizer.quantize`; the one parameter is the rms."""
        values = self._as_block(block)
        d = values.shape[-1]
        power = np.square(values).sum(axis=-1, keepdims=True) / np.float32(max(d, 1))
        rms = np.sqrt(power).astype(np.float16)
        wide = rms.astype(np.float32)
        divisor = np.where(wide > 0, wide, np.float32(np.inf))
        scaled = values / divisor
        codes = np.zeros(values.shape, np.uint8)
        for edge in self.edges:  # few enough to be faster than a search for each value
            codes += scaled > edge
        return pack(codes, self.bits), (rms,)

    def dequantize(self, codes: Array, params: Params) -> NDArray[np.float32]:
        """See `Quantizer.dequantize`."""
        return self.levels[self.unpacked(codes)] * params[0].astype(np.float32)

    def unpacked(self, codes: Array) -> Array:
        """See `Quantizer.unpacked`; indices of levels."""
        return unpack(codes, self.bits)

    def largest(self, head_dim: int) -> float:
        """See `Quantizer.largest`; the rms is float16."""
        return LARGEST_FLOAT16 / 2
