"""Sequences: boundaries, forks, copy-on-write, atomicity."""

import numpy as np
import pytest

from paged_kv import (
    BlockAllocator,
    BlockPool,
    DoubleFree,
    OutOfBlocks,
    Sequence,
    gather_kv,
)

BLOCK_SIZES = [1, 2, 4, 16]


def books(pool, *sequences):
    """Return all that an operation may change, contents aside."""
    return (
        pool.ref.tolist(),
        list(pool._free_list),
        [(list(s.block_table), s.length) for s in sequences],
    )


def contents(pool, seq):
    layers = [gather_kv(pool, seq, layer) for layer in range(pool.n_layers)]
    return np.array([np.stack(kv) for kv in layers])


def assert_holds(pool, seq, K, V):
    """Assert that `seq` reads back K and V, in every layer."""
    assert len(seq) == K.shape[1]
    for layer in range(pool.n_layers):
        got_k, got_v = gather_kv(pool, seq, layer)
        assert np.array_equal(got_k, K[layer])
        assert np.array_equal(got_v, V[layer])


@pytest.mark.parametrize("bs", BLOCK_SIZES)
def test_append_takes_a_block_on_each_boundary(make_pool, make_kv, bs):
    pool = make_pool(num_blocks=64, block_size=bs)
    seq = Sequence(pool, "a")
    K, V = make_kv(pool, 2 * bs + 1)
    for t in range(2 * bs + 1):
        block = seq.append(K[:, t], V[:, t])
        assert block == seq.block_table[t // bs]
        assert len(seq) == seq.length == t + 1
        assert len(seq.block_table) == -(-(t + 1) // bs)
        pool.check([seq])
    assert seq.block_table == [0, 1, 2]
    assert_holds(pool, seq, K, V)


@pytest.mark.parametrize("bs", BLOCK_SIZES)
@pytest.mark.parametrize("first", [0, 1, 3, 16])
@pytest.mark.parametrize("then", [0, 1, 5, 16, 33])
def test_extend_equals_appends(make_pool, make_kv, bs, first, then):
    pool = make_pool(num_blocks=128, block_size=bs)
    K, V = make_kv(pool, first + then)
    at_once, one_by_one = Sequence(pool, "at once"), Sequence(pool, "one by one")
    at_once.extend(K[:, :first], V[:, :first])
    slots = at_once.extend(K[:, first:], V[:, first:])
    for t in range(first + then):
        one_by_one.append(K[:, t], V[:, t])
    assert slots.dtype == np.int64
    assert slots.tolist() == [
        at_once.block_table[t // bs] * bs + t % bs for t in range(first, first + then)
    ]
    pool.check([at_once, one_by_one])
    for seq in (at_once, one_by_one):
        assert_holds(pool, seq, K, V)


def test_extend_over_scattered_blocks(make_pool, make_kv):
    pool = make_pool(block_size=4)
    for _ in range(16):
        pool.allocate()
    for block in (3, 11, 0, 14, 7):
        pool.release(block)
    seq = Sequence(pool, "a")
    K, V = make_kv(pool, 18)
    seq.extend(K[:, :3], V[:, :3])
    seq.extend(K[:, 3:], V[:, 3:])
    assert seq.block_table == [7, 14, 0, 11, 3]
    assert_holds(pool, seq, K, V)


def test_reserve_then_write_equals_extend(make_pool, make_kv):
    pool = make_pool(block_size=4)
    a, b = Sequence(pool, "a"), Sequence(pool, "b")
    K, V = make_kv(pool, 10)
    a.extend(K, V)
    for span in (slice(0, 3), slice(3, 10)):
        slots = b.reserve(span.stop - span.start)
        assert len(b) == span.stop
        for layer in range(pool.n_layers):
            pool.write(layer, slots, K[layer, span], V[layer, span])
    assert np.array_equal(contents(pool, a), contents(pool, b))
    assert b.reserve(0).shape == (0,)
    pool.check([a, b])


class TestFork:
    @pytest.fixture
    def family(self, make_pool, make_kv):
        pool = make_pool(block_size=4)
        base = Sequence(pool, "base")
        K, V = make_kv(pool, 6)
        base.extend(K, V)
        return pool, base, K, V

    def test_fork_shares_blocks_and_copies_nothing(self, family):
        pool, base, K, V = family
        child = base.fork("child")
        assert child.seq_id == "child"
        assert child.block_table == base.block_table
        assert child.block_table is not base.block_table
        assert pool.ref[:2].tolist() == [2, 2]
        assert pool.used == 2
        pool.check([base, child])

    def test_child_outlives_parent(self, family):
        pool, base, K, V = family
        child = base.fork("child")
        base.free()
        pool.check([base, child])
        assert_holds(pool, child, K, V)

    @pytest.mark.parametrize("writer", ["base", "child"])
    def test_first_writer_copies_and_the_last_writes_in_place(
        self, family, make_kv, writer
    ):
        pool, base, K, V = family
        child = base.fork("child")
        first, last = (base, child) if writer == "base" else (child, base)
        k, v = make_kv(pool, 2)
        assert first.append(k[:, 0], v[:, 0]) == 2
        assert pool.ref[:3].tolist() == [2, 1, 1]
        assert last.append(k[:, 1], v[:, 1]) == 1
        assert pool.used == 3
        pool.check([base, child])
        for seq, t in ((first, 0), (last, 1)):
            own = slice(t, t + 1)
            assert_holds(
                pool,
                seq,
                np.concatenate([K, k[:, own]], axis=1),
                np.concatenate([V, v[:, own]], axis=1),
            )

    def test_no_copy_on_a_block_boundary(self, family, make_kv):
        pool, base, K, V = family
        base.extend(*make_kv(pool, 2))
        child = base.fork("child")
        child.extend(*make_kv(pool, 1))
        assert child.block_table[:2] == base.block_table
        assert pool.ref[:3].tolist() == [2, 2, 1]

    def test_fork_of_a_fork(self, family, make_kv):
        pool, base, K, V = family
        child = base.fork("child")
        grandchild = child.fork("grandchild")
        assert pool.ref[:2].tolist() == [3, 3]
        grandchild.extend(*make_kv(pool, 7))
        assert grandchild.block_table == [0, 2, 3, 4]
        pool.check([base, child, grandchild])
        assert_holds(pool, base, K, V)
        assert_holds(pool, child, K, V)

    def test_fork_of_an_empty_sequence(self, make_pool, make_kv):
        pool = make_pool()
        child = Sequence(pool, "empty").fork("child")
        child.extend(*make_kv(pool, 3))
        pool.check([child])

    def test_promised_room_counts_the_copy(self, make_pool, make_kv):
        pool = make_pool(num_blocks=1, block_size=4)
        base = Sequence(pool, "base")
        K, V = make_kv(pool, 3)
        base.extend(K, V)
        child = base.fork("child")
        assert base.blocks_needed(1) == child.blocks_needed(1) == 1
        k, v = make_kv(pool, 1)
        before = books(pool, base, child)
        with pytest.raises(OutOfBlocks, match="'child' of 3 tokens needs 1"):
            child.append(k[:, 0], v[:, 0])
        assert books(pool, base, child) == before
        assert_holds(pool, base, K, V)
        base.free()
        assert child.blocks_needed(1) == 0
        child.append(k[:, 0], v[:, 0])

    def test_outsider_cannot_take_a_block_that_a_table_holds(self, family, make_kv):
        pool, base, K, V = family
        child = base.fork("child")
        base.free()
        for _ in range(2):
            with pytest.raises(DoubleFree, match=r"block 0 .* held by"):
                pool.release(0)
        other = Sequence(pool, "other")
        other.extend(*make_kv(pool, pool.free * 4))
        pool.check([child, other])
        assert_holds(pool, child, K, V)

    def test_fork_that_fails_counts_nothing(self, make_pool, make_kv):
        class Picky(Sequence):
            def __init__(self, pool, seq_id):
                if seq_id == "bad":
                    raise KeyError(seq_id)
                super().__init__(pool, seq_id)

        pool = make_pool()
        base = Picky(pool, "base")
        base.extend(*make_kv(pool, 5))
        with pytest.raises(KeyError):
            base.fork("bad")
        pool.check([base])

    def test_subclass_forks_into_its_own_kind(self, make_pool):
        class Traced(Sequence):
            pass

        assert type(Traced(make_pool(), "a").fork("b")) is Traced


def test_prompt_of_500_tokens_and_ten_forks():
    pool = BlockPool(512, 1, 1, 1)
    base = Sequence(pool, "base")
    base.extend(np.ones((1, 500, 1, 1)), np.ones((1, 500, 1, 1)))
    forks = [base.fork(f"req{i}") for i in range(10)]
    for seq in forks:
        for _ in range(3):
            seq.append([[[1.0]]], [[[2.0]]])
    assert pool.used == 42
    assert forks[0].block_table == [*range(31), 32]
    base.free()
    assert pool.used == 41
    for seq in forks:
        seq.free()
    assert pool.used == 0
    assert pool.peak == 42


class TestTruncate:
    @pytest.mark.parametrize("keep", [0, 1, 3, 4, 5, 8, 9])
    def test_keeps_the_first_tokens(self, make_pool, make_kv, keep):
        pool = make_pool(block_size=4)
        seq = Sequence(pool, "a")
        K, V = make_kv(pool, 9)
        seq.extend(K, V)
        seq.truncate(keep)
        pool.check([seq])
        assert_holds(pool, seq, K[:, :keep], V[:, :keep])

    def test_then_append_into_a_shared_block_copies_it(self, make_pool, make_kv):
        pool = make_pool(block_size=4)
        base = Sequence(pool, "base")
        K, V = make_kv(pool, 8)
        base.extend(K, V)
        child = base.fork("child")
        child.truncate(2)
        child.extend(K[:, :1], V[:, :1])
        assert child.block_table == [2]
        pool.check([base, child])
        assert_holds(pool, base, K, V)

    @pytest.mark.parametrize("bad", [-1, 10, 1.5, None])
    def test_refuses(self, make_pool, make_kv, bad):
        pool = make_pool(block_size=4)
        seq = Sequence(pool, "a")
        seq.extend(*make_kv(pool, 9))
        before = books(pool, seq)
        with pytest.raises(ValueError):
            seq.truncate(bad)
        assert books(pool, seq) == before

    def test_tail_is_freed_first(self, make_pool, make_kv):
        pool = make_pool(num_blocks=3, block_size=2)
        seq = Sequence(pool, "a")
        seq.extend(*make_kv(pool, 6))
        seq.free()
        # The last one freed is on top of the stack: block 0, the head, went last.
        assert pool.allocate_many(3) == [0, 1, 2]


@pytest.mark.parametrize("length", [3, 4])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda k: k[:, :, :1], ValueError),
        (lambda k: k[0], ValueError),
        (lambda k: k[..., None, None], ValueError),
        (lambda k: 1.0, ValueError),
        (lambda k: np.full_like(k, np.nan), ValueError),
        (lambda k: np.full_like(k, -np.inf), ValueError),
        (lambda k: k.astype(complex), TypeError),
        (lambda k: k.astype(object), TypeError),
        (lambda k: None, (TypeError, ValueError)),
    ],
)
@pytest.mark.parametrize("which", ["k", "v"])
def test_rejected_append_changes_nothing(
    make_pool, make_kv, length, change, error, which
):
    pool = make_pool(block_size=4)
    seq = Sequence(pool, "a")
    K, V = make_kv(pool, length)
    seq.extend(K, V)
    k, v = (x[:, 0] for x in make_kv(pool, 1))
    bad = {"k": k, "v": v}
    bad[which] = change(bad[which])
    before, stored = books(pool, seq), contents(pool, seq)
    with pytest.raises(error):
        seq.append(**bad)
    with pytest.raises(error):
        seq.extend(
            *(x if np.ndim(x) != 3 else np.asarray(x)[:, None] for x in bad.values())
        )
    assert books(pool, seq) == before
    assert np.array_equal(contents(pool, seq), stored)
    pool.check([seq])


