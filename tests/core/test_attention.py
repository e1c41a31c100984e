"""Attention over pages against a dense computation that never saw a pool."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_kv import (
    AttentionState,
    BlockPool,
    Sequence,
    attention,
    gather_kv,
    paged_attention,
    partial_attention,
    reference_attention,
)


def dense(K, V, q, scale):
    """Return float64 attention, head by head; K and V are (L, n_kv_heads, d)."""
    K, V, q = (np.asarray(x, np.float64) for x in (K, V, q))
    group = len(q) // K.shape[1]
    out = np.empty_like(q)
    for h, row in enumerate(q):
        scores = K[:, h // group] @ row * scale
        weights = np.exp(scores - scores.max())
        out[h] = weights @ V[:, h // group] / weights.sum()
    return out


def scattered(rng, length, n_layers, n_kv_heads, head_dim, bs, dtype=np.float32):
    """Return a NaN-filled pool, a sequence in shuffled blocks, and its K and V."""
    spare = 3
    num_blocks = -(-length // bs) + spare
    pool = BlockPool(num_blocks, n_layers, n_kv_heads, head_dim, bs, dtype)
    pool.k[:] = np.nan
    pool.v[:] = np.nan
    taken = [pool.allocate() for _ in range(num_blocks)]
    for block in rng.permutation(taken)[spare:]:
        pool.release(block)
    K, V = rng.normal(scale=2, size=(2, n_layers, length, n_kv_heads, head_dim))
    K, V = K.astype(dtype), V.astype(dtype)
    seq = Sequence(pool, "a")
    seq.extend(K, V)
    return pool, seq, K, V


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    bs=st.sampled_from([1, 2, 4, 8, 16]),
    blocks=st.integers(0, 5),
    extra=st.integers(-1, 1),
    heads=st.sampled_from([(6, 3), (4, 2), (4, 1), (9, 3), (2, 2), (1, 1)]),
    head_dim=st.sampled_from([1, 5, 16]),
    n_layers=st.integers(1, 3),
    at_once=st.sampled_from([1, 200, 1 << 20]),
)
def test_equals_dense(seed, bs, blocks, extra, heads, head_dim, n_layers, at_once):
    length = max(1, blocks * bs + extra)
    rng = np.random.default_rng(seed)
    n_heads, n_kv_heads = heads
    pool, seq, K, V = scattered(rng, length, n_layers, n_kv_heads, head_dim, bs)
    q = rng.normal(size=(n_heads, head_dim)).astype(np.float32)
    scale = head_dim**-0.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "BYTES_AT_ONCE", at_once)  # 1 = block by block
        for layer in range(n_layers):
            expected = dense(K[layer], V[layer], q, scale)
            for out in (
                paged_attention(pool, seq, layer, q, scale),
                reference_attention(K[layer], V[layer], q, scale),
            ):
                assert out.dtype == np.float32
                assert out.shape == q.shape
                np.testing.assert_allclose(out, expected, atol=2e-5)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.integers(1, 40),
    cuts=st.lists(st.integers(0, 11), max_size=3),
)
def test_partial_states_merge_to_the_whole_in_any_order(seed, length, cuts):
    rng = np.random.default_rng(seed)
    pool, seq, K, V = scattered(rng, length, 1, 3, 8, 4)
    q = rng.normal(size=(6, 8)).astype(np.float32)
    edges = [0, *sorted(cuts), None]
    parts = [
        partial_attention(pool, seq, 0, q, 0.3, start, stop)
        for start, stop in itertools.pairwise(edges)
    ]
    merged = AttentionState.empty(6, 8)
    for i in rng.permutation(len(parts)):
        merged = merged.merge(parts[i])
    np.testing.assert_allclose(merged.out, dense(K[0], V[0], q, 0.3), atol=2e-5)
    scores = np.einsum("hd,thd->ht", q, np.repeat(K[0], 2, axis=1)) * 0.3
    lse = np.log(np.exp(scores.astype(np.float64)).sum(axis=1))
    np.testing.assert_allclose(merged.lse, lse, atol=1e-4)
    assert merged.out.dtype == merged.lse.dtype == np.float32


def test_empty_state_is_the_identity_of_merge(rng):
    pool, seq, *_ = scattered(rng, 10, 1, 3, 8, 4)
    some = partial_attention(pool, seq, 0, rng.normal(size=(6, 8)), 0.3)
    empty = partial_attention(pool, seq, 0, rng.normal(size=(6, 8)), 0.3, 2, 2)
    for state in (empty, AttentionState.empty(6, 8), empty.merge(empty)):
        assert (state.out == 0).all()
        assert np.isneginf(state.lse).all()
        for merged in (state.merge(some), some.merge(state)):
            assert np.array_equal(merged.out, some.out)
            assert np.array_equal(merged.lse, some.lse)


def test_states_of_other_shapes_do_not_merge():
    with pytest.raises(ValueError, match="merge"):
        AttentionState.empty(6, 8).merge(AttentionState.empty(1, 8))


@pytest.mark.parametrize("size", [400, -400])
def test_far_apart_scores_neither_overflow_nor_vanish(rng, size):
    """Scores of hundreds, of either sign: exp of them is inf or 0 in float32."""
    pool, seq, K, V = scattered(rng, 9, 1, 1, 4, 2)
    K[:] = np.abs(K)  # all scores are large, or all of them very small
    pool.k[:] = np.abs(pool.k)
    q = np.full((1, 4), size, np.float32)
    expected = dense(K[0], V[0], q, 1.0)
    out = paged_attention(pool, seq, 0, q, 1.0)
    np.testing.assert_allclose(out, expected, atol=1e-4)
    first, last = (partial_attention(pool, seq, 0, q, 1.0, *s) for s in ((0, 2), (2,)))
    for merged in (first.merge(last), last.merge(first)):
        np.testing.assert_allclose(merged.out, expected, atol=1e-4)
        assert np.isfinite(merged.lse).all()


def test_float16_products_are_summed_in_float32():
    pool = BlockPool(2, 1, 1, 64, 4, np.float16)
    seq = Sequence(pool, "a")
    K = np.full((1, 2, 1, 64), 35, np.float16)  # q · k = 78 400, above 65 504
    V = np.stack([np.zeros((1, 64)), np.ones((1, 64))])[None].astype(np.float16)
    seq.extend(K, V)
    out = paged_attention(pool, seq, 0, np.full((1, 64), 35, np.float16), 1.0)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, 0.5)


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_result_is_float32_whatever_the_storage(rng, dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    real = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    pool, seq, K, V = scattered(rng, 10, 1, 3, 8, 4, real)
    q = rng.normal(size=(6, 8))
    out = paged_attention(pool, seq, 0, q, np.float64(0.3))
    assert out.dtype == np.float32
    assert reference_attention(K[0], V[0], q, np.float64(0.3)).dtype == np.float32
    np.testing.assert_allclose(out, dense(K[0], V[0], q, 0.3), atol=2e-5)
    assert gather_kv(pool, seq, 0)[0].dtype == real


@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_block_reserved_ahead_does_not_matter(rng, monkeypatch, at_once):
    monkeypatch.setattr(attention, "BYTES_AT_ONCE", at_once)
    pool, seq, K, V = scattered(rng, 8, 1, 3, 8, 4)
    q = rng.normal(size=(6, 8))
    expected = paged_attention(pool, seq, 0, q, 0.3)
    pool.release(next(b for b in range(pool.num_blocks) if b not in seq.block_table))
    seq.block_table.append(pool.allocate())  # full of NaN
    assert np.array_equal(paged_attention(pool, seq, 0, q, 0.3), expected)


def test_current_token_is_seen_while_its_layers_are_written(rng):
    pool, seq, K, V = scattered(rng, 5, 2, 3, 8, 4)
    k, v = rng.normal(size=(2, 2, 1, 3, 8)).astype(np.float32)
    q = rng.normal(size=(6, 8))
    pool.release(next(b for b in range(pool.num_blocks) if b not in seq.block_table))
    slots = seq.reserve(1)
    for layer in range(2):
        pool.write(layer, slots, k[layer], v[layer])
        expected = dense(
            np.concatenate([K[layer], k[layer]]),
            np.concatenate([V[layer], v[layer]]),
            q,
            0.3,
        )
        out = paged_attention(pool, seq, layer, q, 0.3)
        np.testing.assert_allclose(out, expected, atol=2e-5)


@pytest.mark.parametrize("attend", [paged_attention, partial_attention])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": np.zeros((5, 8))}, "multiple of 3"),
        ({"q": np.zeros((6, 7))}, r"\(6, 7\)"),
        ({"q": np.zeros(8)}, r"\(8,\)"),
        ({"q": np.zeros((0, 8))}, r"\(0, 8\)"),
        ({"q": np.zeros((1, 6, 8))}, r"\(1, 6, 8\)"),
        ({"layer": 2}, "layer 2"),
        ({"layer": -1}, "layer -1"),
        ({"scale": float("nan")}, "scale"),
        ({"q": np.full((6, 8), np.nan)}, "q · scale"),
        ({"q": np.full((6, 8), 1e30), "scale": 1e30}, "q · scale"),
        ({"table": [0, 1]}, "9 tokens need 3 blocks of 4, the block table has 2"),
        ({"table": [0, 1, 99]}, "outside"),
        ({"table": [0, -1, 2]}, "outside"),
    ],
)
def test_bad_input_is_named(rng, attend, change, message):
    pool, seq, *_ = scattered(rng, 9, 2, 3, 8, 4)
    good = {"layer": 0, "q": np.zeros((6, 8)), "scale": 0.3}
    if "table" in change:
        seq.block_table = change["table"]
    else:
        good |= change
    with pytest.raises(ValueError, match=message):
        attend(pool, seq, **good)


def test_empty_sequence_has_no_attention():
    pool = BlockPool(2, 1, 1, 4)
    with pytest.raises(ValueError, match="'nobody' is empty"):
        paged_attention(pool, Sequence(pool, "nobody"), 0, np.zeros((1, 4)), 0.5)


@pytest.mark.parametrize(
    "read",
    [
        lambda pool, seq: paged_attention(pool, seq, 0, np.zeros((1, 4)), 0.5),
        lambda pool, seq: partial_attention(pool, seq, 0, np.zeros((1, 4)), 0.5),
        lambda pool, seq: gather_kv(pool, seq, 0),
    ],
)
def test_freed_sequence_cannot_be_read(read):
    pool = BlockPool(2, 1, 1, 4)
    seq = Sequence(pool, "gone")
    seq.append(np.zeros((1, 1, 4)), np.zeros((1, 1, 4)))
    seq.free()
    with pytest.raises(RuntimeError, match="'gone' was freed"):
        read(pool, seq)


@pytest.mark.parametrize(
    ("K", "V"),
    [
        ((0, 3, 8), (0, 3, 8)),
        ((4, 0, 8), (4, 0, 8)),
        ((4, 3, 8), (5, 3, 8)),
        ((4, 24), (4, 24)),
        ((4, 3, 7), (4, 3, 7)),
    ],
)
def test_reference_names_wrong_shapes(K, V):
    with pytest.raises(ValueError, match=r"got .*\("):
        reference_attention(np.zeros(K), np.zeros(V), np.zeros((6, 8)), 0.3)


def test_gather_gives_copies(rng):
    pool, seq, K, V = scattered(rng, 9, 1, 3, 8, 4)
    got, _ = gather_kv(pool, seq, 0)
    got[:] = 0
    assert np.array_equal(gather_kv(pool, seq, 0)[0], K[0])


@pytest.mark.parametrize("kind", [complex, object, bool, "U3", "m8[s]"])
def test_only_real_numbers_are_attended_to(rng, kind):
    """numpy would cast each of these, dropping an imaginary part or parsing text."""
    pool, seq, K, V = scattered(rng, 9, 1, 3, 8, 4)
    q = np.ones((6, 8))
    for attend in (paged_attention, partial_attention):
        with pytest.raises(TypeError, match="q must hold real numbers"):
            attend(pool, seq, 0, q.astype(kind), 0.3)
    for name in ("K", "V", "q"):
        arrays = {"K": K[0], "V": V[0], "q": q}
        arrays[name] = np.ones(arrays[name].shape).astype(kind)
        with pytest.raises(TypeError, match=f"{name} must hold real numbers"):
            reference_attention(**arrays, scale=0.3)
