"""What lesson 09.6 and the benchmark measure with: problems, and bytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from paged_kv.attention import paged_attention
from paged_kv.gpu.decode import Backend, paged_attention_decode, usable_backends
from paged_kv.messages import tr
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence


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


def decode_ways(p: DecodeProblem) -> dict[str, Callable[[], torch.Tensor]]:
    """Return the ways to decode `p` that are worth timing on its device, by name.

    PyTorch's attention (SDPA) over contiguous K and V, as it comes and with the query
    heads of a KV head as rows of one product, so that K and V are read once; then over
    pages torch, Triton on a CUDA device, and numpy on the CPU for float32.
    """
    n_kv_heads, scale = p.K.shape[1], p.q.shape[-1] ** -0.5
    grouped = p.q.view(len(p.q), n_kv_heads, -1, p.q.shape[-1])
    ways: dict[str, Callable[[], torch.Tensor]] = {
        tr("SDPA, contiguous"): lambda: scaled_dot_product_attention(
            p.q[:, :, None], p.K, p.V, scale=scale, enable_gqa=True
        ).squeeze(2),
        tr("SDPA, heads together"): lambda: scaled_dot_product_attention(
            grouped, p.K, p.V, scale=scale
        ).flatten(1, 2),
        tr("paged, torch"): _over_pages(p, scale, "torch"),
    }
    if p.q.is_cuda and "triton" in usable_backends():
        ways[tr("paged, Triton")] = _over_pages(p, scale, "triton")
    if not p.q.is_cuda and p.q.dtype == torch.float32:
        ways[tr("paged, numpy")] = _with_numpy(p, scale)
    return ways


def _over_pages(
    p: DecodeProblem, scale: float, backend: Backend
) -> Callable[[], torch.Tensor]:
    def decode() -> torch.Tensor:
        out = paged_attention_decode(*p[:5], scale, backend=backend)
        return cast(torch.Tensor, out)

    return decode


def _with_numpy(p: DecodeProblem, scale: float) -> Callable[[], torch.Tensor]:
    """Return decode by `paged_attention`, sequence by sequence, over the same pages."""
    num_blocks, block_size, n_kv_heads, head_dim = p.k_cache.shape
    pool = BlockPool(num_blocks, 1, n_kv_heads, head_dim, block_size)
    pool.k, pool.v = p.k_cache[None].numpy(), p.v_cache[None].numpy()
    seqs = [Sequence(pool, row) for row in range(len(p.q))]
    for seq, table in zip(seqs, p.block_tables.tolist(), strict=True):
        seq.block_table, seq.length = table, len(table) * block_size

    def decode() -> torch.Tensor:
        pairs = zip(seqs, p.q.numpy(), strict=True)
        rows = [paged_attention(pool, seq, 0, q, scale) for seq, q in pairs]
        return torch.from_numpy(np.stack(rows))

    return decode


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