@pytest.mark.parametrize(
    ("dtype", "value", "named"),
    [
        (np.float16, 1e5, "float16"),
        (np.float16, 2**62, "float16"),
        (np.float32, 1e39, "float32"),
        # A float64 pool could hold it, but attention is computed in float32.
        (np.float64, 1e39, "float32"),
        (np.float64, -1e300, "float32"),
    ],
)
def test_value_too_large_is_refused(make_pool, dtype, value, named):
    pool = make_pool(dtype=dtype)
    seq = Sequence(pool, "a")
    big = np.full((2, 3, 4), value)
    with pytest.raises(ValueError, match=f"too large for {named}"):
        seq.append(big, np.zeros_like(big))
    with pytest.raises(ValueError, match=f"too large for {named}"):
        seq.extend(np.zeros_like(big)[:, None], big[:, None])
    assert pool.used == 0


@pytest.mark.parametrize("n", [9, 100])
def test_extend_beyond_the_pool_is_all_or_nothing(make_pool, make_kv, n):
    pool = make_pool(num_blocks=3, block_size=4)
    seq = Sequence(pool, "a")
    K, V = make_kv(pool, 4)
    seq.extend(K, V)
    before = books(pool, seq)
    with pytest.raises(OutOfBlocks, match="2 free of 3"):
        seq.extend(*make_kv(pool, n))
    assert books(pool, seq) == before
    assert_holds(pool, seq, K, V)


