"""Batches in a paged cache, and what attention over them must give.

What is right is computed from the K and V that were written, never from the cache: a
write or a table that is broken must not pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from paged_kv.gpu import usable_backends

needs_triton = pytest.mark.skipif(
    "triton" not in usable_backends(), reason="Triton is not installed (Linux only)"
)
BACKENDS = ["torch", pytest.param("triton", marks=needs_triton)]

HEADS = [(32, 8), (6, 3), (8, 1), (9, 3)]
HEAD_DIMS = [64, 80, 128]
BLOCK_SIZES = [1, 8, 16, 32, 128]
#: What may stand behind the blocks of a row: nothing, block 0, somebody's live block.
PADDINGS = ["minus one", "zero", "live"]


@dataclass
class Batch:
    """One layer's caches and the batch that is decoded over them.

    `K`, `V` hold what was written, per sequence (length, n_kv_heads, head_dim), in
    float32 after rounding to the cache's type. Every other slot is NaN.
    """

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    scale: float
    K: list[torch.Tensor]
    V: list[torch.Tensor]

    @property
    def args(self):
        return (
            self.q,
            self.k_cache,
            self.v_cache,
            self.block_tables,
            self.seq_lens,
            self.scale,
        )

    def expected(self):
        """Return out and lse in float64, by the definition of softmax."""
        pairs = [
            dense(q, K, V, self.scale)
            for q, K, V in zip(self.q, self.K, self.V, strict=True)
        ]
        return tuple(torch.stack(part) for part in zip(*pairs, strict=True))


def dense(q, K, V, scale):
    """Attention of one query (n_heads, d) over contiguous K, V; the empty state too."""
    n_heads, head_dim = q.shape
    kv_head = np.arange(n_heads) // (n_heads // K.shape[1])  # h // (n_heads / n_kv)
    K, V = K.double()[:, kv_head], V.double()[:, kv_head]
    S = torch.einsum("hd,thd->ht", q.double(), K) * scale
    lse = torch.logsumexp(S, 1) if len(K) else S.new_full((n_heads,), -math.inf)
    P = torch.softmax(S, 1)
    return torch.einsum("ht,thd->hd", P, V), lse


def make_batch(
    lengths,
    n_heads=6,
    n_kv_heads=3,
    head_dim=64,
    block_size=16,
    dtype=torch.float32,
    q_dtype=torch.float32,
    padding="minus one",
    seed=0,
    amplitude=1.0,
    extra_blocks=0,
):
    """Return a batch with shuffled tables in caches full of NaN.

    Parameters
    ----------
    extra_blocks : int
        Entries behind the needed ones, reserved ahead: in range, but empty.
    """
    rng = np.random.default_rng(seed)

    def normal(*shape):
        values = rng.normal(size=shape) * amplitude
        return torch.from_numpy(values.astype(np.float32))

    needed = [-(-n // block_size) for n in lengths]
    num_blocks = sum(needed) + 3
    shape = (num_blocks, block_size, n_kv_heads, head_dim)
    k_cache, v_cache = (torch.full(shape, math.nan, dtype=dtype) for _ in range(2))
    free = rng.permutation(num_blocks).astype(np.int32)
    width = max(needed, default=0) + 1 + extra_blocks
    tables = np.full((len(lengths), width), -1, np.int32)
    if padding == "zero":
        tables[:] = 0
    elif padding == "live":
        tables[:] = rng.choice(free[: max(sum(needed), 1)], tables.shape)
    Ks, Vs = [], []
    start = 0
    for row, (length, n) in enumerate(zip(lengths, needed, strict=True)):
        blocks, start = free[start : start + n], start + n
        tables[row, :n] = blocks
        K, V = (
            normal(length, n_kv_heads, head_dim).to(dtype).float() for _ in range(2)
        )
        for position in range(length):
            block, slot = blocks[position // block_size], position % block_size
            k_cache[block, slot], v_cache[block, slot] = K[position], V[position]
        Ks.append(K)
        Vs.append(V)
    return Batch(
        normal(len(lengths), n_heads, head_dim).to(q_dtype),
        k_cache,
        v_cache,
        torch.from_numpy(tables),
        torch.tensor(lengths, dtype=torch.int32),
        head_dim**-0.5,
        Ks,
        Vs,
    )


def assert_close(got, expected, atol=2e-5):
    """Compare out and lse; −inf must be −inf."""
    for name, a, b in zip(("out", "lse"), got, expected, strict=True):
        assert a.dtype == torch.float32, f"{name} is {a.dtype}"
        torch.testing.assert_close(
            a.double(), b, atol=atol, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
