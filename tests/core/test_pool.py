"""The books and the memory of the pool, one fault at a time."""

import numpy as np
import pytest
from ml_dtypes import float8_e5m2

from paged_kv import BlockAllocator, BlockPool, DoubleFree, OutOfBlocks, PoolCorrupted
from paged_kv.sequence import Sequence


@pytest.fixture
def books():
    return BlockAllocator(8, block_size=4)


def snapshot(pool):
    return pool.ref.tolist(), pool.held.tolist(), list(pool._free_list), pool.peak


def test_fresh_pool_hands_out_ids_from_zero_upwards(books):
    assert [books.allocate() for _ in range(3)] == [0, 1, 2]
    assert books.peak == 3
    assert books.allocate_many(2) == [3, 4]
    assert (books.used, books.free, books.peak) == (5, 3, 5)


def test_released_block_is_handed_out_next_and_peak_stays(books):
    blocks = [books.allocate() for _ in range(4)]
    books.release(blocks[1])
    assert books.allocate() == blocks[1]
    for block in blocks:
        books.release(block)
    assert (books.used, books.free, books.peak) == (0, 8, 4)


def test_allocated_block_starts_with_count_one(books):
    block = books.allocate()
    assert books.ref[block] == 1
    assert books.ref.dtype == np.int32
    assert books.ref.shape == (8,)


def test_block_is_free_only_when_the_last_reference_goes(books):
    block = books.allocate()
    books.retain([block, block])
    assert books.ref[block] == 3
    books.release(block)
    books.release_many([block])
    assert books.free == 7
    books.release_many([block])
    assert books.free == 8


def test_out_of_blocks_gives_the_numbers_and_changes_nothing(books):
    books.allocate_many(7)
    before = snapshot(books)
    for n in (2, 3):
        with pytest.raises(OutOfBlocks, match=f"needs {n} blocks, 1 free of 8"):
            books.allocate_many(n)
    assert snapshot(books) == before
    books.allocate()
    with pytest.raises(OutOfBlocks, match="needs 1 block, 0 free of 8"):
        books.allocate()
    assert issubclass(OutOfBlocks, MemoryError)


@pytest.mark.parametrize(
    ("release", "message"),
    [
        (lambda books: books.release(0), "block 0 is already free"),
        (lambda books: books.release(1), "block 1 .* held by"),
        (lambda books: books.release_many([0]), "block 0 is released 1 times"),
        (lambda books: books.release_many([1, 1, 1]), "block 1 is released 3 times"),
        (lambda books: books.release_many([1, 0]), "block 0 is released 1 times"),
        (lambda books: books.release_many([3]), "block 3 is released 1 times"),
    ],
)
def test_double_free_names_the_block_and_changes_nothing(books, release, message):
    books.allocate_many(3)
    books.retain([1])
    books.release_many([0])
    books.allocate()  # block 0 again, for a caller of its own
    books.release(0)
    before = snapshot(books)
    with pytest.raises(DoubleFree, match=message):
        release(books)
    assert snapshot(books) == before


def test_caller_and_holder_give_back_their_own_references(books):
    block = books.allocate()
    books.retain([block])
    books.release(block)
    with pytest.raises(DoubleFree, match="1 reference, all held by"):
        books.release(block)
    books.release_many([block])
    assert books.free == 8


def test_release_many_takes_duplicates_that_are_backed_by_references(books):
    books.allocate_many(2)
    books.retain([1, 1])
    books.release_many([1, 0, 1])
    assert books.ref[:2].tolist() == [0, 1]


@pytest.mark.parametrize("bad", [-1, 8, 10**12])
@pytest.mark.parametrize("method", ["release", "retain", "release_many"])
def test_ids_outside_the_pool_are_refused(books, method, bad):
    books.allocate_many(8)
    before = snapshot(books)
    argument = bad if method == "release" else [0, bad]
    with pytest.raises(ValueError, match=f"{bad} is outside 0…7"):
        getattr(books, method)(argument)
    assert snapshot(books) == before


def test_free_block_cannot_be_shared(books):
    taken = books.allocate()
    with pytest.raises(ValueError, match="block 5 is free"):
        books.retain([taken, 5])
    assert books.ref[taken] == 1


@pytest.mark.parametrize("bad", [1.5, "1", None])
def test_ids_must_be_whole_numbers(books, bad):
    with pytest.raises(TypeError):
        books.release(bad)


@pytest.mark.parametrize("bad", [0, -1, 2.0, True, None])
@pytest.mark.parametrize("name", ["num_blocks", "n_layers", "head_dim", "block_size"])
def test_sizes_are_checked(name, bad):
    sizes = {"num_blocks": 2, "n_layers": 1, "n_kv_heads": 1, "head_dim": 1}
    with pytest.raises(ValueError, match=name):
        BlockPool(**(sizes | {name: bad}))


@pytest.mark.parametrize(
    "dtype", [np.int32, bool, complex, object, "U3", float8_e5m2, "float17", 4]
)
def test_storage_must_be_a_float_type(dtype):
    with pytest.raises(ValueError, match="must be one of float16, float32"):
        BlockPool(2, 1, 1, 1, dtype=dtype)


