"""What a scheme costs in bits, and what it breaks: K, V and attention itself.

Everything here takes plain arrays, so the K, V and queries of a real model's layer
can be put in as well as synthetic ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.quantization.base import Quantizer
from paged_kv.quantization.codebook import Codebook
from paged_kv.quantization.fp8 import Fp8E4M3
from paged_kv.quantization.groups import GroupedInt
from paged_kv.quantization.integers import SymmetricInt
from paged_kv.quantization.rotation import Hadamard, RandomRotation
from paged_kv.spec import whole

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Scheme:
    """How a whole cache is kept.

    Parameters
    ----------
    name : str
    k, v : Quantizer or None
        None keeps the tensor exact.
    block_size : int
        Tokens quantised together; a partial last block stays exact.
    window : int
        This many of the last tokens stay exact, too.

    Raises
    ------
    ValueError
        For a block size below 1 or a window below 0.
    """

    name: str
    k: Quantizer | None
    v: Quantizer | None
    block_size: int = 16
    window: int = 0

    def __post_init__(self) -> None:
        whole("block_size", self.block_size, 1)
        whole("window", self.window, 0)

    def coded_tokens(self, n_tokens: int) -> int:
        """Return how many of the first tokens are kept as codes."""
        return max(0, n_tokens - self.window) // self.block_size * self.block_size

    def bits(
        self, n_tokens: int, n_kv_heads: int, head_dim: int, exact_bits: int = 16
    ) -> float:
        """Return bits per element, mean of K and V, of a cache of this length.

        Exact tokens count with `exact_bits`: an exact window is not free, and at
        short lengths it is most of the cache.

        Parameters
        ----------
        n_tokens : int
            At least 1.
        n_kv_heads, head_dim : int
            Shape of a token.
        exact_bits : int
            Bits of an element that is not quantised.

        Raises
        ------
        ValueError
            For fewer than 1 token, or as the quantisers do.
        """
        whole("n_tokens", n_tokens, 1)
        shape = (self.block_size, n_kv_heads, head_dim)
        share = self.coded_tokens(n_tokens) / n_tokens
        coded = [
            exact_bits if q is None else q.bits_per_element(shape)
            for q in (self.k, self.v)
        ]
        return share * sum(coded) / 2 + (1 - share) * exact_bits

    def read_back(self, K: ArrayLike, V: ArrayLike) -> tuple[Floats, Floats]:
        """Return K and V, (n_tokens, n_kv_heads, head_dim), as the cache gives them."""
        return self._read(self.k, K), self._read(self.v, V)

    def _read(self, quantizer: Quantizer | None, X: ArrayLike) -> Floats:
        out = np.array(X, np.float32)
        coded = self.coded_tokens(len(out))
        if quantizer is not None and coded:
            blocks = out[:coded].reshape(-1, self.block_size, *out.shape[1:])
            read = quantizer.dequantize(*quantizer.quantize(blocks))
            out[:coded] = read.reshape(coded, *out.shape[1:])
        return out


@dataclass(frozen=True)
class Damage:
    """What reading back from a scheme changes.

    Attributes
    ----------
    k_error, v_error : float
        Root mean square error over the root mean square of the tensor.
    out_error : float
        The same of attention's output.
    kl : float
        Mean Kullback–Leibler divergence of the attention weights, in nats.
    top1 : float
        Share of queries and heads whose largest weight is on the same token.
    """

    k_error: float
    v_error: float
    out_error: float
    kl: float
    top1: float


def measure(scheme: Scheme, K: ArrayLike, V: ArrayLike, Q: ArrayLike) -> Damage:
    """Compare attention over what `scheme` reads back with that over K and V.

    Parameters
    ----------
    K, V : array_like, shape (n_tokens, n_kv_heads, head_dim)
        One layer; K after RoPE, as it is cached.
    Q : array_like, shape (n_queries, n_heads, head_dim)
        Queries that see all tokens.
    """
    K, V = np.asarray(K, np.float32), np.asarray(V, np.float32)
    read_k, read_v = scheme.read_back(K, V)
    logs, out = _attend(K, V, Q)
    read_logs, read_out = _attend(read_k, read_v, Q)
    divergence = (np.exp(logs) * (logs - read_logs)).sum(axis=-1)
    same = logs.argmax(axis=-1) == read_logs.argmax(axis=-1)
    return Damage(
        k_error=_relative(read_k, K),
        v_error=_relative(read_v, V),
        out_error=_relative(read_out, out),
        kl=max(0.0, float(divergence.mean())),  # rounding can lead just below 0
        top1=float(same.mean()),
    )


def ladder(K: ArrayLike, V: ArrayLike) -> list[Scheme]:
    """Return the schemes of the lesson, from eight bits to two.

    K and V are used to calibrate FP8 and to give one scale to a whole tensor.
    """
    n_tokens = len(np.asarray(K))
    fp8 = Fp8E4M3.calibrated(K), Fp8E4M3.calibrated(V)

    def same(name: str, q: Quantizer, block_size: int = 16) -> Scheme:
        return Scheme(name, q, q, block_size)

    def kivi(bits: int, window: int = 0) -> Scheme:
        name = f"KIVI-{bits}" + (f" R={window}" if window else "")
        k, v = GroupedInt(bits, "channel"), GroupedInt(bits, "token")
        return Scheme(name, k, v, block_size=32, window=window)

    return [
        same("int8 tensor", SymmetricInt(8, "block"), n_tokens),
        same("int8 head", SymmetricInt(8, "head")),
        same("int8 token", SymmetricInt(8, "token")),
        same("fp8 static", Fp8E4M3()),
        Scheme("fp8 calibrated", *fp8),
        same("int4 tensor", SymmetricInt(4, "block"), n_tokens),
        same("int4 head", SymmetricInt(4, "head")),
        same("int4 token", SymmetricInt(4, "token")),
        same("Hadamard int4", Hadamard(SymmetricInt(4, "token"))),
        kivi(4),
        *(same(f"Lloyd–Max {b}", Codebook(b)) for b in (4, 3, 2)),
        *(same(f"rotated L–M {b}", RandomRotation(Codebook(b))) for b in (4, 3, 2)),
        same("int2 head", SymmetricInt(2, "head")),
        kivi(2),
        kivi(2, window=128),
    ]


def _attend(K: Floats, V: Floats, Q: ArrayLike) -> tuple[Floats, Floats]:
    """Return log weights (n_kv_heads, n_queries · group, n_tokens), and outputs."""
    Q = np.asarray(Q, np.float32)
    n_kv_heads, head_dim = K.shape[1:]
    grouped = Q.reshape(len(Q), n_kv_heads, -1, head_dim).swapaxes(0, 1)
    rows = grouped.reshape(n_kv_heads, -1, head_dim)
    scores = rows @ K.transpose(1, 2, 0) / np.float32(math.sqrt(head_dim))
    scores -= scores.max(axis=-1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return logs, np.exp(logs) @ V.swapaxes(0, 1)


def _relative(read: Floats, exact: Floats) -> float:
    size = float(np.square(exact).mean())
    return math.sqrt(float(np.square(read - exact).mean()) / size) if size else 0.0
