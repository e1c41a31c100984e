"""``make bench``: pool, sequence and attention of the core, against alternatives."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import torch
from timing import medians, report

from paged_kv import BlockAllocator, BlockPool, Sequence, paged_attention

RNG = np.random.default_rng(0)


def per_block_loop(pool, seq, q, scale):
    """The loop of the textbook: a block at a time, heads repeated with np.repeat."""
    group = len(q) // pool.n_kv_heads
    m = np.full(len(q), -np.inf, np.float32)
    denominator, acc = np.zeros_like(m), np.zeros_like(q)
    for i, block in enumerate(seq.block_table):
        valid = min(pool.block_size, len(seq) - i * pool.block_size)
        K = np.repeat(pool.k[0, block, :valid], group, axis=1)
        V = np.repeat(pool.v[0, block, :valid], group, axis=1)
        S = np.einsum("hd,thd->ht", q, K) * scale
        m_new = np.maximum(m, S.max(axis=1))
        alpha, P = np.exp(m - m_new), np.exp(S - m_new[:, None])
        denominator = denominator * alpha + P.sum(axis=1)
        acc = acc * alpha[:, None] + np.einsum("ht,thd->hd", P, V)
        m = m_new
    return acc / denominator[:, None]


def attention() -> None:
    """32 query and 8 KV heads, head_dim 128, 4096 tokens, float32, scattered blocks."""
    length, n_heads, n_kv_heads, head_dim = 4096, 32, 8, 128
    pool = BlockPool(512, 1, n_kv_heads, head_dim)
    order = RNG.permutation([pool.allocate() for _ in range(512)])
    for block in order:
        pool.release(int(block))
    seq = Sequence(pool, "seq")
    K, V = RNG.normal(size=(2, 1, length, n_kv_heads, head_dim)).astype(np.float32)
    seq.extend(K, V)
    q = RNG.normal(size=(n_heads, head_dim)).astype(np.float32)
    scale = head_dim**-0.5
    dense_k, dense_v = (
        torch.from_numpy(x[0]).transpose(0, 1)[None].contiguous() for x in (K, V)
    )
    dense_q = torch.from_numpy(q)[None, :, None]

    def sdpa():
        return torch.nn.functional.scaled_dot_product_attention(
            dense_q, dense_k, dense_v, scale=scale, enable_gqa=True
        )

    ours = paged_attention(pool, seq, 0, q, scale)
    for other in (per_block_loop(pool, seq, q, scale), sdpa()[0, :, 0].numpy()):
        np.testing.assert_allclose(ours, other, atol=1e-5)
    heads = f"{n_heads}/{n_kv_heads} heads of {head_dim}"
    report(
        f"attention of one query, L={length}, {heads}",
        medians(
            {
                "paged_attention": lambda: paged_attention(pool, seq, 0, q, scale),
                "per-block loop, np.repeat": lambda: per_block_loop(
                    pool, seq, q, scale
                ),
                "torch SDPA, contiguous": sdpa,
            }
        ),
    )


def extend() -> None:
    """4096 tokens at once against one by one."""
    n = 4096
    pool = BlockPool(n // 16, 2, 2, 16)
    K, V = RNG.normal(size=(2, 2, n, 2, 16)).astype(np.float32)

    def at_once():
        seq = Sequence(pool, "a")
        seq.extend(K, V)
        seq.free()

    def one_by_one():
        seq = Sequence(pool, "a")
        for t in range(n):
            seq.append(K[:, t], V[:, t])
        seq.free()

    report(
        f"{n} tokens into a sequence",
        medians({"extend": at_once, "appends": one_by_one}, repeats=7),
    )


def allocation() -> None:
    """Bookkeeping of one block and of 256."""
    books = BlockAllocator(4096)

    def singly():
        for _ in range(256):
            books.release(books.allocate())

    def in_bulk():
        books.release_many(books.allocate_many(256))

    seconds = medians({"allocate + release": singly, "256 at once": in_bulk}, 101)
    per_block = {name: value / 256 for name, value in seconds.items()}
    report("allocate and give back, per block", per_block, unit="us")


def import_time() -> None:
    """Seconds to start Python and import."""

    def start(statement):
        return lambda: subprocess.run([sys.executable, "-c", statement], check=True)

    report(
        "start Python and import",
        medians(
            {"numpy": start("import numpy"), "paged_kv": start("import paged_kv")}, 11
        ),
    )


if __name__ == "__main__":
    attention()
    extend()
    allocation()
    import_time()
