"""A batch as kernels take it: block tables and lengths, checked before a launch.

A kernel does not check anything: a wrong id reads somebody else's memory, silently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq

import numpy as np
import torch

from paged_kv.audit import HasBlockTable

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def batch_tables(
    seqs: Seq[HasBlockTable], device: torch.device | str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the block tables and lengths of sequences, as kernels take them.

    Parameters
    ----------
    seqs : sequence of Sequence
        One row each, in this order.
    device : torch.device or str

    Returns
    -------
    block_tables : Tensor of int32, shape (len(seqs), longest table)
        Padded with −1.
    seq_lens : Tensor of int32, shape (len(seqs),)
    """
    width = max((len(seq.block_table) for seq in seqs), default=0)
    tables = np.full((len(seqs), width), -1, np.int32)
    for row, seq in zip(tables, seqs, strict=True):
        row[: len(seq.block_table)] = seq.block_table
    lengths = np.array([len(seq) for seq in seqs], np.int32)
    return torch.from_numpy(tables).to(device), torch.from_numpy(lengths).to(device)


def check_queries(
    q: torch.Tensor, ndim: int, n_kv_heads: int, head_dim: int, scale: float
) -> None:
    """Raise ValueError unless `q` is (…, n_heads, head_dim) and `scale` is finite."""
    if q.ndim != ndim or q.shape[-1] != head_dim or q.shape[-2] % n_kv_heads:
        raise ValueError(
            f"q must be (…, n_heads, {head_dim}) with {ndim} axes and n_heads a "
            f"multiple of {n_kv_heads}, got {tuple(q.shape)}"
        )
    if not q.shape[-2] or q.dtype not in FLOATS:
        raise ValueError(f"q must hold heads of {FLOATS}, got {q.shape} of {q.dtype}")
    if not math.isfinite(scale):
        raise ValueError(f"scale must be finite, got {scale}")


def check_caches(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """Raise ValueError unless both caches can be read together, where `q` is.

    Parameters
    ----------
    k_cache, v_cache : Tensor, shape (num_blocks, block_size, n_kv_heads, head_dim)
        float32, float16, bfloat16, or int8 with scales.
    k_scale, v_scale : Tensor of float32, shape (num_blocks, n_kv_heads), optional
        One scale per block and head, of K and of V.
    """
    if k_cache.ndim != 4 or k_cache.shape != v_cache.shape or not k_cache.numel():
        raise ValueError(
            "k_cache and v_cache must both be (num_blocks, block_size, n_kv_heads, "
            f"head_dim), got {tuple(k_cache.shape)} and {tuple(v_cache.shape)}"
        )
    if k_cache.dtype != v_cache.dtype or k_cache.dtype not in (*FLOATS, torch.int8):
        raise ValueError(
            f"caches must share one type of {FLOATS} or int8, got {k_cache.dtype} "
            f"and {v_cache.dtype}"
        )
    scales = {"k_scale": k_scale, "v_scale": v_scale}
    is_int8 = k_cache.dtype == torch.int8
    if any((given is not None) != is_int8 for given in scales.values()):
        raise ValueError(
            "k_scale and v_scale belong to int8 caches, and those need both; "
            f"the caches are {k_cache.dtype}"
        )
    shape = (len(k_cache), k_cache.shape[2])
    for name, given in scales.items():
        if given is not None and (given.shape, given.dtype) != (shape, torch.float32):
            raise ValueError(
                f"{name} must be float32 {shape}, got {given.dtype} "
                f"{tuple(given.shape)}"
            )
    _check_devices(q=q, k_cache=k_cache, v_cache=v_cache, **scales)


def check_tables(
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    num_seqs: int,
    num_blocks: int,
    block_size: int,
    device: torch.device,
) -> list[int]:
    """Return the lengths, or raise ValueError for the first row that cannot be read.

    Only the ceil(length / block_size) leading entries of a row are looked at: what
    pads it may be anything. `device` is where the queries are.
    """
    for name, given, shape in (
        ("block_tables", block_tables, (num_seqs, *block_tables.shape[1:2])),
        ("seq_lens", seq_lens, (num_seqs,)),
    ):
        if given.dtype != torch.int32 or tuple(given.shape) != shape or given.ndim == 0:
            raise ValueError(
                f"{name} must be int32 with {num_seqs} rows, got {given.dtype} "
                f"{tuple(given.shape)}"
            )
    if block_tables.ndim != 2:
        raise ValueError(
            f"block_tables must have two axes, got {tuple(block_tables.shape)}"
        )
    _check_devices(block_tables=block_tables, seq_lens=seq_lens)
    if block_tables.device != device:
        raise ValueError(f"block_tables are on {block_tables.device}, q is on {device}")
    tables, lengths = block_tables.cpu().numpy(), seq_lens.cpu().numpy()
    width = tables.shape[1]
    needed = -(-lengths.astype(np.int64) // block_size)
    if (wrong := np.flatnonzero((lengths < 0) | (needed > width))).size:
        row = int(wrong[0])
        raise ValueError(
            f"row {row}: {lengths[row]} tokens need {needed[row]} blocks of "
            f"{block_size}, the table has {width} entries"
        )
    used = np.arange(width) < needed[:, None]
    outside = used & ((tables < 0) | (tables >= num_blocks))
    if outside.any():
        row, entry = (int(i) for i in np.argwhere(outside)[0])
        raise ValueError(
            f"row {row}: block {tables[row, entry]} at entry {entry} is outside "
            f"0…{num_blocks - 1}"
        )
    return [int(n) for n in lengths]


def _check_devices(**tensors: torch.Tensor | None) -> None:
    devices = {name: t.device for name, t in tensors.items() if t is not None}
    if len(set(devices.values())) > 1:
        listed = ", ".join(f"{name} on {where}" for name, where in devices.items())
        raise ValueError(f"all tensors must be on one device, got {listed}")
