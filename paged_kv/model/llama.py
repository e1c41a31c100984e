"""A Llama in plain numpy, to be read: RMSNorm, RoPE, grouped-query attention, SwiGLU.

The model knows nothing of caches: `forward` hands each layer's q, k and v to an
`attend` callback, which stores k and v wherever it likes and returns the attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paged_kv.model.config import LlamaConfig

Array = NDArray[Any]


class Attend(Protocol):
    """Store one layer's k and v of T tokens, return attention for their q."""

    def __call__(self, layer: int, q: Array, k: Array, v: Array) -> Array:
        """Take q (T, n_heads, head_dim), k and v (T, n_kv_heads, head_dim).

        Return (T, n_heads, head_dim), float32. Every query sees the tokens of its own
        sequence up to and including itself.
        """


class Llama:
    """Weights and one forward pass.

    Parameters
    ----------
    config : LlamaConfig
    weights : mapping of str to ndarray of float32
        Names and shapes as `shapes(config)` lists them; rows of the query and key
        projections in half-split order (see `rope`). Without ``"lm_head"`` the
        embedding serves at both ends (tied).

    Raises
    ------
    ValueError
        When a weight is missing or has another shape.
    """

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Array]) -> None:
        self.config = config
        for name, shape in shapes(config).items():
            if name not in weights:
                raise ValueError(f"weight {name!r} is missing")
            if weights[name].shape != shape:
                raise ValueError(
                    f"weight {name!r} has shape {weights[name].shape}, expected {shape}"
                )
        self.weights = dict(weights)
        half = np.arange(config.head_dim // 2, dtype=np.float32)
        self._frequency = config.rope_theta ** (-2 * half / config.head_dim)

    def forward(self, tokens: Array, positions: Array, attend: Attend) -> Array:
        """Run all layers over T tokens, of one sequence or of several.

        Parameters
        ----------
        tokens, positions : ndarray of int, shape (T,)
            Token ids, and the place of each in its own sequence.
        attend : callable
            See `Attend`; called once per layer, in order.

        Returns
        -------
        ndarray of float32, shape (T, d_model)
            The residual stream after the last norm; `logits` turns rows into scores.
        """
        c, w = self.config, self.weights
        cos, sin = self._rotation(positions)
        x = w["embed"][tokens]
        for i in range(c.n_layers):
            h = rms_norm(x, w[f"{i}.attn_norm"], c.norm_eps)
            q = matmul(h, w[f"{i}.q"]).reshape(len(x), c.n_heads, c.head_dim)
            k = matmul(h, w[f"{i}.k"]).reshape(len(x), c.n_kv_heads, c.head_dim)
            v = matmul(h, w[f"{i}.v"]).reshape(len(x), c.n_kv_heads, c.head_dim)
            attention = attend(i, rope(q, cos, sin), rope(k, cos, sin), v)
            x = x + matmul(attention.reshape(len(x), -1), w[f"{i}.o"])
            h = rms_norm(x, w[f"{i}.ffn_norm"], c.norm_eps)
            gate, up = matmul(h, w[f"{i}.gate"]), matmul(h, w[f"{i}.up"])
            x = x + matmul(silu(gate) * up, w[f"{i}.down"])
        return rms_norm(x, w["norm"], c.norm_eps)

    def logits(self, hidden: Array) -> Array:
        """Return scores (T, vocab_size) for rows of `forward`'s result."""
        head = self.weights.get("lm_head", self.weights["embed"])
        return matmul(hidden, head)

    def _rotation(self, positions: Array) -> tuple[Array, Array]:
        angle = np.asarray(positions, np.float32)[:, None] * self._frequency
        return np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]


def shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Return name → shape of every weight but the optional ``"lm_head"``.

    Matrices are (out, in), as they are stored: ``y = x @ W.T``.
    """
    c = config
    q, kv = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (c.d_model,),
        "q": (q, c.d_model),
        "k": (kv, c.d_model),
        "v": (kv, c.d_model),
        "o": (c.d_model, q),
        "ffn_norm": (c.d_model,),
        "gate": (c.d_ff, c.d_model),
        "up": (c.d_ff, c.d_model),
        "down": (c.d_model, c.d_ff),
    }
    layers = {f"{i}.{n}": s for i in range(c.n_layers) for n, s in layer.items()}
    return {"embed": (c.vocab_size, c.d_model), **layers, "norm": (c.d_model,)}


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """Scale each row of `x` to a mean square of 1, then by `weight`."""
    mean_square = np.mean(x * x, axis=-1, keepdims=True)
    scaled: Array = x / np.sqrt(mean_square + np.float32(eps)) * weight
    return scaled


def rope(x: Array, cos: Array, sin: Array) -> Array:
    """Rotate each head's pairs (i, i + head_dim / 2) by their position's angles."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )


def silu(x: Array) -> Array:
    """Return x · sigmoid(x), without overflow for large negative x."""
    return x * (np.float32(0.5) * (1 + np.tanh(np.float32(0.5) * x)))


def matmul(x: Array, W: Array) -> Array:
    """Return ``x @ W.T`` for x (T, n), W (m, n), choosing the quick way for T rows.

    One row is a matrix-vector product at the speed of memory. A general product first
    repacks the whole of W, and for a few rows that costs more than the product itself:
    up to four rows go one by one. Above, it is quickest for a multiple of four rows.
    ``make bench`` shows by how much.
    """
    n = len(x)
    if n <= 4:
        return np.stack([W @ row for row in x])
    if n % 4 == 0:
        return x @ W.T
    padded = np.zeros((n + 4 - n % 4, x.shape[1]), x.dtype)
    padded[:n] = x
    return (padded @ W.T)[:n]
