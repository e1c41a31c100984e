"""Both forms of a benchmark's problem are the same problem."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from paged_kv.gpu import paged_attention_decode
from paged_kv.gpu.measure import (
    copy_bandwidth,
    decode_problem,
    decode_ways,
    fastest,
)
from paged_kv.messages import use_language


@pytest.mark.parametrize("block_size", [4, 16])
def test_pages_and_contiguous_hold_the_same(block_size):
    p = decode_problem(3, 48, 6, 3, 32, block_size=block_size)
    paged = paged_attention_decode(*p.paged, 0.2)
    dense = scaled_dot_product_attention(
        p.q[:, :, None], p.K, p.V, scale=0.2, enable_gqa=True
    )
    torch.testing.assert_close(paged, dense[:, :, 0])
    assert p.kv_bytes == 2 * 3 * 48 * 3 * 32 * 4
    table = p.block_tables.ravel()
    assert table.sort().values.tolist() == list(range(len(p.k_cache)))
    assert table.tolist() != list(range(len(p.k_cache)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_ways_give_the_same(dtype):
    use_language("en")
    p = decode_problem(2, 48, 6, 3, 32, dtype)
    ways = decode_ways(p)
    assert ("paged, numpy" in ways) == (dtype == torch.float32)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    right = paged_attention_decode(*p.paged, 32**-0.5)
    for way in ways.values():
        torch.testing.assert_close(way().float(), right, atol=tolerance, rtol=tolerance)


def test_every_way_is_timed_in_turn():
    calls = []
    seconds = fastest({w: lambda w=w: calls.append(w) for w in "ab"}, budget=0)
    assert "".join(calls) == "abababab"  # a warm-up and three rounds
    assert set(seconds) == {"a", "b"}
    assert all(0 < s < float("inf") for s in seconds.values())


def test_a_copy_moves_bytes():
    assert 0 < copy_bandwidth(nbytes=1 << 16) < float("inf")
