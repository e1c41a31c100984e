"""QuantizedBlockPool: when blocks are coded, what is copied, what memory it takes."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_kv import (
    BlockPool,
    OutOfBlocks,
    PoolCorrupted,
    Sequence,
    gather_kv,
    paged_attention,
    reference_attention,
)
from paged_kv.quantization import (
    Fp8E4M3,
    GroupedInt,
    Hadamard,
    QuantizedBlockPool,
    SymmetricInt,
)

from .schemes import IDS, QUANTIZERS

N_LAYERS, N_KV_HEADS, HEAD_DIM = 2, 3, 8


def make_pool(num_blocks=12, block_size=4, **options):
    """Return a pool whose codes and scales are junk until something is written."""
    pool = QuantizedBlockPool(
        num_blocks, N_LAYERS, N_KV_HEADS, HEAD_DIM, block_size, **options
    )
    for store in (pool.k_codes, pool.v_codes):
        for array in store.arrays:
            array[:] = np.nan if array.dtype.kind == "f" else 85
    return pool


def make_kv(n, seed=0, scale=1.0):
    shape = (2, N_LAYERS, n, N_KV_HEADS, HEAD_DIM)
    return np.random.default_rng(seed).normal(scale=scale, size=shape).astype("f4")


def expected(X, quantizer, bs):
    """Return how (n_layers, T, heads, d) reads back: full blocks coded, tail exact."""
    out = X.astype(np.float32).copy()
    for start in range(0, X.shape[1] // bs * bs, bs):
        for layer in out:
            block = layer[start : start + bs]
            block[:] = quantizer.dequantize(*quantizer.quantize(block))
    return out


def assert_reads(pool, seq, K, V):
    """Compare a sequence, layer by layer, with the K and V it should read back."""
    for layer in range(N_LAYERS):
        got = gather_kv(pool, seq, layer)
        assert np.array_equal(got[0], K[layer])
        assert np.array_equal(got[1], V[layer])


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=IDS)
@settings(deadline=None, max_examples=12)
@given(
    bs=st.sampled_from([1, 2, 4, 6]),
    pieces=st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["append", "extend", "layers"])),
        min_size=1,
        max_size=4,
    ),
)
def test_codes_do_not_depend_on_how_tokens_arrived(quantizer, bs, pieces):
    total = sum(n for n, _ in pieces)
    K, V = make_kv(total)
    at_once = make_pool(40, bs, k_quantizer=quantizer, v_quantizer=quantizer)
    whole = Sequence(at_once, "whole")
    whole.extend(K, V)
    pool = make_pool(40, bs, k_quantizer=quantizer, v_quantizer=quantizer)
    seq = Sequence(pool, "pieces")
    start = 0
    for n, way in pieces:
        k, v = K[:, start : start + n], V[:, start : start + n]
        if way == "append":
            for i in range(n):
                seq.append(k[:, i], v[:, i])
        elif way == "extend":
            seq.extend(k, v)
        else:
            slots = seq.reserve(n)
            for layer in range(N_LAYERS):
                pool.write(layer, slots, k[layer], v[layer])
        start += n
        pool.check([seq])
    full = total // bs
    assert seq.block_table == whole.block_table
    assert np.array_equal(pool.coded, at_once.coded)
    assert pool.coded[:, seq.block_table[:full]].all()
    assert len(pool.open) == len(at_once.open) == (total % bs > 0)
    for mine, theirs in zip(
        [*pool.k_codes.arrays, *pool.v_codes.arrays],
        [*at_once.k_codes.arrays, *at_once.v_codes.arrays],
        strict=True,
    ):
        blocks = seq.block_table[:full]
        assert np.array_equal(mine[:, blocks], theirs[:, blocks])
    assert_reads(pool, seq, expected(K, quantizer, bs), expected(V, quantizer, bs))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), order=st.permutations(range(9)))
def test_slots_may_be_written_in_any_order(seed, order):
    K, V = make_kv(9, seed)
    pool = make_pool()
    before = Sequence(pool, "before")
    before.extend(*make_kv(12, seed + 1))
    before.free()  # its codes are still there, and must not count as written
    seq = Sequence(pool, "a")
    slots = seq.reserve(9)
    for layer in range(N_LAYERS):
        for i in order[:5]:
            pool.write(layer, slots[[i]], K[layer, [i]], V[layer, [i]])
        rest = list(order[5:])
        pool.write(layer, slots[rest], K[layer, rest], V[layer, rest])
    q = SymmetricInt()
    assert_reads(pool, seq, expected(K, q, 4), expected(V, q, 4))
    assert len(pool.open) == 1


def test_layers_are_coded_one_by_one_and_the_last_one_frees_the_exact_block():
    K, V = make_kv(4)
    pool = make_pool()
    seq = Sequence(pool, "a")
    seq.extend(K[:, :3], V[:, :3])
    (block,) = seq.block_table
    slots = seq.reserve(1)
    for layer in range(N_LAYERS):
        assert block in pool.open
        pool.write(layer, slots, K[layer, 3:], V[layer, 3:])
        assert pool.coded[:, block].tolist() == [i <= layer for i in range(N_LAYERS)]
        read = expected(K[layer][None], SymmetricInt(), 4)[0]
        assert np.array_equal(gather_kv(pool, seq, layer)[0], read)
    assert block not in pool.open


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=IDS)
@pytest.mark.parametrize("length", [3, 4, 7])
def test_copy_on_write_takes_everything_that_belongs_to_a_block(quantizer, length):
    """Codes, scales and exact values: of a partial tail, and of a coded one cut short.

    A fault of real engines: K and V were copied and the scales were not.
    """
    K, V = make_kv(length, scale=100)
    k, v = make_kv(1, seed=1, scale=0.01)
    pool = make_pool(k_quantizer=quantizer, v_quantizer=quantizer)
    parent = Sequence(pool, "parent")
    parent.extend(K, V)
    parent.truncate(3)
    before = [gather_kv(pool, parent, layer) for layer in range(N_LAYERS)]
    child = parent.fork("child")
    child.append(k[:, 0], v[:, 0])
    assert child.block_table != parent.block_table
    for layer in range(N_LAYERS):
        mine, hers = gather_kv(pool, parent, layer), gather_kv(pool, child, layer)
        for old, same, copied in zip(before[layer], mine, hers, strict=True):
            assert np.array_equal(same, old)
            assert copied.shape[0] == 4
    # The parent's tail, which only it holds now, must not have been coded or shared.
    parent.append(k[:, 0] + 1, v[:, 0] + 1)
    child.append(k[:, 0], v[:, 0])
    blocks = []
    for layer in range(N_LAYERS):
        start = np.stack([b[:3] for b in before[layer]])
        new = np.stack([k[layer], v[layer]])
        block = np.concatenate([start, new], axis=1)
        for i, got in enumerate(gather_kv(pool, child, layer)):
            back = quantizer.dequantize(*quantizer.quantize(block[i]))
            assert np.array_equal(got[:4], back)
        blocks.append(block)
    pool.check([parent, child])


def test_a_child_copies_the_exact_tail_and_the_parent_writes_on_in_place():
    K, V = make_kv(6)
    pool = make_pool()
    parent = Sequence(pool, "parent")
    parent.extend(K[:, :5], V[:, :5])
    child = parent.fork("child")
    child.append(K[:, 5], V[:, 5])
    assert len(pool.open) == 2
    block = parent.append(K[:, 5] * 2, V[:, 5] * 2)
    assert block == 1
    for seq, factor in ((child, 1), (parent, 2)):
        tail = gather_kv(pool, seq, 1)[0][4:]
        assert np.array_equal(tail, [K[1, 4], K[1, 5] * np.float32(factor)])
    child.free()
    assert len(pool.open) == 1
    parent.free()
    assert len(pool.open) == 0
    assert pool.open.peak == 2
    pool.check([parent, child])


def test_truncate_into_a_full_block_opens_it_again_and_reads_right():
    K, V = make_kv(8)
    k, v = make_kv(3, seed=1, scale=50)
    pool = make_pool()
    seq = Sequence(pool, "a")
    seq.extend(K, V)
    seq.truncate(5)
    q = SymmetricInt()
    old_k, old_v = expected(K, q, 4), expected(V, q, 4)
    assert_reads(pool, seq, old_k[:, :5], old_v[:, :5])
    assert len(pool.open) == 0
    for i in range(3):
        assert len(pool.open) == (i > 0)
        seq.append(k[:, i], v[:, i])
        if i < 2:
            assert_reads(
                pool,
                seq,
                np.concatenate([old_k[:, :5], k[:, : i + 1]], axis=1),
                np.concatenate([old_v[:, :5], v[:, : i + 1]], axis=1),
            )
    assert len(pool.open) == 0
    second = np.concatenate([old_k[:, 4:5], k], axis=1)
    assert np.array_equal(gather_kv(pool, seq, 0)[0][4:], expected(second, q, 4)[0])


def test_slots_in_the_middle_of_a_coded_block_may_be_written_again():
    K, V = make_kv(4)
    k, v = make_kv(2, seed=1)
    pool = make_pool()
    seq = Sequence(pool, "a")
    seq.extend(K, V)
    read = expected(K, SymmetricInt(), 4)
    for layer in range(N_LAYERS):
        pool.write(layer, np.array([1, 3]), k[layer], v[layer])
        read[layer, [1, 3]] = k[layer]
        # Whether slot 2 is to be written too, nobody knows: the block stays open.
        assert np.array_equal(gather_kv(pool, seq, layer)[0], read[layer])
    assert len(pool.open) == 1
    for layer in range(N_LAYERS):
        pool.write(layer, np.array([2]), K[layer, 2:3], V[layer, 2:3])
    assert len(pool.open) == 0


def test_a_reused_block_does_not_remember_its_last_owner():
    pool = make_pool(num_blocks=1)
    first = Sequence(pool, "first")
    first.extend(*make_kv(4, scale=1e4))
    first.free()
    second = Sequence(pool, "second")
    K, V = make_kv(4, seed=1)
    second.extend(K[:, :2], V[:, :2])
    assert len(pool.open) == 1
    assert_reads(pool, second, K[:, :2], V[:, :2])
    second.extend(K[:, 2:], V[:, 2:])
    second.free()
    assert len(pool.open) == 0
    assert pool.coded.all()
    block = pool.allocate()
    assert not pool.coded[:, block].any()
    pool.write(0, np.arange(2), K[0, :2], V[0, :2])
    assert len(pool.open) == 1
    pool.release(block)
    assert len(pool.open) == 0


def test_groups_never_mix_requests():
    """Two requests, interleaved in the pool: each is coded as if it were alone."""
    quantizer = GroupedInt(2, "channel", 32)  # larger than a block
    options = {"k_quantizer": quantizer, "v_quantizer": GroupedInt(2, "token")}
    quiet, loud = make_kv(8, 0), make_kv(8, 1, scale=1000)
    pool = make_pool(**options)
    pair = [Sequence(pool, "quiet"), Sequence(pool, "loud")]
    for i in range(8):
        for seq, (K, V) in zip(pair, (quiet, loud), strict=True):
            seq.append(K[:, i], V[:, i])
    for seq, (K, V) in zip(pair, (quiet, loud), strict=True):
        alone_pool = make_pool(**options)
        alone = Sequence(alone_pool, "alone")
        alone.extend(K, V)
        assert seq.block_table != alone.block_table
        for layer in range(N_LAYERS):
            for got, want in zip(
                gather_kv(pool, seq, layer),
                gather_kv(alone_pool, alone, layer),
                strict=True,
            ):
                assert np.array_equal(got, want)


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=IDS)
def test_k_and_v_have_parameters_of_their_own(quantizer):
    K, V = make_kv(4)
    V *= 100
    pool = make_pool(k_quantizer=quantizer, v_quantizer=quantizer)
    seq = Sequence(pool, "a")
    seq.extend(K, V)
    assert_reads(pool, seq, expected(K, quantizer, 4), expected(V, quantizer, 4))


def test_k_and_v_may_have_different_quantisers():
    K, V = make_kv(8)
    k_q, v_q = Hadamard(SymmetricInt(4, "token")), Fp8E4M3(0.01, "fp8")
    pool = make_pool(k_quantizer=k_q, v_quantizer=v_q)
    seq = Sequence(pool, "a")
    seq.extend(K, V)
    assert_reads(pool, seq, expected(K, k_q, 4), expected(V, v_q, 4))


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 21])
def test_paged_attention_is_that_over_what_reads_back(length):
    K, V = make_kv(length)
    q = np.random.default_rng(5).normal(size=(6, HEAD_DIM))
    quantizer = SymmetricInt(4)
    pool = make_pool(k_quantizer=quantizer)
    for block in [pool.allocate() for _ in range(12)][::-2]:
        pool.release(block)  # a table that is no identity
    seq = Sequence(pool, "a")
    seq.extend(K, V)
    K, V = expected(K, quantizer, 4), expected(V, SymmetricInt(), 4)
    for layer in range(N_LAYERS):
        out = paged_attention(pool, seq, layer, q, 0.3)
        assert out.dtype == np.float32
        want = reference_attention(K[layer], V[layer], q, 0.3)
        np.testing.assert_allclose(out, want, atol=1e-5)


def test_slots_that_were_never_written_are_never_read():
    for dtype in (np.float16, np.float32, np.float64):
        pool = make_pool(dtype=dtype)
        seq = Sequence(pool, "a")
        K, V = make_kv(5)
        seq.extend(K, V)
        for exact in pool.open.values():
            exact.k[~exact.written] = np.nan
            exact.v[~exact.written] = np.inf
        q = np.ones((3, HEAD_DIM))
        assert np.isfinite(paged_attention(pool, seq, 0, q, 0.3)).all()
        seq.reserve(7)  # reserved ahead: the last block has no values at all
        seq.length = 5
        assert np.isfinite(paged_attention(pool, seq, 0, q, 0.3)).all()


def arrays_of(pool):
    """Return every array that a pool keeps, found by looking, not by asking it."""
    found = [*pool.k_codes.arrays, *pool.v_codes.arrays]
    found += [part for exact in pool.open.values() for part in exact]
    found += [a for a in vars(pool).values() if isinstance(a, np.ndarray)]
    return found


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=IDS)
@pytest.mark.parametrize("length", [0, 4, 7])
def test_memory_is_what_is_said(quantizer, length):
    pool = make_pool(k_quantizer=quantizer, v_quantizer=quantizer)
    Sequence(pool, "a").extend(*make_kv(length))
    books = pool.ref.nbytes + pool.held.nbytes
    assert sum(a.nbytes for a in arrays_of(pool)) == pool.nbytes + books
    elements = 2 * N_LAYERS * 4 * N_KV_HEADS * HEAD_DIM
    bits = quantizer.bits_per_element((4, N_KV_HEADS, HEAD_DIM))
    assert pool.bytes_per_block() * 8 == elements * bits
    kept = pool.num_blocks * pool.bytes_per_block() + pool.coded.nbytes
    assert pool.nbytes == kept + (length % 4 > 0) * pool.bytes_per_open_block()


def test_no_array_of_exact_values_survives_for_full_blocks():
    pool = make_pool(num_blocks=64)
    seq = Sequence(pool, "a")
    seq.extend(*make_kv(64 * 4))
    gc.collect()
    assert not hasattr(pool, "k")
    assert not hasattr(pool, "v")
    exact = BlockPool(64, N_LAYERS, N_KV_HEADS, HEAD_DIM, 4)
    assert pool.nbytes < 0.4 * (exact.k.nbytes + exact.v.nbytes)


def state(pool, seq):
    parts = [a.copy() for a in arrays_of(pool)]
    return parts, list(seq.block_table), len(seq), pool.free


def assert_same_state(before, after):
    assert before[1:] == after[1:]
    for a, b in zip(before[0], after[0], strict=True):
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


@pytest.mark.parametrize("fault", ["shape", "nan", "inf", "large", "full"])
@pytest.mark.parametrize("length", [3, 4])
def test_a_rejected_write_changes_nothing(fault, length):
    pool = make_pool(num_blocks=2, v_quantizer=GroupedInt(4, "token"))
    seq = Sequence(pool, "a")
    seq.extend(*make_kv(length))
    other = Sequence(pool, "other")
    K, V = make_kv(1)
    if fault == "shape":
        V = V[..., :2]
    elif fault == "full":
        K, V = make_kv(9)
    else:
        V[0, 0, 0, 0] = {"nan": np.nan, "inf": np.inf, "large": 4e4}[fault]
    before = state(pool, seq)
    error = OutOfBlocks if fault == "full" else ValueError
    with pytest.raises(error):
        seq.extend(K, V)
    with pytest.raises(error):
        other.extend(K, V)
    assert_same_state(before, state(pool, seq))


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ([[0]], "whole numbers"),
        ([0.5], "whole numbers"),
        ([-1], "outside"),
        ([48], "outside"),
        ([40], r"blocks \[10\] have counts \[0\]"),
        ([0], r"blocks \[0\] have counts \[2\]"),
    ],
)
def test_slots_that_must_not_be_written_are_refused(slots, message):
    pool = make_pool()
    seq = Sequence(pool, "a")
    seq.extend(*make_kv(3))
    seq.fork("b")
    K, V = make_kv(1)
    before = state(pool, seq)
    with pytest.raises(ValueError, match=message):
        pool.write(0, np.array(slots), K[0], V[0])
    with pytest.raises(ValueError, match="layer 2"):
        pool.write(2, np.array([0]), K[0], V[0])
    assert_same_state(before, state(pool, seq))


def test_values_the_quantiser_cannot_hold_are_refused_before_the_block_is_full():
    pool = make_pool(k_quantizer=GroupedInt(2, "channel"))
    seq = Sequence(pool, "a")
    K, V = make_kv(1)
    with pytest.raises(ValueError, match="K has values up to 40000, int2"):
        seq.append(K[:, 0] * 0 + 4e4, V[:, 0])
    seq.append(K[:, 0], V[:, 0] * 0 + 4e4)  # V has a wider quantiser


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=IDS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_opening_a_block_of_largest_values_again_never_fails(quantizer, dtype):
    """Rounding outwards must not creep out of the range that coding accepts."""
    pool = make_pool(dtype=dtype, k_quantizer=quantizer, v_quantizer=quantizer)
    limit = min(quantizer.largest(HEAD_DIM), float(np.finfo(dtype).max))
    K, V = make_kv(4)
    # A little below, since the limit itself may round up to the next float.
    K, V = (np.sign(X) * limit * (1 - 1e-3) for X in (K, V))
    seq = Sequence(pool, "a")
    seq.extend(K, V)
    for _ in range(20):
        seq.truncate(3)
        seq.append(K[:, 3], V[:, 3])
    assert np.isfinite(gather_kv(pool, seq, 0)[0]).all()


def test_check_finds_an_exact_block_that_should_be_gone():
    pool = make_pool()
    seq = Sequence(pool, "a")
    seq.extend(*make_kv(4))
    pool.open.open(seq.block_table[0])
    with pytest.raises(PoolCorrupted, match="block 0 is free or coded"):
        pool.check([seq])
    seq.free()
    pool.open.open(5)
    with pytest.raises(PoolCorrupted, match="block 5"):
        pool.check([seq])
