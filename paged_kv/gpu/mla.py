"""Decode attention of MLA: one latent per token is key and value of all heads."""

from __future__ import annotations

import torch

from paged_kv.gpu.batch import check_caches, check_queries, check_tables
from paged_kv.gpu.pages import PageReader, attend_pages


@torch.no_grad()
def paged_mla_decode(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    latent_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    scale: float,
    *,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Multi-head latent attention of one query per sequence, with absorbed projections.

    A head's key is ``w_uk[h] @ c`` and its value ``c @ w_uv[h]`` for the latent c of a
    token. Neither is ever computed: ``q · (w_uk[h] @ c) = (q @ w_uk[h]) · c``, so the
    query goes to the latent's space, and the result comes back from it once.

    Parameters
    ----------
    q_nope : Tensor, shape (num_seqs, n_heads, nope_dim)
        The part of the queries without position.
    q_rope : Tensor, shape (num_seqs, n_heads, rope_dim)
        The rotated part; the rotated key is the same for all heads.
    latent_cache : Tensor, shape (num_blocks, block_size, rank + rope_dim)
        One layer: latent and rotated key of each token (512 + 64 in DeepSeek).
    block_tables, seq_lens
        As `paged_attention_decode`.
    w_uk : Tensor, shape (n_heads, nope_dim, rank)
    w_uv : Tensor, shape (n_heads, rank, v_dim)
        The up-projections of K and V.
    scale : float
        1 / sqrt(nope_dim + rope_dim) in DeepSeek.

    Returns
    -------
    out : Tensor of float32, shape (num_seqs, n_heads, v_dim)
    lse : Tensor of float32, shape (num_seqs, n_heads)
        Only with `return_lse`.

    Raises
    ------
    ValueError
        As `paged_attention_decode`, or for projections that do not fit.

    Notes
    -----
    DeepSeek-V2 (arXiv 2405.04434), section 2.1.
    """
    if latent_cache.ndim != 3:
        raise ValueError(
            "latent_cache must be (num_blocks, block_size, rank + rope_dim), got "
            f"{tuple(latent_cache.shape)}"
        )
    n_heads, nope_dim = q_nope.shape[-2:]
    rank = latent_cache.shape[2] - q_rope.shape[-1]
    if (
        q_nope.shape[:-1] != q_rope.shape[:-1]
        or w_uk.shape != (n_heads, nope_dim, rank)
        or w_uv.shape[:2] != (n_heads, rank)
        or w_uv.ndim != 3
    ):
        raise ValueError(
            f"w_uk must be ({n_heads}, {nope_dim}, {rank}) and w_uv ({n_heads}, "
            f"{rank}, v_dim) for q_nope {tuple(q_nope.shape)} and q_rope "
            f"{tuple(q_rope.shape)}, got {tuple(w_uk.shape)} and {tuple(w_uv.shape)}"
        )
    # One KV head that all query heads share: MLA is the extreme case of GQA.
    cache = latent_cache.unsqueeze(2)
    absorbed = torch.einsum("shn,hnr->shr", q_nope.float(), w_uk.float())
    q = torch.cat([absorbed, q_rope.float()], -1)
    check_caches(q, cache, cache)
    num_blocks, block_size, _, width = cache.shape
    check_queries(q, 3, 1, width, scale)
    lengths = check_tables(
        block_tables, seq_lens, len(q), num_blocks, block_size, q.device
    )
    latent = q.new_empty(len(q), n_heads, rank)
    lse = q.new_empty(len(q), n_heads)
    reader = PageReader(cache)
    for row, length in enumerate(lengths):
        (latent[row],), (lse[row],) = attend_pages(
            q[row : row + 1] * float(scale),
            cache,
            cache,
            block_tables[row],
            length,
            v_dim=rank,
            reader=reader,
        )
    out = torch.einsum("shr,hrv->shv", latent, w_uv.float())
    return (out, lse) if return_lse else out
