"""Everything that a kernel would read wrongly is refused before it starts."""

import math

import pytest
import torch

from paged_kv import Sequence
from paged_kv.gpu import (
    TorchBlockPool,
    batch_tables,
    cascade_decode,
    paged_attention_decode,
    paged_mla_decode,
    paged_prefill,
)

from .batches import BACKENDS, make_batch, needs_triton


def refused(match, batch, **changes):
    for name in [*changes]:
        if hasattr(batch, name):
            setattr(batch, name, changes.pop(name))
    with pytest.raises(ValueError, match=match):
        paged_attention_decode(*batch.args, **changes)


@pytest.fixture
def batch():
    """Three rows of 5, 33 and 18 tokens in blocks of 16; ten blocks."""
    return make_batch([5, 33, 18], extra_blocks=0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("row", "entry", "block"), [(0, 0, -1), (1, 2, 10**6), (2, 1, -2)]
)
def test_a_block_outside_names_row_and_entry(batch, backend, row, entry, block):
    batch.block_tables[row, entry] = block
    refused(
        f"row {row}: block {block} at entry {entry} is outside 0…",
        batch,
        backend=backend,
    )


def test_the_first_id_beyond_the_caches_is_outside(batch):
    batch.block_tables[1, 0] = n = len(batch.k_cache)
    refused(f"row 1: block {n} at entry 0 is outside 0…{n - 1}", batch)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_table_too_narrow_for_a_length(batch, backend):
    batch.seq_lens[2] = n = batch.block_tables.shape[1] * 16 + 1
    refused(f"row 2: {n} tokens need 5 blocks of 16, .* 4", batch, backend=backend)


def test_length_nine_over_two_blocks_of_four():
    batch = make_batch([8], block_size=4)
    batch.block_tables = torch.tensor([[1, 2]], dtype=torch.int32)
    batch.seq_lens[0] = 9
    refused("row 0: 9 tokens need 3 blocks of 4, the table has 2 entries", batch)


def test_a_negative_length(batch):
    batch.seq_lens[1] = -1
    refused("row 1: -1 tokens", batch)


@pytest.mark.parametrize(
    ("match", "changes"),
    [
        ("q must be", {"q": torch.zeros(3, 6, 63)}),
        ("q must be", {"q": torch.zeros(3, 7, 64)}),
        ("q must be", {"q": torch.zeros(6, 64)}),
        ("q must hold", {"q": torch.zeros(3, 0, 64)}),
        ("q must hold", {"q": torch.zeros(3, 6, 64, dtype=torch.int32)}),
        ("block_tables must be int32 with 4 rows", {"q": torch.zeros(4, 6, 64)}),
        ("seq_lens must be int32", {"seq_lens": torch.tensor([5, 33, 18])}),
        ("seq_lens must be int32", {"seq_lens": torch.tensor([5], dtype=torch.int32)}),
        ("block_tables must", {"block_tables": torch.zeros(3, dtype=torch.int32)}),
        ("block_tables must", {"block_tables": torch.zeros(3, 4, dtype=torch.long)}),
        ("scale must be finite", {"scale": math.nan}),
        ("scale must be finite", {"scale": math.inf}),
        ("caches must share one type", {"v_cache": torch.zeros(10, 16, 3, 64).half()}),
        ("k_cache and v_cache must both", {"v_cache": torch.zeros(10, 16, 2, 64)}),
        ("k_cache and v_cache must both", {"k_cache": torch.zeros(10, 16, 3)}),
        ("backend must be", {"backend": "cuda"}),
        ("belong to int8", {"k_scale": torch.ones(10, 3)}),
    ],
)
def test_what_does_not_fit(batch, match, changes):
    if "v_cache" in changes and changes["v_cache"].ndim == 4:
        changes["v_cache"] = changes["v_cache"][:1].repeat(len(batch.k_cache), 1, 1, 1)
    refused(match, batch, **changes)


def test_int8_needs_both_scales_of_the_right_shape(batch):
    batch.k_cache = batch.v_cache = torch.zeros(batch.k_cache.shape, dtype=torch.int8)
    n = len(batch.k_cache)
    good = torch.ones(n, 3)
    refused("need both", batch)
    refused("need both", batch, k_scale=good)
    refused("v_scale must be float32", batch, k_scale=good, v_scale=good.double())
    refused("k_scale must be float32", batch, k_scale=good[:, :2], v_scale=good)


