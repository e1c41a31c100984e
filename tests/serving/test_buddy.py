import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged_kv.serving import BuddyAllocator


def assert_sound(buddy):
    """Chunks tile the slots exactly, at aligned addresses, and no two buddies rest."""
    end = 0
    for start, size, _ in buddy.chunks():
        assert start == end
        assert size & (size - 1) == 0
        assert start % size == 0
        end = start + size
    assert end == buddy.num_slots
    free = {(start, size) for start, size, used in buddy.chunks() if not used}
    assert not {(s, n) for s, n in free if (s ^ n, n) in free}
    assert buddy.free == sum(size for _, size in free)
    assert buddy.largest == max((size for _, size in free), default=0)


@given(
    slots=st.integers(1, 300),
    steps=st.lists(st.one_of(st.integers(1, 90), st.floats(0, 1)), max_size=60),
)
def test_whatever_is_taken_and_given_back_the_chunks_tile_the_slots(slots, steps):
    buddy = BuddyAllocator(slots)
    untouched = buddy.chunks()
    taken = []
    for step in steps:
        if isinstance(step, float):
            if taken:
                buddy.release(taken.pop(int(step * (len(taken) - 1))))
        else:
            largest = buddy.largest
            start = buddy.allocate(step)
            assert (start is None) == (buddy.chunk_size(step) > largest)
            if start is not None:
                taken.append(start)
        assert_sound(buddy)
    for start in taken:
        buddy.release(start)
    assert buddy.chunks() == untouched


def test_free_slots_in_pieces_do_not_serve_a_long_request():
    buddy = BuddyAllocator(64)
    starts = sorted(buddy.allocate(8) for _ in range(8))
    for start in starts[::2]:
        buddy.release(start)
    assert (buddy.free, buddy.largest) == (32, 8)
    assert buddy.allocate(16) is None


def test_equal_chunks_leave_no_such_pieces():
    buddy = BuddyAllocator(64)
    starts = [buddy.allocate(8) for _ in range(8)]
    for start in starts[::2]:
        buddy.release(start)
    assert all(buddy.allocate(8) is not None for _ in range(4))


@pytest.mark.parametrize("size", [0, -1, -7, 1.5, True, None, "3"])
def test_sizes_that_are_no_number_of_slots_are_refused(size):
    buddy = BuddyAllocator(64)
    for take in (buddy.allocate, buddy.chunk_size):
        with pytest.raises(ValueError, match="size must be a whole number >= 1"):
            take(size)
    assert buddy.free == 64


def test_numpy_sizes_are_as_good_as_python_ones():
    buddy = BuddyAllocator(512)
    assert buddy.chunk_size(np.uint8(200)) == 256
    assert buddy.allocate(np.int8(100)) is not None
    assert buddy.free == 512 - 128


@pytest.mark.parametrize("start", [0, 8, 3, -1, 64])
def test_what_was_not_taken_cannot_be_given_back(start):
    buddy = BuddyAllocator(64)
    taken = buddy.allocate(4)
    buddy.release(taken)
    before = buddy.chunks()
    with pytest.raises(ValueError, match=f"slot {start}"):
        buddy.release(start)
    assert buddy.chunks() == before