@pytest.mark.parametrize("bad", [-1, 1.5, None, "2", True])
def test_reserve_and_blocks_needed_want_a_count(make_pool, bad):
    seq = Sequence(make_pool(), "a")
    with pytest.raises(ValueError, match="n_tokens"):
        seq.reserve(bad)
    with pytest.raises(ValueError, match="n_tokens"):
        seq.blocks_needed(bad)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint64])
def test_numpy_counts_are_as_good_as_python_ones(make_pool, kind):
    pool = make_pool(num_blocks=40)
    seq = Sequence(pool, "a")
    for _ in range(3):  # beyond what int8 and uint8 can hold
        seq.reserve(kind(100))
    assert (type(seq.length), seq.length) == (int, 300)
    assert np.array_equal(seq.slots(kind(100)), seq.slots(100))
    with pytest.raises(OutOfBlocks, match="needs 100 blocks"):
        Sequence(make_pool(block_size=1), "b").reserve(kind(100))
    seq.truncate(kind(100))
    assert (type(seq.length), seq.length) == (int, 100)
    pool.check([seq])


def test_slots_beyond_int32_do_not_wrap():
    pool = BlockAllocator(3, block_size=1 << 30)  # the books alone take no memory
    pool.allocate_many(2)
    seq = Sequence(pool, "a")
    assert seq.reserve(2).tolist() == [1 << 31, (1 << 31) + 1]


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.append(np.zeros((2, 3, 4)), np.zeros((2, 3, 4))),
        lambda s: s.extend(np.zeros((2, 1, 3, 4)), np.zeros((2, 1, 3, 4))),
        lambda s: s.reserve(1),
        lambda s: s.truncate(0),
        lambda s: s.blocks_needed(1),
        lambda s: s.fork("b"),
        lambda s: s.free(),
    ],
)
def test_freed_sequence_refuses_everything(make_pool, make_kv, use):
    pool = make_pool()
    seq = Sequence(pool, "gone")
    seq.extend(*make_kv(pool, 20))
    seq.free()
    assert (len(seq), seq.block_table, pool.used) == (0, [], 0)
    with pytest.raises(RuntimeError, match="'gone' was freed"):
        use(seq)
    pool.check([seq])


