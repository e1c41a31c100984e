"""Cascade attention of a batch: a shared prefix is read once for all of it."""

from __future__ import annotations

import torch

from paged_kv.gpu.batch import check_caches, check_queries, check_tables
from paged_kv.gpu.decode import Backend, paged_attention_decode
from paged_kv.gpu.pages import attend_pages, group_heads, merge_states


def common_blocks(
    block_tables: torch.Tensor, seq_lens: torch.Tensor, block_size: int
) -> int:
    """Return how many leading blocks all rows list, each full in all of them."""
    if len(seq_lens) == 0:
        return 0
    full = int(seq_lens.min()) // block_size
    same = (block_tables[:, :full] == block_tables[:1, :full]).all(0)
    return int(same.cumprod(0).sum())


@torch.no_grad()
def cascade_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    *,
    shared_blocks: int | None = None,
    backend: Backend = "auto",
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Decode attention in two levels: the shared prefix, then each own suffix.

    The queries of all sequences meet the prefix together; the two states are merged by
    their log-sum-exp. Equal to `paged_attention_decode`, with fewer bytes read.

    Parameters
    ----------
    q, k_cache, v_cache, block_tables, seq_lens, scale, return_lse
        As `paged_attention_decode`, without int8.
    shared_blocks : int, optional
        Leading blocks that all rows have in common; found by comparing the tables when
        not given.
    backend : {"auto", "torch", "triton"}
        For the suffixes; the prefix is a plain matrix product, done by torch.

    Raises
    ------
    ValueError
        As `paged_attention_decode`, or for the first row that does not begin with
        `shared_blocks` full blocks of row 0.

    Notes
    -----
    Cascade attention of FlashInfer (2024) and vLLM: one kernel per level, then a merge.
    """
    check_caches(q, k_cache, v_cache)
    num_blocks, block_size, n_kv_heads, head_dim = k_cache.shape
    check_queries(q, 3, n_kv_heads, head_dim, scale)
    lengths = check_tables(
        block_tables, seq_lens, len(q), num_blocks, block_size, q.device
    )
    common = common_blocks(block_tables, seq_lens, block_size)
    shared = common if shared_blocks is None else shared_blocks
    if not 0 <= shared <= common:
        row = _first_other(block_tables, lengths, shared, block_size)
        raise ValueError(
            f"row {row} does not begin with {shared} full blocks of row 0; "
            f"all rows share {common}"
        )
    suffix = paged_attention_decode(
        q,
        k_cache,
        v_cache,
        block_tables[:, shared:],
        seq_lens - shared * block_size,
        scale,
        backend=backend,
        return_lse=True,
    )
    # Query head h of every sequence reads the same KV head: the batch joins the group.
    grouped = group_heads(q, n_kv_heads, scale).transpose(0, 1)
    out, lse = attend_pages(
        grouped.flatten(1, 2),
        k_cache,
        v_cache,
        block_tables[0] if len(q) else block_tables.new_empty(0),
        shared * block_size,
    )
    out = out.view(grouped.shape).transpose(0, 1).flatten(1, 2)
    lse = lse.view(grouped.shape[:3]).transpose(0, 1).flatten(1, 2)
    out, lse = merge_states(out, lse, *suffix)
    return (out, lse) if return_lse else out


def _first_other(
    block_tables: torch.Tensor, lengths: list[int], shared: int, block_size: int
) -> int:
    """Return the first row that lacks the `shared` leading full blocks of row 0."""
    for row, length in enumerate(lengths):
        same = torch.equal(block_tables[row, :shared], block_tables[0, :shared])
        if length < shared * block_size or not same:
            return row
    return 0
