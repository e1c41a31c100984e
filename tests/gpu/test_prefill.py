"""A chunk sees the cached prefix and itself, causally, whatever its neighbours do."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_kv.gpu import paged_attention_decode, paged_prefill
from paged_kv.gpu import prefill as module

from .batches import BLOCK_SIZES, HEADS, assert_close, dense, make_batch


def prefill(batch, chunks, q):
    starts = torch.tensor([0, *chunks], dtype=torch.int32).cumsum(0).int()
    return paged_prefill(q, *batch.args[1:5], starts, batch.scale, return_lse=True)


def expected(batch, chunks, q):
    """Return the causal answer token by token."""
    parts, rows = [], iter(q)
    for K, V, n in zip(batch.K, batch.V, chunks, strict=True):
        for end in range(len(K) - n + 1, len(K) + 1):
            parts.append(dense(next(rows), K[:end], V[:end], batch.scale))
    return tuple(torch.stack(part) for part in zip(*parts, strict=True))


@st.composite
def cases(draw):
    block_size = draw(st.sampled_from(BLOCK_SIZES))
    pairs = draw(
        st.lists(
            st.tuples(st.integers(0, 2 * block_size + 1), st.integers(0, 12)),
            min_size=1,
            max_size=3,
        ).filter(lambda rows: any(chunk for _, chunk in rows))
    )
    n_heads, n_kv_heads = draw(st.sampled_from(HEADS))
    batch = make_batch(
        [prefix + chunk for prefix, chunk in pairs],
        n_heads,
        n_kv_heads,
        block_size=block_size,
        dtype=draw(st.sampled_from([torch.float32, torch.bfloat16])),
        padding=draw(st.sampled_from(["minus one", "live"])),
        seed=draw(st.integers(0, 999)),
    )
    return batch, [chunk for _, chunk in pairs], n_heads


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from([1, 3, 128]))
def test_chunks_equal_dense_causal_attention(case, tokens_at_once):
    batch, chunks, n_heads = case
    q = torch.randn(sum(chunks), n_heads, 64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TOKENS_AT_ONCE", tokens_at_once)
        got = prefill(batch, chunks, q)
    assert_close(got, expected(batch, chunks, q))


def test_many_pieces_and_many_tokens_at_once(monkeypatch):
    monkeypatch.setattr("paged_kv.gpu.pages.BYTES_AT_ONCE", 3 * 4 * 16 * 3 * 64)
    batch = make_batch([300])
    q = torch.randn(260, 6, 64)
    assert_close(prefill(batch, [260], q), expected(batch, [260], q))


def test_a_chunk_of_one_is_decode():
    batch = make_batch([40, 7])
    out, lse = prefill(batch, [1, 1], batch.q)
    again = paged_attention_decode(*batch.args, return_lse=True)
    torch.testing.assert_close((out, lse), again)


def test_chunk_by_chunk_is_the_whole_prompt():
    batch = make_batch([50])
    q = torch.randn(50, 6, 64)
    whole = prefill(batch, [50], q)[0]
    parts = []
    for start, end in ((0, 16), (16, 17), (17, 50)):
        batch.seq_lens[0] = end
        parts.append(prefill(batch, [end - start], q[start:end])[0])
    torch.testing.assert_close(torch.cat(parts), whole)


def test_later_tokens_are_never_read():
    batch = make_batch([40])
    q = torch.randn(5, 6, 64)
    batch.seq_lens[0] = 30
    batch.K, batch.V = [batch.K[0][:30]], [batch.V[0][:30]]
    right = expected(batch, [5], q)
    for t in range(30, 40):
        batch.k_cache[batch.block_tables[0, t // 16], t % 16] = math.nan
        batch.v_cache[batch.block_tables[0, t // 16], t % 16] = math.nan
    assert_close(prefill(batch, [5], q), right)
