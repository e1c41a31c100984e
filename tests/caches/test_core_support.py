"""What the pool does for a prefix cache: the queue, touch, overwrite, hand-over."""

import copy
import pickle

import numpy as np
import pytest

from paged_kv import BlockAllocator, DoubleFree, OutOfBlocks, Sequence
from paged_kv.free_queue import FreeQueue
from paged_kv.prefix_cache import PrefixCache
from paged_kv.radix_cache import RadixCache
from tests.caches.contents import assert_holds, nan_pool, run


class Index:
    """Stands for a cache: notes what it is told to forget."""

    def __init__(self):
        self.forgotten = []

    def forget(self, block):
        self.forgotten.append(block)


@pytest.fixture
def index():
    return Index()


@pytest.fixture
def books(index):
    books = BlockAllocator(6, block_size=2)
    books.index_with(index)
    return books


def test_queue_hands_out_the_block_freed_longest_ago(index):
    queue = FreeQueue([3, 1], index)
    queue.append(2)
    queue.extend([5, 4])
    queue.remove(2)
    assert list(queue) == [3, 1, 5, 4]
    assert len(queue) == 4
    assert [queue.pop() for _ in range(4)] == [3, 1, 5, 4]
    assert index.forgotten == [3, 1, 5, 4]
    with pytest.raises(KeyError):
        queue.pop()


def test_fresh_pool_still_hands_out_ids_from_zero_upwards(books):
    assert [books.allocate(), *books.allocate_many(2)] == [0, 1, 2]


def test_pool_in_use_can_be_indexed(index):
    books = BlockAllocator(6)
    table = books.allocate_many(4)
    books.release_many([table[1]])
    books.index_with(index)
    assert books.allocate_many(3) == [1, 4, 5]
    assert books.free == 0


def test_freed_blocks_are_reused_last(books):
    books.release_many(books.allocate_many(2))
    assert books.allocate_many(6) == [2, 3, 4, 5, 0, 1]


def test_one_index_is_enough(books, index):
    with pytest.raises(ValueError, match="already indexed by"):
        books.index_with(Index())
    books.allocate()
    assert index.forgotten == [0]


def test_index_hears_of_each_block_handed_out_and_of_no_other(books, index):
    taken = books.allocate_many(2)
    books.retain(taken)
    books.release_many(taken)
    books.release_many(taken)
    books.touch([1])
    assert index.forgotten == [0, 1]
    books.allocate()
    assert index.forgotten == [0, 1, 2]


def test_failed_allocation_forgets_nothing(books, index):
    with pytest.raises(OutOfBlocks):
        books.allocate_many(7)
    assert index.forgotten == []


def test_touch_takes_free_blocks_back_and_shares_used_ones(books):
    table = books.allocate_many(3)
    books.release_many(reversed(table))
    own = books.allocate()
    books.touch([1, own, 1])
    assert books.ref[[1, own]].tolist() == [2, 2]
    assert books.free == 4
    assert books.peak == 3
    books.release(own)
    with pytest.raises(DoubleFree, match="all held"):
        books.release(own)


def test_touch_counts_for_the_peak(books):
    books.release_many(books.allocate_many(1))
    books.allocate_many(1)
    books.touch([0, 2, 3])
    assert books.peak == 4


def test_touch_works_without_an_index_too():
    books = BlockAllocator(4)
    books.touch([2])
    assert books.allocate_many(3) == [0, 1, 3]


@pytest.mark.parametrize("method", ["touch", "hand_over"])
def test_ids_outside_the_pool_are_refused(books, method):
    books.allocate_many(6)
    with pytest.raises(ValueError, match="6 is outside 0…5"):
        getattr(books, method)([0, 6])
    assert books.ref[0] == 1


def test_hand_over_turns_own_references_into_held_ones(books):
    own, held = books.allocate(), books.allocate_many(1)[0]
    books.hand_over([own, held])
    assert books.held[[own, held]].tolist() == [1, 1]
    assert books.ref[[own, held]].tolist() == [1, 1]
    with pytest.raises(DoubleFree):
        books.release(own)
    books.release_many([own, held])


@pytest.mark.parametrize(
    ("blocks", "message"), [([0, 5], "block 5 is free"), ([0, 0], "twice")]
)
def test_hand_over_of_what_nobody_has_changes_nothing(books, blocks, message):
    books.allocate()
    with pytest.raises(ValueError, match=message):
        books.hand_over(blocks)
    assert books.held[0] == 0


def test_overwriting_a_partial_tail_is_announced(index):
    pool = nan_pool(6, 4)
    pool.index_with(index)
    seq = Sequence(pool, "a")
    seq.reserve(8)
    index.forgotten.clear()
    seq.truncate(6)
    seq.reserve(0)
    assert index.forgotten == []
    with pytest.raises(OutOfBlocks):
        seq.reserve(99)
    assert index.forgotten == []
    child = seq.fork("b")
    child.reserve(1)  # a copy: only the new block changes
    assert index.forgotten == [2]
    seq.reserve(1)
    assert index.forgotten == [2, 1]


def test_slots_are_those_that_reserve_returned():
    pool = nan_pool(6, 4)
    seq = Sequence(pool, "a")
    Sequence(pool, "other").reserve(1)
    first, second = seq.reserve(6), seq.reserve(5)
    every = [*first.tolist(), *second.tolist()]
    for start in range(12):
        assert seq.slots(start).tolist() == every[start:]
    assert seq.slots().dtype == np.int64
    for bad in (-1, 12, 1.0):
        with pytest.raises(ValueError, match="start"):
            seq.slots(bad)
    seq.free()
    with pytest.raises(RuntimeError):
        seq.slots()


@pytest.mark.parametrize("kind", [PrefixCache, RadixCache])
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda things: pickle.loads(pickle.dumps(things))],
    ids=["deepcopy", "pickle"],
)
def test_copy_of_everything_stands_on_its_own(kind, copied):
    pool = nan_pool(12, 2)
    cache = kind(pool)
    tokens = [3, 1, 4, 1, 5, 9, 2]
    seq, _ = run(cache, "a", tokens)
    run(cache, "b", [3, 1, 4, 7, 7, 7])[0].free()
    before = pool.ref.tolist(), repr(cache)
    its_pool, its_cache, its_seq = copied((pool, cache, seq))
    its_seq.free()
    again, n_cached = its_cache.admit("again", tokens)
    assert n_cached == 6
    its_cache.publish(again, tokens)
    Sequence(its_pool, "rest").reserve(2 * its_pool.free)  # takes what is cached
    assert_holds(seq, tokens)
    assert (pool.ref.tolist(), repr(cache)) == before
    pool.check([seq], holders=[cache])
    for each in (cache, its_cache):
        each.check()