def test_caller_keeps_her_arrays(make_pool, make_kv):
    pool = make_pool()
    seq = Sequence(pool, "a")
    K, V = make_kv(pool, 20)
    kept = K.copy()
    seq.extend(K, V)
    K[:] = 0
    assert_holds(pool, seq, kept, V)


class TestFailureInTheMiddle:
    """The storage may fail when all checks have passed: a codec, a device, no memory.

    Whatever fails, and however late, the books are as they were before, and everybody
    reads the same tokens; the next attempt succeeds.
    """

    @pytest.fixture
    def family(self, make_kv):
        class Failing(BlockPool):
            broken = ""

            def fail(self, name):
                if self.broken == name:
                    raise MemoryError("no room on the device")

            def copy_block(self, source, target):
                self.k[:, target] = self.k[:, source]  # half of it
                self.fail("copy_block")
                super().copy_block(source, target)

            def write_all_layers(self, slots, K, V):
                super().write_all_layers(slots[:1], K[:, :1], V[:, :1])
                self.fail("write_all_layers")
                super().write_all_layers(slots, K, V)

        pool = Failing(16, 2, 3, 4, block_size=4)
        base = Sequence(pool, "base")
        K, V = make_kv(pool, 6)
        base.extend(K, V)
        return pool, base, K, V

    @pytest.mark.parametrize("shared", [True, False])
    @pytest.mark.parametrize("length", [4, 5, 6])
    @pytest.mark.parametrize("n", [1, 2, 3, 9])
    @pytest.mark.parametrize("broken", ["copy_block", "write_all_layers"])
    def test_changes_nothing(self, family, make_kv, broken, n, length, shared):
        pool, base, K, V = family
        base.truncate(length)
        others = [base.fork("child")] if shared else []
        k, v = make_kv(pool, n)

        def attempt():
            if n == 1:
                base.append(k[:, 0], v[:, 0])
            else:
                base.extend(k, v)

        before, pool.broken = books(pool, base, *others), broken
        if broken == "write_all_layers" or (shared and length % 4):
            with pytest.raises(MemoryError, match="device"):
                attempt()
            assert books(pool, base, *others) == before
            pool.check([base, *others])
            for seq in (base, *others):
                assert_holds(pool, seq, K[:, :length], V[:, :length])
        pool.broken = ""
        attempt()
        pool.check([base, *others])
        expected = (np.concatenate([a[:, :length], b], 1) for a, b in ((K, k), (V, v)))
        assert_holds(pool, base, *expected)
        for other in others:
            assert_holds(pool, other, K[:, :length], V[:, :length])

    def test_reserve_returns_its_blocks_when_the_copy_fails(self, family):
        pool, base, _, _ = family
        child = base.fork("child")
        before, pool.broken = books(pool, base, child), "copy_block"
        with pytest.raises(MemoryError, match="device"):
            child.reserve(7)
        assert books(pool, base, child) == before
        pool.check([base, child])
