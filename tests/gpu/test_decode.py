"""Decode attention equals the dense reference, whatever lies around the tokens."""

import math
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_kv.gpu import paged_attention_decode, record_accesses
from paged_kv.quantization import quantize_block_int8

from .batches import (
    BACKENDS,
    BLOCK_SIZES,
    HEAD_DIMS,
    HEADS,
    PADDINGS,
    assert_close,
    dense,
    make_batch,
    needs_triton,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def decode(batch, backend, **options):
    with watched(backend):
        return paged_attention_decode(
            *batch.args, backend=backend, return_lse=True, **options
        )


def watched(backend):
    """Make a wild pointer in a kernel a failed test, and not a dead process."""
    return record_accesses() if backend == "triton" else nullcontext()


@st.composite
def batches(draw):
    block_size = draw(st.sampled_from(BLOCK_SIZES))
    boundary = [0, 1, block_size - 1, block_size, block_size + 1, 1000]
    length = st.sampled_from(boundary) | st.integers(0, 3 * block_size)
    n_heads, n_kv_heads = draw(st.sampled_from(HEADS))
    return make_batch(
        draw(st.lists(length, max_size=4)),
        n_heads,
        n_kv_heads,
        draw(st.sampled_from(HEAD_DIMS)),
        block_size,
        draw(st.sampled_from(DTYPES)),
        draw(st.sampled_from(DTYPES)),
        draw(st.sampled_from(PADDINGS)),
        draw(st.integers(0, 2**32 - 1)),
        extra_blocks=draw(st.integers(0, 2)),
    )


def assert_equals_dense(batch, backend):
    got = decode(batch, backend)
    if batch.K:
        assert_close(got, batch.expected())
    else:
        assert [len(part) for part in got] == [0, 0]


@settings(max_examples=60, deadline=None)
@given(batches())
def test_torch_equals_dense(batch):
    assert_equals_dense(batch, "torch")


@needs_triton
@settings(max_examples=25, deadline=None)
@given(batches(), st.sampled_from([16, 256]), st.sampled_from([1, 2, 3]))
def test_triton_equals_dense(batch, tile, num_splits):
    from paged_kv.gpu import launch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "TILE_INTERPRETED", tile)
        patch.setattr(launch, "choose_splits", lambda *_: num_splits)
        assert_equals_dense(batch, "triton")


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_block_boundaries(backend, block_size, monkeypatch):
    small_tiles(monkeypatch, backend)
    lengths = [block_size + 1, 0, block_size, 1, block_size - 1]
    padding = PADDINGS[block_size % 3]
    batch = make_batch(lengths, block_size=block_size, padding=padding)
    assert_close(decode(batch, backend), batch.expected())


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize(("n_heads", "n_kv_heads"), HEADS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_heads(backend, n_heads, n_kv_heads, head_dim):
    batch = make_batch([21], n_heads, n_kv_heads, head_dim, seed=head_dim)
    assert_close(decode(batch, backend), batch.expected())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_long_sequence(backend):
    batch = make_batch([1000, 3], 8, 1, padding="live")
    assert_close(decode(batch, backend), batch.expected())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_narrow_storage_is_accumulated_in_float32(backend, dtype):
    batch = make_batch([37, 16], dtype=dtype, q_dtype=dtype)
    assert_close(decode(batch, backend), batch.expected())


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_beyond_float16(backend):
    # q · k is about 77 000, more than float16 holds.
    batch = make_batch([20], dtype=torch.float16, q_dtype=torch.float16, amplitude=0)
    batch.q.fill_(40.0)
    batch.k_cache.copy_(torch.where(batch.k_cache.isnan(), math.nan, 30.0))
    assert (
        batch.q[0, 0].double() @ batch.k_cache[batch.block_tables[0, 0], 0, 0].double()
    ) > 65504
    batch.K = [torch.full_like(K, 30.0) for K in batch.K]
    assert_close(decode(batch, backend), batch.expected(), atol=1e-2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_follow_their_tables(backend):
    batch = make_batch([5, 33, 18])
    out = decode(batch, backend)[0]
    order = [2, 0]
    batch.q, batch.block_tables = batch.q[order], batch.block_tables[order]
    batch.seq_lens = batch.seq_lens[order]
    assert torch.equal(decode(batch, backend)[0], out[order])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_scale_is_the_argument(backend):
    batch = make_batch([19])
    batch.scale = 0.31
    assert_close(decode(batch, backend), batch.expected())


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_strides(backend):
    """One tensor for K and V, as FlashInfer stores them; q as a slice."""
    batch = make_batch([18, 5])
    both = torch.stack([batch.k_cache, batch.v_cache], 1)
    batch.k_cache, batch.v_cache = both.unbind(1)
    batch.q = torch.stack([batch.q, batch.q + 1], 1)[:, 0]
    assert_close(decode(batch, backend), batch.expected())


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_batch(backend):
    batch = make_batch([])
    out, lse = decode(batch, backend)
    assert (out.shape, lse.shape) == ((0, 6, 64), (0, 6))


def test_inputs_that_require_gradients():
    batch = make_batch([18])
    batch.q.requires_grad_()
    assert not paged_attention_decode(*batch.args).requires_grad


def small_tiles(monkeypatch, backend):
    """Make the interpreter walk several tiles over short sequences."""
    if backend == "triton":
        from paged_kv.gpu import launch

        monkeypatch.setattr(launch, "TILE_INTERPRETED", 16)


@needs_triton
@pytest.mark.parametrize("num_splits", [1, 2, 3, 7])
def test_splits_merge_exactly(num_splits, monkeypatch):
    small_tiles(monkeypatch, "triton")
    # Longer, shorter and exactly as long as a split, and empty.
    batch = make_batch([70, 0, 16, 1], 8, 1, block_size=8)
    got = decode(batch, "triton", num_splits=num_splits)
    assert_close(got, batch.expected())
    # A log-sum-exp far below zero, and one that grows from split to split.
    batch.q.abs_().mul_(10)
    for cache in (batch.k_cache, *batch.K):
        cache.abs_().neg_()
    batch.k_cache[batch.block_tables[0, 8]] /= 10
    batch.K[0][64:] /= 10
    got = decode(batch, "triton", num_splits=num_splits)
    assert got[1][0].max() < 0
    assert_close(got, batch.expected())


@needs_triton
def test_offsets_beyond_32_bits(monkeypatch):
    """Block 7768 times 276 480 elements; only its pages take memory."""
    from triton.runtime.interpreter import GridExecutor

    # It would copy every tensor onto itself, and so touch all of it.
    monkeypatch.setattr(GridExecutor, "_restore_args_dev", lambda *_: None)
    num_blocks, block, stride = 7769, 7768, 276_480
    assert block * stride > 2**31
    k_cache, v_cache = (
        torch.empty(num_blocks * stride, dtype=torch.int8).as_strided(
            (num_blocks, 16, 1, 64), (stride, 64, 64, 1)
        )
        for _ in range(2)
    )
    scales = torch.full((num_blocks, 1), 0.01)
    K, V = torch.randint(-127, 128, (2, 3, 1, 64), dtype=torch.int8)
    k_cache[block, :3], v_cache[block, :3] = K, V
    q = torch.randn(1, 1, 64)
    with watched("triton"):
        out, lse = paged_attention_decode(
            q,
            k_cache,
            v_cache,
            torch.tensor([[block]], dtype=torch.int32),
            torch.tensor([3], dtype=torch.int32),
            0.1,
            backend="triton",
            return_lse=True,
            k_scale=scales,
            v_scale=scales,
        )
    assert_close((out[0], lse[0]), dense(q[0], K * 0.01, V * 0.01, 0.1))


def quantized(batch):
    """Return caches of codes and their scales, and what they read back as."""
    codes, scales = [], []
    for name, factor in (("k_cache", 1.0), ("v_cache", 40.0)):
        cache = getattr(batch, name) * factor
        pairs = [quantize_block_int8(block.nan_to_num().numpy()) for block in cache]
        codes.append(torch.stack([torch.from_numpy(c) for c, _ in pairs]))
        scales.append(torch.stack([torch.from_numpy(s.ravel()) for _, s in pairs]))
    exact = [
        c.float() * s[:, None, :, None] for c, s in zip(codes, scales, strict=True)
    ]
    free = torch.ones(len(batch.k_cache), dtype=torch.bool)
    for row, length in enumerate(batch.seq_lens.tolist()):
        blocks = batch.block_tables[row, : -(-length // 16)].long()
        free[blocks] = False
        batch.K[row], batch.V[row] = (
            store[blocks].flatten(0, 1)[:length] for store in exact
        )
    for scale in scales:  # whatever stands in blocks of nobody must not matter
        scale[free] = math.nan
    batch.k_cache, batch.v_cache = codes
    return scales


@pytest.mark.parametrize("backend", BACKENDS)
def test_int8_with_scales_of_their_own(backend):
    batch = make_batch([40, 0, 7, 16])
    k_scale, v_scale = quantized(batch)
    assert batch.k_cache.dtype == torch.int8
    assert v_scale.nanmean() > 10 * k_scale.nanmean()
    got = decode(batch, backend, k_scale=k_scale, v_scale=v_scale)
    assert_close(got, batch.expected(), atol=1e-3)
