"""Absorbed MLA over pages equals the definition, which expands every key and value."""

import math

import pytest
import torch

from paged_kv.gpu import paged_mla_decode


def unabsorbed(q_nope, q_rope, latents, w_uk, w_uv, scale):
    """Attention of one query with the keys and values of all heads spelt out."""
    rank = w_uk.shape[2]
    c, k_rope = latents[:, :rank].double(), latents[:, rank:].double()
    K = torch.einsum("tr,hnr->htn", c, w_uk.double())
    V = torch.einsum("tr,hrv->htv", c, w_uv.double())
    S = torch.einsum("hn,htn->ht", q_nope.double(), K)
    S = (S + q_rope.double() @ k_rope.T) * scale
    return torch.einsum("ht,htv->hv", S.softmax(1), V), S.logsumexp(1)


@pytest.mark.parametrize("block_size", [1, 16, 64])
@pytest.mark.parametrize(
    ("n_heads", "nope", "rope", "rank", "v_dim", "dtype"),
    [
        (4, 128, 64, 512, 128, torch.float32),  # DeepSeek's sizes, fewer heads
        (4, 128, 64, 512, 128, torch.bfloat16),
        (6, 24, 8, 40, 16, torch.float32),
    ],
)
def test_absorbed_equals_unabsorbed(
    n_heads, nope, rope, rank, v_dim, dtype, block_size
):
    torch.manual_seed(0)
    lengths = [0, 1, 2 * block_size, 2 * block_size + 1]
    needed = [-(-n // block_size) for n in lengths]
    cache = torch.full((sum(needed) + 2, block_size, rank + rope), math.nan).to(dtype)
    free = torch.randperm(len(cache)).tolist()
    tables = torch.full((len(lengths), max(needed) + 1), -1, dtype=torch.int32)
    latents = []
    for row, (length, n) in enumerate(zip(lengths, needed, strict=True)):
        blocks = [free.pop() for _ in range(n)]
        tables[row, :n] = torch.tensor(blocks, dtype=torch.int32)
        latents.append(torch.randn(length, rank + rope).to(dtype))
        for t, latent in enumerate(latents[-1]):
            cache[blocks[t // block_size], t % block_size] = latent
    q_nope = torch.randn(len(lengths), n_heads, nope)
    q_rope = torch.randn(len(lengths), n_heads, rope)
    w_uk = torch.randn(n_heads, nope, rank) / math.sqrt(rank)
    w_uv = torch.randn(n_heads, rank, v_dim) / math.sqrt(rank)
    scale = (nope + rope) ** -0.5
    out, lse = paged_mla_decode(
        q_nope,
        q_rope,
        cache,
        tables,
        torch.tensor(lengths, dtype=torch.int32),
        w_uk,
        w_uv,
        scale,
        return_lse=True,
    )
    assert not out[0].any()
    assert torch.isneginf(lse[0]).all()
    for row in range(1, len(lengths)):
        right = unabsorbed(q_nope[row], q_rope[row], latents[row], w_uk, w_uv, scale)
        torch.testing.assert_close(out[row].double(), right[0], atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(lse[row].double(), right[1], atol=2e-5, rtol=1e-4)
