"""Rotations of the head dimension: an outlier channel is spread over all of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.quantization.base import Array, Params, Quantizer


def hadamard_matrix(d: int) -> NDArray[np.float32]:
    """Return the orthonormal, symmetric Hadamard matrix of size d, a power of two.

    Sylvester's construction; all entries are ±1/sqrt(d).

    Raises
    ------
    ValueError
        When d is not a power of two.
    """
    if d < 1 or d & (d - 1):
        raise ValueError(f"a Hadamard rotation needs a power of two, got head_dim {d}")
    H = np.ones((1, 1), np.float32)
    while len(H) < d:
        H = np.block([[H, H], [H, -H]])
    return H / np.float32(math.sqrt(d))


def random_rotation(d: int, seed: int = 0) -> NDArray[np.float32]:
    """Return a random orthogonal (d, d) matrix, the same for the same seed."""
    normal = np.random.default_rng(seed).normal(size=(d, d))
    Q, R = np.linalg.qr(normal)
    # Without the signs of R the result is not uniform, and depends on the library.
    return (Q * np.sign(np.diag(R))).astype(np.float32)


class _Rotated(Quantizer):
    """Rotate each head, quantise with another quantiser, rotate back when reading.

    Rotating back keeps attention unchanged. A kernel saves that work for K: it
    rotates q instead, since (q R) · (k R) = q · k.
    """

    def __init__(self, inner: Quantizer, prefix: str) -> None:
        self.inner = inner
        self.name = f"{prefix}+{inner.name}"
        self._matrices: dict[int, NDArray[np.float32]] = {}

    def matrix(self, d: int) -> NDArray[np.float32]:
        """Return the orthogonal (d, d) matrix of the rotation; rows are ``row @ R``."""
        if d not in self._matrices:
            self._matrices[d] = self._make(d)
        return self._matrices[d]

    def _make(self, d: int) -> NDArray[np.float32]:
        raise NotImplementedError

    def quantize(self, block: ArrayLike) -> tuple[Array, Params]:
        """See `Quantizer.quantize`; codes and parameters are the inner one's."""
        values = np.ascontiguousarray(self._as_block(block))
        return self.inner.quantize(values @ self.matrix(values.shape[-1]))

    def dequantize(self, codes: Array, params: Params) -> NDArray[np.float32]:
        """See `Quantizer.dequantize`."""
        values = self.inner.dequantize(codes, params)
        return values @ self.matrix(values.shape[-1]).T

    def unpacked(self, codes: Array) -> Array:
        """See `Quantizer.unpacked`; of the rotated block."""
        return self.inner.unpacked(codes)

    def largest(self, head_dim: int) -> float:
        """See `Quantizer.largest`; a rotation can gather sqrt(head_dim) times that."""
        return self.inner.largest(head_dim) / (2 * math.sqrt(head_dim))


class Hadamard(_Rotated):
    """Hadamard rotation around any quantiser (QuaRot, arXiv 2404.00456).

    Parameters
    ----------
    inner : Quantizer
        Quantises the rotated block. head_dim must be a power of two.
    """

    def __init__(self, inner: Quantizer) -> None:
        super().__init__(inner, "hadamard")

    def _make(self, d: int) -> NDArray[np.float32]:
        return hadamard_matrix(d)


class RandomRotation(_Rotated):
    """Random orthogonal rotation around any quantiser; any head_dim.

    Parameters
    ----------
    inner : Quantizer
    seed : int
        The rotation is the same for the same seed and head_dim.
    """

    def __init__(self, inner: Quantizer, seed: int = 0) -> None:
        super().__init__(inner, "rotation")
        self.seed = seed

    def _make(self, d: int) -> NDArray[np.float32]:
        return random_rotation(d, self.seed)
