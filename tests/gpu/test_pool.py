"""One bookkeeping, two storages: `Sequence` does the same on torch and on numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_kv import (
    BlockPool,
    OutOfBlocks,
    Sequence,
    gather_kv,
    paged_attention,
    reference_attention,
)
from paged_kv.gpu import TorchBlockPool, batch_tables, paged_attention_decode

LAYERS, HEADS, DIM = 2, 3, 4


def pools(num_blocks=12, block_size=4):
    sizes = (num_blocks, LAYERS, HEADS, DIM, block_size)
    ours, theirs = TorchBlockPool(*sizes), BlockPool(*sizes)
    ours.k.fill_(torch.nan)
    ours.v.fill_(torch.nan)
    return ours, theirs


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["append", "extend", "layers", "fork", "truncate", "free"]),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(ACTIONS)
def test_the_same_happens_on_both_pools(actions):
    pair = pools()
    live = [[Sequence(pool, 0)] for pool in pair]
    rng = np.random.default_rng(0)
    for action, who, n in actions:
        who %= len(live[0])
        seqs = [column[who] for column in live]
        K, V = rng.normal(size=(2, LAYERS, n, HEADS, DIM)).astype(np.float32)
        outcomes = [act(action, seq, K, V, n) for seq in seqs]
        assert outcomes[0] == outcomes[1]
        if action == "fork":
            for column, seq in zip(live, seqs, strict=True):
                column.append(seq.fork(len(column)))
        if action == "free" and len(live[0]) > 1:
            for column in live:
                column.pop(who).free()
        for pool, column in zip(pair, live, strict=True):
            pool.check(column)
        for mine, other in zip(*live, strict=True):
            assert mine.block_table == other.block_table
            for layer in range(LAYERS):
                got = gather_kv(pair[0], mine, layer)
                np.testing.assert_array_equal(got, gather_kv(pair[1], other, layer))


def act(action, seq, K, V, n):
    """Do one thing to a sequence; return what happened, in words."""
    try:
        if action == "append":
            return seq.append(K[:, 0], V[:, 0]) if n else None
        if action == "extend":
            return seq.extend(K, V).tolist()
        if action == "layers":
            slots = seq.reserve(n)
            for layer in range(LAYERS):
                seq.pool.write(layer, slots, K[layer], V[layer])
            return slots.tolist()
        if action == "truncate":
            return seq.truncate(min(n, len(seq)))
    except OutOfBlocks as error:
        return str(error)
    return None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_numpy_and_torch_inputs_are_stored_alike(dtype):
    pool = TorchBlockPool(4, LAYERS, HEADS, DIM, dtype=dtype)
    K, V = torch.randn(2, LAYERS, 5, HEADS, DIM)
    a, b = Sequence(pool, "torch"), Sequence(pool, "numpy")
    a.extend(K, V)
    b.extend(K.numpy(), V.double().numpy())
    expected = K[1].to(dtype).float().numpy()
    for seq in (a, b):
        np.testing.assert_array_equal(gather_kv(pool, seq, 1)[0], expected)
    assert pool.k.dtype == dtype
    assert pool.bytes_per_block() == 2 * LAYERS * 16 * HEADS * DIM * dtype.itemsize


def test_ml_dtypes_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    pool = TorchBlockPool(1, 1, 1, 2, dtype=torch.bfloat16)
    seq = Sequence(pool, "a")
    k = np.array([[[1.5, -2.0]]], ml_dtypes.bfloat16)
    seq.append(k, k)
    assert gather_kv(pool, seq, 0)[0].tolist() == [[[1.5, -2.0]]]


@pytest.mark.parametrize(
    ("error", "K"),
    [
        (ValueError, torch.zeros(LAYERS, HEADS, DIM + 1)),
        (ValueError, torch.zeros(HEADS, DIM)),
        (ValueError, torch.full((LAYERS, HEADS, DIM), torch.nan)),
        (ValueError, torch.full((LAYERS, HEADS, DIM), 1e6)),  # inf in float16
        (TypeError, torch.zeros(LAYERS, HEADS, DIM, dtype=torch.complex64)),
        (TypeError, torch.zeros(LAYERS, HEADS, DIM, dtype=torch.bool)),
        (TypeError, np.full((LAYERS, HEADS, DIM), "x")),
        (TypeError, np.zeros((LAYERS, HEADS, DIM), bool)),
    ],
)
def test_a_refused_append_changes_nothing(error, K):
    pool = TorchBlockPool(4, LAYERS, HEADS, DIM, 4, torch.float16)
    seq = Sequence(pool, "a")
    seq.extend(*torch.randn(2, LAYERS, 4, HEADS, DIM))
    before = pool.k.clone(), list(seq.block_table), pool.ref.copy()
    good = torch.zeros(LAYERS, HEADS, DIM)
    for k, v in ((K, good), (good, K)):
        with pytest.raises(error):
            seq.append(k, v)
    assert torch.equal(pool.k.nan_to_num(), before[0].nan_to_num())
    assert (seq.block_table, len(seq)) == (before[1], 4)
    np.testing.assert_array_equal(pool.ref, before[2])
    pool.check([seq])


def test_only_float_types_are_stored():
    for dtype in (torch.int8, torch.float64, "float32"):
        with pytest.raises(ValueError, match="dtype must be one of"):
            TorchBlockPool(1, 1, 1, 1, dtype=dtype)


def test_a_shared_tail_is_copied_before_it_is_written():
    pool, _ = pools()
    base = Sequence(pool, "base")
    K, V = torch.randn(2, LAYERS, 6, HEADS, DIM)
    base.extend(K, V)
    child = base.fork("child")
    child.append(torch.ones(LAYERS, HEADS, DIM), torch.ones(LAYERS, HEADS, DIM))
    assert child.block_table[0] == base.block_table[0]
    assert child.block_table[1] != base.block_table[1]
    for layer in range(LAYERS):
        for got, exact in zip(gather_kv(pool, base, layer), (K, V), strict=True):
            np.testing.assert_array_equal(got, exact[layer].numpy())
        got = gather_kv(pool, child, layer)[0]
        np.testing.assert_array_equal(got[:6], K[layer].numpy())
        assert (got[6] == 1).all()


def test_numpy_torch_and_dense_agree():
    ours, theirs = pools(30)
    order = np.random.default_rng(1).permutation(30)
    tables = []
    K, V = np.random.default_rng(2).normal(size=(2, LAYERS, 23, HEADS, DIM))
    for pool in (ours, theirs):
        for block in [pool.allocate() for _ in range(30)] and order:
            pool.release(int(block))
        seq = Sequence(pool, "a")
        seq.extend(K, V)
        tables.append(seq)
    q = np.random.default_rng(3).normal(size=(6, DIM)).astype(np.float32)
    dense = reference_attention(K[1], V[1], q, 0.3)
    block_tables, lengths = batch_tables(tables[:1])
    batched = paged_attention_decode(
        torch.from_numpy(q)[None], ours.k[1], ours.v[1], block_tables, lengths, 0.3
    )
    for out in (
        paged_attention(theirs, tables[1], 1, q, 0.3),
        paged_attention(ours, tables[0], 1, q, 0.3),
        batched[0].numpy(),
    ):
        np.testing.assert_allclose(out, dense, atol=1e-5)
