"""FP8 E4M3: eight bits that spend four of them on an exponent."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.quantization.base import Array, Params, Quantizer

#: Largest finite E4M3 number. The cast turns what rounds above it into NaN.
LARGEST = 448.0


class Fp8E4M3(Quantizer):
    """Values divided by one static scale and cast to E4M3; needs ml_dtypes.

    Parameters
    ----------
    scale : float
        One number for every block, as engines keep one per layer. 1.0 is the
        uncalibrated default; K and V want scales of their own.
    name : str
        For tables and axes.

    Raises
    ------
    ValueError
        For a scale that is not a float32 above 0.

    Notes
    -----
    Values beyond 448 · scale saturate. Below that the error is at most |x| / 16, or
    scale / 1024 near zero, where the numbers are subnormal.
    """

    def __init__(self, scale: float = 1.0, name: str = "fp8 static") -> None:
        from ml_dtypes import float8_e4m3fn

        self.scale = np.float32(scale)
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale must be a float32 above 0, got {scale!r}")
        self.name = name
        self._dtype = np.dtype(float8_e4m3fn)
        every = np.arange(256, dtype=np.uint8).view(self._dtype)
        self._values: NDArray[np.float32] = every.astype(np.float32) * self.scale

    @classmethod
    def calibrated(cls, sample: ArrayLike) -> Fp8E4M3:
        """Return a quantiser whose scale maps the largest of `sample` to 448.

        Raises
        ------
        ValueError
            For a sample without a finite value other than 0.
        """
        amax = float(np.abs(np.asarray(sample, np.float32)).max(initial=0.0))
        return cls(amax / LARGEST, "fp8 calibrated")

    def quantize(self, block: ArrayLike) -> tuple[Array, Params]:
        """See `Quantizer.quantize`; there are no parameters per block."""
        with np.errstate(over="ignore"):  # beyond float32 is beyond 448 as well
            scaled = self._as_block(block) / self.scale
        return scaled.clip(-LARGEST, LARGEST).astype(self._dtype).view(np.uint8), ()

    def dequantize(self, codes: Array, params: Params) -> NDArray[np.float32]:
        """See `Quantizer.dequantize`."""
        return self._values.take(codes)