def test_tensors_on_two_devices(batch):
    batch.k_cache = batch.k_cache.to("meta")
    refused("one device, got q on cpu, k_cache on meta", batch)


def test_tables_on_another_device(batch):
    q, k, v, *tables, scale = batch.args
    away = [tensor.to("meta") for tensor in (q, k, v)]
    starts = torch.arange(4, dtype=torch.int32)
    # Not MLA: products of "meta" tensors make torch import Triton, without interpreter.
    for attend in (
        lambda: paged_attention_decode(*away, *tables, scale),
        lambda: cascade_decode(*away, *tables, scale),
        lambda: paged_prefill(*away, *tables, starts, scale),
    ):
        with pytest.raises(ValueError, match="block_tables are on cpu, q is on meta"):
            attend()


@needs_triton
def test_triton_wants_equal_strides(batch):
    batch.v_cache = batch.v_cache.transpose(1, 2).contiguous().transpose(1, 2)
    refused("equal strides", batch, backend="triton")
    refused("num_splits must be", make_batch([3]), backend="triton", num_splits=0)


class TestPrefill:
    def refused(self, match, chunks, lengths=(5, 33)):
        batch = make_batch([*lengths])
        q = torch.zeros(max(chunks[-1], 0), 6, 64)
        cu = torch.tensor(chunks, dtype=torch.int32)
        with pytest.raises(ValueError, match=match):
            paged_prefill(
                q,
                batch.k_cache,
                batch.v_cache,
                batch.block_tables,
                batch.seq_lens,
                cu,
                0.1,
            )

    def test_a_chunk_longer_than_its_sequence(self):
        self.refused(
            "row 0: a chunk of 6 tokens does not fit a sequence of 5", [0, 6, 7]
        )

    def test_chunks_out_of_order(self):
        self.refused("row 1: a chunk of -1 tokens", [0, 4, 3])

    def test_chunks_that_are_not_all_of_q(self):
        self.refused("must run from 0", [1, 2, 3])

    def test_too_few_chunks(self):
        self.refused("cu_seqlens_q must be int32", [0, 4])

    def test_a_block_outside(self):
        batch = make_batch([5])
        batch.block_tables[0, 0] = 99
        with pytest.raises(ValueError, match="row 0: block 99 at entry 0"):
            paged_prefill(
                batch.q,
                *batch.args[1:5],
                torch.tensor([0, 1], dtype=torch.int32),
                0.1,
            )


class TestCascade:
    def test_rows_that_do_not_share(self):
        batch = make_batch([40, 40, 40])
        batch.block_tables[:, 0] = batch.block_tables[0, 0]
        batch.block_tables[1, 1] = batch.block_tables[0, 1]
        with pytest.raises(ValueError, match=r"row 2 .* 2 full blocks .* all .* 1$"):
            cascade_decode(*batch.args, shared_blocks=2)

    def test_a_row_too_short(self):
        batch = make_batch([40, 20])
        batch.block_tables[1] = batch.block_tables[0]
        with pytest.raises(ValueError, match="row 1"):
            cascade_decode(*batch.args, shared_blocks=2)


def test_mla_projections_that_do_not_fit():
    tables = torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    q = torch.zeros(1, 4, 16), torch.zeros(1, 4, 8)
    cache = torch.zeros(2, 16, 40)
    good = torch.zeros(4, 16, 32), torch.zeros(4, 32, 16)
    paged_mla_decode(*q, cache, *tables, *good, 0.1)
    for w_uk, w_uv in ((good[0][:, :, 1:], good[1]), (good[0], good[1][:3])):
        with pytest.raises(ValueError, match="w_uk must be"):
            paged_mla_decode(*q, cache, *tables, w_uk, w_uv, 0.1)
    with pytest.raises(ValueError, match="latent_cache must be"):
        paged_mla_decode(*q, cache[0], *tables, *good, 0.1)


def test_batch_tables():
    pool = TorchBlockPool(8, 1, 1, 2)
    a, b, empty = (Sequence(pool, name) for name in "abc")
    for seq, n in ((a, 33), (b, 1)):
        seq.reserve(n)
    tables, lengths = batch_tables([b, empty, a])
    assert tables.tolist() == [[3, -1, -1], [-1] * 3, [0, 1, 2]]
    assert lengths.tolist() == [1, 0, 33]
    assert (tables.dtype, lengths.dtype) == (torch.int32, torch.int32)
    assert batch_tables([])[0].shape == (0, 0)
