"""KIVI's integers: small groups along one axis, each with a minimum and a step."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.quantization.base import LARGEST_FLOAT16, Array, Params, Quantizer
from paged_kv.quantization.packing import bit_width, pack, unpack
from paged_kv.spec import whole


class GroupedInt(Quantizer):
    """Unsigned integers with a minimum and a step per group, both float16.

    Parameters
    ----------
    bits : {4, 3, 2, 8}
    per : {"channel", "token"}
        "channel": a group is up to `group` tokens of one channel (KIVI's K, whose
        outliers are channels). "token": a group is `group` channels of one token and
        head (KIVI's V).
    group : int
        Elements of a group. The last one of an axis may be shorter; groups never
        leave their block, so K needs blocks of `group` tokens for full groups.

    Raises
    ------
    ValueError
        For other bits, another axis, or a group below 1.

    Notes
    -----
    KIVI: Liu et al., arXiv 2402.02750, section 3. Minimum and step are rounded
    outwards, so every value stays inside its grid and the error of an element is at
    most step / 2. The exact residual of KIVI is the pool's exact tail: blocks of R
    tokens give its residual length R.
    """

    def __init__(
        self, bits: int, per: Literal["channel", "token"], group: int = 32
    ) -> None:
        if per not in ("channel", "token"):
            raise ValueError(f'per must be "channel" or "token", got {per!r}')
        self.bits, self.per = bit_width(bits), per
        self.group = whole("group", group, 1)
        self.axis = -3 if per == "channel" else -1
        self.levels = 2**self.bits - 1
        self.name = f"int{self.bits}/{per}/g{group}"

    def quantize(self, block: ArrayLike) -> tuple[Array, Params]:
        """See `Quantizer.quantize`; parameters are minimum and step of each group."""
        values = self._as_block(block)
        starts = np.arange(0, values.shape[self.axis], self.group)
        low = np.minimum.reduceat(values, starts, axis=self.axis)
        high = np.maximum.reduceat(values, starts, axis=self.axis)
        minimum = _rounded(low, -np.inf)
        step = _rounded((high - minimum.astype(np.float32)) / self.levels, np.inf)
        wide_minimum, wide_step = self._spread((minimum, step), values.shape[self.axis])
        # A group of one float16 number has step 0, and every code is then 0.
        divisor = np.where(wide_step > 0, wide_step, np.float32(np.inf))
        codes = np.round((values - wide_minimum) / divisor)
        return pack(codes.clip(0, self.levels).astype(np.uint8), self.bits), (
            minimum,
            step,
        )

    def dequantize(self, codes: Array, params: Params) -> NDArray[np.float32]:
        """See `Quantizer.dequantize`."""
        wide = self.unpacked(codes)
        minimum, step = self._spread(params, wide.shape[self.axis])
        out = wide.astype(np.float32)
        out *= step
        out += minimum
        return out

    def unpacked(self, codes: Array) -> Array:
        """See `Quantizer.unpacked`."""
        return unpack(codes, self.bits)

    def largest(self, head_dim: int) -> float:
        """See `Quantizer.largest`; the parameters are float16."""
        return LARGEST_FLOAT16 / 2

    def _spread(self, params: Params, n: int) -> list[NDArray[np.float32]]:
        """Return each parameter as float32, once per element of the grouped axis."""
        group_of = np.arange(n) // self.group
        return [p.astype(np.float32).take(group_of, axis=self.axis) for p in params]


def _rounded(values: NDArray[np.float32], towards: float) -> NDArray[np.float16]:
    """Return float16 numbers, none of them on the wrong side of `values`."""
    near: NDArray[Any] = values.astype(np.float16)
    wrong = near < values if towards > 0 else near > values
    return np.where(wrong, np.nextafter(near, np.float16(towards)), near)
