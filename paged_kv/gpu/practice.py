"""What exercise 09.6 gives a student: Triton's interpreter, and a launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from paged_kv.gpu.accesses import record_accesses
from paged_kv.gpu.interpreter import has_triton, import_triton


def triton_for_exercise() -> tuple[Any, Any]:
    """Return Triton and its language, for kernels that run in the interpreter.

    Where Triton is not installed, stand-ins let the cells of the notebook be executed;
    the check says then that the exercise cannot be done on this machine.
    """
    if has_triton():
        triton = import_triton(interpret=True)
        return triton, triton.language
    return SimpleNamespace(jit=lambda kernel: kernel), SimpleNamespace(constexpr=int)


def launch(
    kernel: Any,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Start the exercise's kernel: one program instance per sequence and KV head.

    Its loads and stores are watched: a wild pointer is an exception here and not the
    end of the notebook's process. So that none lands in another argument by chance,
    the kernel works on copies far from each other.

    Parameters
    ----------
    kernel : Triton kernel
        With the parameters of the exercise, in its order.
    q, k_cache, v_cache, block_tables, seq_lens, scale
        As `paged_attention_decode`, contiguous. Block size, head_dim and query heads
        per KV head are powers of two, as `tl.arange` wants.

    Returns
    -------
    Tensor, shape (num_seqs, n_heads, head_dim)
        NaN where the kernel wrote nothing.
    """
    num_seqs, n_heads, head_dim = q.shape
    block_size, n_kv_heads = k_cache.shape[1:3]
    out = torch.full_like(q, torch.nan)
    tensors = (q, k_cache, v_cache, block_tables, seq_lens, out)
    copies = [_far_from_others(tensor) for tensor in tensors]
    with record_accesses():
        kernel[(num_seqs, n_kv_heads)](
            *copies,
            scale,
            block_tables.shape[1],
            N_KV_HEADS=n_kv_heads,
            GROUP=n_heads // n_kv_heads,
            HEAD_DIM=head_dim,
            BLOCK_SIZE=block_size,
        )
    for tensor, copied in zip(tensors, copies, strict=True):
        tensor.copy_(copied)
    return out


def _far_from_others(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy with a margin of its own size on both sides."""
    n = max(tensor.numel(), 1024)
    room = torch.empty(n + tensor.numel() + n, dtype=tensor.dtype)
    return room[n : n + tensor.numel()].view(tensor.shape).copy_(tensor)
