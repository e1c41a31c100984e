"""Decode attention of a batch: one query per sequence, over paged caches."""

from __future__ import annotations

from typing import Literal

import torch

from paged_kv.gpu.batch import check_caches, check_queries, check_tables
from paged_kv.gpu.interpreter import can_launch
from paged_kv.gpu.pages import PageReader, attend_pages, group_heads

Backend = Literal["auto", "torch", "triton"]
State = tuple[torch.Tensor, torch.Tensor]


def usable_backends() -> tuple[str, ...]:
    """Return the backends of `paged_attention_decode` that this machine can run."""
    return ("torch", "triton") if can_launch() else ("torch",)


@torch.no_grad()
def paged_attention_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    *,
    backend: Backend = "auto",
    return_lse: bool = False,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    num_splits: int | None = None,
) -> torch.Tensor | State:
    """Attention of one query per sequence over the pages of its block table.

    Parameters
    ----------
    q : Tensor, shape (num_seqs, n_heads, head_dim)
        float32, float16 or bfloat16; n_heads is a multiple of n_kv_heads.
    k_cache, v_cache : Tensor, shape (num_blocks, block_size, n_kv_heads, head_dim)
        One layer: float32, float16, bfloat16, or int8 with scales.
    block_tables : Tensor of int32, shape (num_seqs, max_blocks)
        Physical blocks in logical order; what pads a row is never read.
    seq_lens : Tensor of int32, shape (num_seqs,)
        Tokens of each sequence; 0 is allowed.
    scale : float
        Usually 1 / sqrt(head_dim).
    backend : {"auto", "torch", "triton"}
        "auto" takes Triton for CUDA tensors where it can run, else torch. On the
        CPU "triton" runs the kernel in Triton's interpreter, slowly, to be looked at.
    return_lse : bool
        Return the log-sum-exp as well, for `merge_states`.
    k_scale, v_scale : Tensor of float32, shape (num_blocks, n_kv_heads), optional
        What the int8 codes of a block and head are multiplied by.
    num_splits : int, optional
        Parts of a sequence that Triton works on at the same time (Flash-Decoding);
        chosen to keep the device busy when not given. torch takes no notice of it.

    Returns
    -------
    out : Tensor of float32, shape (num_seqs, n_heads, head_dim)
        0 for an empty sequence.
    lse : Tensor of float32, shape (num_seqs, n_heads)
        Only with `return_lse`; −inf for an empty sequence.

    Raises
    ------
    ValueError
        For shapes, types or devices that do not fit, and for the first row whose table
        is too short for its length or lists a block outside the caches.
    RuntimeError
        When Triton was asked for and cannot run here; the message says why.

    Notes
    -----
    Everything is accumulated in float32. PagedAttention: Kwon et al., SOSP'23; the
    split over the sequence: Flash-Decoding (Dao et al., 2023).
    """
    check_caches(q, k_cache, v_cache, k_scale, v_scale)
    num_blocks, block_size, n_kv_heads, head_dim = k_cache.shape
    check_queries(q, 3, n_kv_heads, head_dim, scale)
    lengths = check_tables(
        block_tables, seq_lens, len(q), num_blocks, block_size, q.device
    )
    if backend == "auto":
        backend = "triton" if q.is_cuda and can_launch() else "torch"
    if backend == "torch":
        out, lse = _decode_torch(
            q, k_cache, v_cache, block_tables, lengths, scale, k_scale, v_scale
        )
    elif backend == "triton":
        from paged_kv.gpu.launch import decode_triton

        out, lse = decode_triton(
            q,
            k_cache,
            v_cache,
            block_tables,
            seq_lens,
            scale,
            max(lengths, default=0),
            k_scale,
            v_scale,
            num_splits,
        )
    else:
        raise ValueError(
            f"backend must be 'auto', 'torch' or 'triton', got {backend!r}"
        )
    return (out, lse) if return_lse else out


def _decode_torch(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    lengths: list[int],
    scale: float,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
) -> State:
    """Decode sequence by sequence, its pages piece by piece."""
    grouped = group_heads(q, k_cache.shape[2], scale)
    out = torch.zeros_like(grouped)
    lse = out.new_full(grouped.shape[:3], -torch.inf)
    reader = PageReader(k_cache)
    for row, length in enumerate(lengths):
        out[row], lse[row] = attend_pages(
            grouped[row],
            k_cache,
            v_cache,
            block_tables[row],
            length,
            k_scale=k_scale,
            v_scale=v_scale,
            reader=reader,
        )
    return out.flatten(1, 2), lse.flatten(1, 2)
