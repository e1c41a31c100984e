"""K and V that look like a real model's, where no model is at hand."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: An outlier channel of K is an offset: |mean| is this many standard deviations.
OFFSET = 6.0


def synthetic_kv(
    n_tokens: int,
    n_kv_heads: int = 3,
    head_dim: int = 64,
    *,
    strength: float = 4.0,
    outliers: int = 2,
    seed: int = 0,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return K with outlier channels and V without, of one layer.

    Parameters
    ----------
    n_tokens, n_kv_heads, head_dim : int
    strength : float
        Largest magnitude of an outlier channel over that of an ordinary one. About 4
        in SmolLM2-135M; 1 makes K without outliers.
    outliers : int
        Outlier channels of each head, among its last quarter: RoPE turns those
        slowest, so that an offset survives there.
    seed : int

    Returns
    -------
    K, V : ndarray of float32, shape (n_tokens, n_kv_heads, head_dim)
        Ordinary elements are N(0, 1). Token 0 is the attention sink, ten times
        smaller in both.
    """
    rng = np.random.default_rng(seed)
    K, V = rng.normal(size=(2, n_tokens, n_kv_heads, head_dim))
    reach = math.sqrt(2 * math.log(max(n_tokens, 2)))  # of the largest of n normals
    std = strength * reach / (OFFSET + reach)
    for head in range(n_kv_heads):
        slow = head_dim - head_dim // 4
        channels = slow + rng.choice(head_dim // 4, size=outliers, replace=False)
        signs = rng.choice([-1, 1], size=outliers)
        K[:, head, channels] = (K[:, head, channels] + OFFSET * signs) * std
    K[:1] /= 10
    V[:1] /= 10
    return K.astype(np.float32), V.astype(np.float32)
