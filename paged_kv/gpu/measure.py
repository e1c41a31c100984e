"""What lesson 09.6 and the benchmark measure with: problems, and bytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
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


def fastest(
    runs: Mapping[str, Callable[[], object]], budget: float = 0.5
) -> dict[str, float]:
    """Return the seconds of the fastest run of each way, timed in turn.

    The fastest and not the mean: other programs only ever make a run slower. In turn,
    A B A B …, so that what slows the machine down slows all of them.

    Parameters
    ----------
    runs : mapping of str to callable
        Each is called once to warm up.
    budget : float
        Seconds to spend in all; there are three rounds at least.
    """
    for run in runs.values():
        run()
    best = dict.fromkeys(runs, float("inf"))
    end, rounds = time.perf_counter() + budget, 0
    while rounds < 3 or time.perf_counter() < end:
        for way, run in runs.items():
            _wait_for_device()
            start = time.perf_counter()
            run()
            _wait_for_device()
            best[way] = min(best[way], time.perf_counter() - start)
        rounds += 1
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
    seconds = fastest({"copy": lambda: target.copy_(source)})["copy"]
    return 2 * source.nbytes / seconds


def _wait_for_device() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
