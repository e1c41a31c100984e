"""Prefill attention: chunks of new tokens against what the pages already hold."""

from __future__ import annotations

import torch

from paged_kv.gpu.batch import check_caches, check_queries, check_tables
from paged_kv.gpu.pages import PageReader, attend_pages, group_heads

# New tokens that meet the pages together: enough rows to make a gathered page worth
# its while, few enough that their scores stay small.
TOKENS_AT_ONCE = 128


@torch.no_grad()
def paged_prefill(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    scale: float,
    *,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Causal attention of chunks of different lengths, each over its own sequence.

    The K and V of the new tokens are in the pages already: they are the last tokens of
    their sequence, and everything before them is the cached prefix. Row i of a chunk of
    n sees the tokens up to position seq_len − n + i.

    Parameters
    ----------
    q : Tensor, shape (total new tokens, n_heads, head_dim)
        The chunks one after the other ("varlen"): no padding.
    k_cache, v_cache, block_tables, scale
        As `paged_attention_decode`, without int8.
    seq_lens : Tensor of int32, shape (num_seqs,)
        Tokens of each sequence, the new ones included.
    cu_seqlens_q : Tensor of int32, shape (num_seqs + 1,)
        Where each chunk begins in `q`; the last entry is len(q).
    return_lse : bool
        Return the log-sum-exp as well.

    Returns
    -------
    out : Tensor of float32, shape (total new tokens, n_heads, head_dim)
    lse : Tensor of float32, shape (total new tokens, n_heads)
        Only with `return_lse`.

    Raises
    ------
    ValueError
        As `paged_attention_decode`, or for chunks that do not divide `q` or are longer
        than their sequence.
    """
    check_caches(q, k_cache, v_cache)
    num_blocks, block_size, n_kv_heads, head_dim = k_cache.shape
    check_queries(q, 3, n_kv_heads, head_dim, scale)
    lengths = check_tables(
        block_tables, seq_lens, len(seq_lens), num_blocks, block_size, q.device
    )
    starts = _check_chunks(cu_seqlens_q, lengths, len(q))
    scaled = group_heads(q, n_kv_heads, scale)
    group = scaled.shape[2]
    out = torch.empty_like(scaled)
    lse = out.new_empty(out.shape[:3])
    reader = PageReader(k_cache)
    for row, length in enumerate(lengths):
        first, end = starts[row], starts[row + 1]
        for a in range(first, end, TOKENS_AT_ONCE):
            b = min(a + TOKENS_AT_ONCE, end)
            # (tokens, kv, group, d) → (kv, tokens · group, d): one product per KV head.
            rows = scaled[a:b].transpose(0, 1).flatten(1, 2)
            seen = torch.arange(length - (end - a), length - (end - b), device=q.device)
            part, part_lse = attend_pages(
                rows,
                k_cache,
                v_cache,
                block_tables[row],
                length - (end - b),  # later tokens concern none of these rows
                positions=seen.repeat_interleave(group),
                reader=reader,
            )
            shape = (n_kv_heads, b - a, group)
            out[a:b] = part.view(*shape, head_dim).transpose(0, 1)
            lse[a:b] = part_lse.view(shape).transpose(0, 1)
    out, lse = out.flatten(1, 2), lse.flatten(1, 2)
    return (out, lse) if return_lse else out


def _check_chunks(
    cu_seqlens_q: torch.Tensor, lengths: list[int], total: int
) -> list[int]:
    """Return where the chunks begin and end, or raise ValueError."""
    shape = (len(lengths) + 1,)
    if cu_seqlens_q.dtype != torch.int32 or tuple(cu_seqlens_q.shape) != shape:
        raise ValueError(
            f"cu_seqlens_q must be int32 {shape}, got {cu_seqlens_q.dtype} "
            f"{tuple(cu_seqlens_q.shape)}"
        )
    starts: list[int] = cu_seqlens_q.tolist()
    if (starts[0], starts[-1]) != (0, total):
        raise ValueError(
            f"cu_seqlens_q must run from 0 to {total}, got {starts[0]} to {starts[-1]}"
        )
    for row, length in enumerate(lengths):
        if not 0 <= (n := starts[row + 1] - starts[row]) <= length:
            raise ValueError(
                f"row {row}: a chunk of {n} tokens does not fit a sequence of {length}"
            )
    return starts