def test_storage_has_the_layout_of_the_course():
    pool = BlockPool(5, 2, 3, 4, block_size=8, dtype=np.float16)
    assert pool.k.shape == pool.v.shape == (2, 5, 8, 3, 4)
    assert pool.k.dtype == np.float16
    assert pool.bytes_per_block() * 5 == pool.k.nbytes + pool.v.nbytes


class TestCheckFindsEachFault:
    """Every invariant is broken by hand once, and `check` says which."""

    @pytest.fixture
    def two(self, make_pool, make_kv):
        pool = make_pool(block_size=4)
        parent = Sequence(pool, "parent")
        parent.extend(*make_kv(pool, 6))
        return pool, [parent, parent.fork("child")]

    def test_sound_pool_passes(self, two):
        pool, sequences = two
        pool.check(sequences)

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            (lambda p, s: p.ref.__setitem__(0, 1), "block 0: count 1, listed 2"),
            (lambda p, s: p.ref.__setitem__(9, 1), "block 9: count 1, listed 0"),
            (lambda p, s: p._free_list.append(0), "block 0: count 2, 1 times in"),
            (lambda p, s: p._free_list.remove(7), "block 7: count 0, 0 times in"),
            (lambda p, s: p._free_list.append(7), "block 7: count 0, 2 times in"),
            (lambda p, s: s[0].block_table.append(3), "lists 3 blocks, needs 2"),
            (lambda p, s: s[0].block_table.pop(), "lists 1 blocks, needs 2"),
            (lambda p, s: s[1].block_table.__setitem__(0, 99), "outside"),
            (lambda p, s: s.pop(), "count 2, listed 1"),
            (lambda p, s: p.held.__setitem__(0, 3), "block 0: 3 references held of 2"),
            (lambda p, s: setattr(p, "peak", 1), "peak 1 is below used 2"),
        ],
    )
    def test_fault(self, two, fault, message):
        pool, sequences = two
        fault(pool, sequences)
        with pytest.raises(PoolCorrupted, match=message):
            pool.check(sequences)

    def test_holders_count(self, two):
        pool, sequences = two

        class Cache:
            def held_blocks(self):
                return [0]

        pool.retain([0])
        pool.check(sequences, holders=[Cache()])
        with pytest.raises(PoolCorrupted, match="block 0: count 3, listed 2"):
            pool.check(sequences)


class TestWrite:
    @pytest.fixture
    def reserved(self, make_pool):
        pool = make_pool(block_size=4)
        seq = Sequence(pool, "a")
        return pool, seq, seq.reserve(6)

    def test_one_layer_is_written_and_no_other(self, reserved, make_kv):
        pool, seq, slots = reserved
        K, V = make_kv(pool, 6)
        pool.write(1, slots, K[1], V[1])
        blocks, offsets = slots // 4, slots % 4
        assert np.array_equal(pool.k[1, blocks, offsets], K[1])
        assert np.array_equal(pool.v[1, blocks, offsets], V[1])
        assert np.isnan(pool.k[0]).all()
        assert np.isnan(pool.k[1]).sum() == pool.k[1].size - K[1].size

    def test_no_tokens_is_nothing(self, reserved, make_kv):
        pool, seq, slots = reserved
        K, V = make_kv(pool, 0)
        pool.write(0, slots[:0], K[0], V[0])
        pool.write(0, [], K[0], V[0])
        assert np.isnan(pool.k).all()

    def test_narrow_slots_are_widened_before_they_are_divided(self):
        pool = BlockPool(2, 1, 1, 1, block_size=300)
        seq = Sequence(pool, "a")
        K = np.arange(9.0).reshape(9, 1, 1)
        pool.write(0, seq.reserve(9).astype(np.uint8), K, K)
        assert np.array_equal(pool.k[0, 0, :9], K)

    @pytest.mark.parametrize(
        ("layer", "change", "message"),
        [
            (2, {}, "layer 2 is outside 0…1"),
            (-1, {}, "layer -1"),
            (0, {"slots": [0, 1, 2, 3, 4, -1]}, "outside"),
            (0, {"slots": [0, 1, 2, 3, 4, 64]}, "outside"),
            (0, {"slots": [0, 1, 2, 3, 4, 8]}, "blocks \\[2\\] have counts \\[0\\]"),
            (0, {"slots": [[0]]}, "slots"),
            (0, {"slots": [0.5] * 6}, "slots"),
            (0, {"K": np.zeros((6, 3, 1))}, "K has shape"),
            (0, {"V": np.zeros((1, 3, 4))}, "V has shape"),
            (0, {"V": np.full((6, 3, 4), np.inf)}, "V has NaN"),
        ],
    )
    def test_bad_input_writes_nothing(self, reserved, make_kv, layer, change, message):
        pool, seq, slots = reserved
        K, V = make_kv(pool, 6)
        arguments = {"slots": slots, "K": K[0], "V": V[0]} | change
        with pytest.raises(ValueError, match=message):
            pool.write(layer, **arguments)
        assert np.isnan(pool.k).all()
        assert np.isnan(pool.v).all()

    def test_shared_block_is_never_written(self, reserved, make_kv):
        pool, seq, slots = reserved
        child = seq.fork("child")
        K, V = make_kv(pool, 6)
        with pytest.raises(ValueError, match="only a block with one owner"):
            pool.write(0, slots, K[0], V[0])
        assert len(child) == 6
