"""What lesson 09.6 and the benchmark measure with: problems, and bytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch


class DecodeProblem(NamedTuple):
    """A batch in pages, and the same K and V contiguously.

    Attributes
    ----------
    q : Tensor, shape (num_seqs, n_heads, head_dim)
    k_cache, v_cache, block_tables, seq_lens : Tensor
        As `paged_attention_decode` takes them; the tables are shuffled.
    K, V : Tensor, shape (num_seqs, n_kv_heads, length, head_dim)
        As `scaled_dot_product_attention` takes them.
    """

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    K: torch.Tensor
    V: torch.Tensor

    @property
    def paged(self) -> tuple[torch.Tensor, ...]:
        """The leading arguments of `paged_attention_decode`, up to the scale."""
        return self[:5]

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V that decode has to read."""
        return self.K.nbytes + self.V.nbytes


def decode_problem(
    num_seqs: int,
    length: int,
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    block_size: int = 16,
) -> DecodeProblem:
    """Return `num_seqs` sequences of `length` random tokens in scattered blocks.

    `length` is a multiple of `block_size`.
    """
    random = torch.Generator(device).manual_seed(9)
    options = {"dtype": dtype, "device": device}
    shape = (num_seqs * length // block_size, block_size, n_kv_heads, head_dim)
    k_cache, v_cache = (
        torch.randn(shape, generator=random, **options)  # type: ignore[call-overload]
        for _ in range(2)
    )
    tables = torch.randperm(shape[0], generator=random, device=device)
    tables = tables.view(num_seqs, -1)
    K, V = (
        cache[tables].view(num_seqs, length, n_kv_heads, head_dim).transpose(1, 2)
        for cache in (k_cache, v_cache)
    )
    return DecodeProblem(
        torch.randn(num_seqs, n_heads, head_dim, generator=random, **options),  # type: ignore[call-overload]
        k_cache,
        v_cache,
        tables.int(),
        torch.full((num_seqs,), length, dtype=torch.int32, device=device),
        K.contiguous(),
        V.contiguous(),
    )


def fastest(run: Callable[[], object], budget: float = 0.2) -> float:
    """Return the seconds of the fastest of many runs, after a warm-up.

    The fastest and not the mean: other programs only ever make a run slower.

    Parameters
    ----------
    run : callable
    budget : float
        Seconds to spend; there are three runs at least.
    """
    is_cuda = torch.cuda.is_available()
    run()
    best, end, runs = float("inf"), time.perf_counter() + budget, 0
    while runs < 3 or time.perf_counter() < end:
        if is_cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        if is_cuda:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best


def copy_bandwidth(
    device: torch.device | str = "cpu", nbytes: int = 256 << 20
) -> float:
    """Return the bytes/s that a copy moves, read and written, on this device.

    Parameters
    ----------
    nbytes : int
        Size of the copy: larger than any cache.
    """
    source = torch.ones(nbytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / fastest(lambda: target.copy_(source))
