"""Attention in parts: equal to the plain result, and honest about what it reads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_kv import BlockPool, Sequence, reference_attention
from paged_kv.partitions import cascade_attention, decode_batch, flash_decoding


class CountingPool(BlockPool):
    """Counts the bytes of K and V that anybody reads, and starts full of NaN."""

    bytes_read = 0

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.k[:] = self.v[:] = np.nan
        # Scattered ids: the free list is no longer in order.
        for block in np.random.default_rng(1).permutation(
            [self.allocate() for _ in range(self.num_blocks)]
        ):
            self.release(block)

    def read_blocks(self, layer, blocks):
        K, V = super().read_blocks(layer, blocks)
        self.bytes_read += K.nbytes + V.nbytes
        return K, V


def forks(seed, prefix, suffixes, bs, n_kv=3, dim=5, layers=2):
    """Return a pool and sequences with a common prefix, and K and V of each."""
    rng = np.random.default_rng(seed)
    blocks = -(-prefix // bs) + sum(-(-n // bs) + 2 for n in suffixes) + 2
    pool = CountingPool(blocks, layers, n_kv, dim, bs)

    def random(n):
        return rng.normal(size=(2, layers, n, n_kv, dim)).astype(np.float32)

    common = random(prefix)
    base = Sequence(pool, "base")
    base.extend(*common)
    seqs, contents = [], []
    for i, n in enumerate(suffixes):
        seq = base.fork(i)
        own = random(n)
        seq.extend(*own)
        seqs.append(seq)
        contents.append(np.concatenate([common, own], axis=2))
    base.free()
    q = rng.normal(size=(len(seqs), 2 * n_kv, dim)).astype(np.float32)
    return pool, seqs, contents, q


def expected(contents, q, layer, scale):
    return np.stack(
        [
            reference_attention(K[layer], V[layer], query, scale)
            for (K, V), query in zip(contents, q, strict=True)
        ]
    )


sizes = st.sampled_from([1, 4, 16])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    prefix=st.integers(0, 50),
    suffixes=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    bs=sizes,
)
def test_cascade_equals_plain_and_counts_what_it_reads(seed, prefix, suffixes, bs):
    pool, seqs, contents, q = forks(seed, prefix, suffixes, bs)
    shared = prefix // bs if len(seqs) > 1 else 0
    for layer in range(2):
        wanted = expected(contents, q, layer, 0.4)
        readings = []
        for method in (decode_batch, cascade_attention):
            pool.bytes_read = 0
            result = method(pool, seqs, layer, q, 0.4)
            assert result.out.dtype == np.float32
            np.testing.assert_allclose(result.out, wanted, atol=1e-5)
            assert result.kv_bytes == pool.bytes_read
            readings.append(pool.bytes_read)
        per_block = pool.bytes_per_block() // 2
        assert readings[0] - readings[1] == (len(seqs) - 1) * shared * per_block


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    length=st.integers(1, 70),
    bs=sizes,
    blocks=st.integers(1, 4),
)
def test_flash_decoding_equals_plain_and_reads_no_more(seed, length, bs, blocks):
    pool, (seq,), contents, q = forks(seed, 0, [length], bs)
    wanted = expected(contents, q, 1, 0.4)[0]
    result = flash_decoding(pool, seq, 1, q[0], 0.4, blocks * bs)
    np.testing.assert_allclose(result.out, wanted, atol=1e-5)
    assert result.kv_bytes == pool.bytes_read
    pool.bytes_read = 0
    assert decode_batch(pool, [seq], 1, q, 0.4).kv_bytes == result.kv_bytes
    parts = -(-length // (blocks * bs))
    assert result.state_bytes == parts * 4 * (q[0].size + len(q[0]))


def test_a_prefix_of_equal_content_in_other_blocks_is_not_shared():
    pool, seqs, _, q = forks(0, 0, [16, 16], 4)
    assert (
        cascade_attention(pool, seqs, 0, q, 1).kv_bytes
        == decode_batch(pool, seqs, 0, q, 1).kv_bytes
    )


def test_only_what_all_share_is_read_once():
    pool, (a, b), contents, q = forks(0, 12, [3, 2], 4)
    c = Sequence(pool, "c")
    c.extend(*contents[0][:, :, :8])
    with_stranger = cascade_attention(pool, [a, b, c], 0, np.stack([*q, q[0]]), 1)
    blocks = sum(len(s.block_table) for s in (a, b, c))
    assert with_stranger.kv_bytes == blocks * pool.bytes_per_block() // 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_block_that_one_of_them_fills_in_part_is_not_shared(order):
    pool, (long, _), contents, q = forks(0, 8, [4, 1], 4)
    short = long.fork("short")
    short.truncate(10)  # ends in the middle of a block that both list
    seqs = [(long, contents[0]), (short, contents[0][:, :, :10])]
    seqs, contents = zip(*(seqs[i] for i in order), strict=True)
    got = cascade_attention(pool, seqs, 1, q, 0.3)
    np.testing.assert_allclose(got.out, expected(contents, q, 1, 0.3), atol=2e-5)


def test_a_sequence_may_end_with_the_shared_prefix():
    pool, seqs, contents, q = forks(0, 8, [5, 4], 4)
    short = seqs[0].fork("short")
    short.truncate(8)
    contents = [contents[0][:, :, :8], contents[1]]
    result = cascade_attention(pool, [short, seqs[1]], 0, q, 1)
    np.testing.assert_allclose(result.out, expected(contents, q, 0, 1), atol=1e-5)


@pytest.mark.parametrize("tokens", [0, -4, 6, 1])
def test_a_partition_cuts_no_block(tokens):
    pool, (seq,), _, q = forks(0, 0, [9], 4)
    with pytest.raises(ValueError, match="partition_tokens"):
        flash_decoding(pool, seq, 0, q[0], 1, tokens)


@pytest.mark.parametrize("method", [decode_batch, cascade_attention])
def test_a_batch_that_does_not_fit_is_refused(method):
    pool, seqs, _, q = forks(0, 8, [5, 4], 4)
    empty = Sequence(pool, "nobody")
    for bad_seqs, bad_q, message in (
        (seqs, q[0], "one query for each of 2"),
        (seqs, q[:1], "one query for each of 2"),
        ([], q[:0], "one query for each of 0"),
        ([seqs[0], empty], q, "'nobody' is empty"),
        (seqs, q[:, :5], "multiple of 3"),
        (seqs, q[..., :4], "head_dim|, 5"),
    ):
        with pytest.raises(ValueError, match=message):
            method(pool, bad_seqs, 0, bad_q, 1)
    with pytest.raises(ValueError, match="'nobody' is empty"):
        flash_decoding(pool, empty, 0, q[0], 1)


def test_a_freed_sequence_is_not_attended_to_in_parts_either():
    pool, seqs, _, q = forks(0, 8, [5, 4], 4)
    seqs[1].free()
    for method in (cascade_attention, decode_batch):
        with pytest.raises(RuntimeError, match="was freed"):
            method(pool, seqs, 0, q, 1)
    with pytest.raises(RuntimeError, match="was freed"):
        flash_decoding(pool, seqs[1], 0, q[1], 1)
