import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_kv import PoolCorrupted
from paged_kv.serving import (
    BlockCounter,
    MaxReservation,
    OracleReservation,
    PagedAllocator,
    Pow2Reservation,
)

SLOTS, MAX_LEN = 700, 128
MAKERS = {
    "max": lambda: MaxReservation(SLOTS, MAX_LEN),
    "pow2": lambda: Pow2Reservation(SLOTS, MAX_LEN),
    "oracle": lambda: OracleReservation(SLOTS, MAX_LEN),
    "paged 1": lambda: PagedAllocator(SLOTS, 1),
    "paged 4": lambda: PagedAllocator(SLOTS, 4),
    "paged 16": lambda: PagedAllocator(SLOTS, 16, watermark=0),
    "counter 16": lambda: BlockCounter(SLOTS, 16),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
requests = st.tuples(st.integers(1, 60), st.integers(1, 60))


class Driver:
    """Admits and releases requests as told, and knows what each should hold."""

    def __init__(self, allocator):
        self.allocator = allocator
        self.running = {}  # number: [length, remaining]
        self.number = 0

    def admit(self, length, remaining):
        before = self.allocator.usage()
        if self.allocator.admit(self.number, length, remaining):
            self.running[self.number] = [length, remaining]
            self.number += 1
        else:
            assert self.allocator.usage() == before

    def release(self, which):
        if self.running:
            number = list(self.running)[which % len(self.running)]
            del self.running[number]
            self.allocator.release(number)

    def advance(self, steps):
        """Run up to `steps` iterations, releasing whoever ends or lacks room."""
        for _ in range(steps):
            for number in [n for n, (_, left) in self.running.items() if not left]:
                del self.running[number]
                self.allocator.release(number)
            while not self.allocator.room(1):
                self.release(-1)
            self.allocator.advance(1)
            for state in self.running.values():
                state[0] += 1
                state[1] -= 1
            self.check()

    def check(self):
        usage = self.allocator.usage()
        assert min(usage) >= 0
        assert sum(usage) == self.allocator.num_slots
        assert usage.tokens == sum(length for length, _ in self.running.values())
        if isinstance(self.allocator, BlockCounter):
            bs = self.allocator.block_size
            assert usage.reservation == 0
            assert usage.internal == sum(-n % bs for n, _ in self.running.values())
        else:
            assert usage.reservation == sum(r for _, r in self.running.values())
        if isinstance(self.allocator, PagedAllocator):
            self.allocator.check()
        if hasattr(self.allocator, "spans"):
            self.check_spans(self.allocator.spans(), usage)

    def check_spans(self, spans, usage):
        for name in ("tokens", "reservation", "internal"):
            assert sum(getattr(span, name) for span in spans) == getattr(usage, name)
        taken = [n for s in spans for n in range(s.start, s.start + s.slots)]
        assert len(taken) == len(set(taken))
        assert all(0 <= n < self.allocator.num_slots for n in taken)
        for number, (length, _) in self.running.items():
            assert sum(s.tokens for s in spans if s.request == number) == length


@every
@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.one_of(requests, st.integers(-5, -1), st.integers(1, 40)), max_size=25
    )
)
def test_the_four_parts_add_up_at_every_moment(make, steps):
    driver = Driver(make())
    for step in steps:
        if isinstance(step, tuple):
            driver.admit(*step)
        elif step < 0:
            driver.release(step)
        else:
            driver.advance(step)
        driver.check()
    for _ in range(len(driver.running)):
        driver.release(0)
    assert driver.allocator.usage() == (0, 0, 0, SLOTS)


@every
@settings(max_examples=40, deadline=None)
@given(
    admitted=st.lists(requests, min_size=1, max_size=6),
    steps=st.lists(st.integers(1, 40)),
)
def test_many_steps_at_once_are_as_many_single_ones(make, admitted, steps):
    jumping, walking = make(), make()
    for number, (length, remaining) in enumerate(admitted):
        assert jumping.admit(number, length, remaining) == walking.admit(
            number, length, remaining
        )
    for at_most in steps:
        room = jumping.room(at_most)
        assert room == walking.room(at_most)
        singles = [0, 0, 0]
        for _ in range(room):
            assert walking.room(1) == 1
            for i, value in enumerate(walking.advance(1)):
                singles[i] += value
        assert jumping.advance(room) == tuple(singles)
        assert jumping.usage() == walking.usage()
        if room < at_most:
            assert walking.room(1) == 0


def test_what_each_system_reserves():
    reserved = {
        make: make.reserve(100, 25)
        for make in (
            MaxReservation(15728),
            Pow2Reservation(15728),
            OracleReservation(15728),
        )
    }
    assert list(reserved.values()) == [2048, 132, 125]
    assert Pow2Reservation(15728, 2048).reserve(1500, 520) == 2048


@pytest.mark.parametrize(
    ("remaining", "guess"), [(1, 1), (2, 2), (3, 4), (64, 64), (33, 64), (65, 100)]
)
def test_pow2_reserves_the_next_power_of_two_of_the_answer(remaining, guess):
    # The power itself is kept, and nothing is longer than the model allows.
    assert Pow2Reservation(SLOTS, MAX_LEN).reserve(28, remaining) == 28 + guess


def test_equal_slots_leave_only_the_remainder():
    a = MaxReservation(15728)
    admitted = [a.admit(i, 10, 10) for i in range(8)]
    assert admitted == [True] * 7 + [False]
    assert a.usage().other == 15728 - 7 * 2048
    assert a.usage().other / 15728 == pytest.approx(0.0885, abs=5e-5)


def test_the_watermark_keeps_blocks_for_those_who_run():
    a = BlockCounter(160, 16, watermark=0.2)  # 10 blocks, 2 of them kept
    assert not a.admit(0, 8 * 16, 5)  # its first token needs a ninth
    assert a.admit(0, 8 * 16 - 1, 5)
    assert not a.admit(1, 1, 1)
    assert a.room(100) == 1 + 2 * 16


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BlockCounter(15, 16), "15 slots"),
        (lambda: BlockCounter(160, 16, watermark=1), "watermark"),
        (lambda: BlockCounter(160, 16, watermark=-0.1), "watermark"),
        (lambda: MaxReservation(0), "num_slots"),
        (lambda: MaxReservation(100, 1), "max_len"),
    ],
)
def test_impossible_sizes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@every
def test_a_request_that_runs_is_not_admitted_again(make):
    a = make()
    a.admit(3, 10, 5)
    before = a.usage()
    with pytest.raises(ValueError, match="request 3 is running already"):
        a.admit(3, 10, 5)
    assert (a.usage(), len(a)) == (before, 1)
    a.release(3)
    assert a.usage().tokens == 0


@pytest.mark.parametrize("name", ["max", "pow2", "oracle"])
def test_a_reservation_is_never_shorter_than_its_request(name):
    a = MAKERS[name]()
    with pytest.raises(ValueError, match="of 129 tokens is longer than 128"):
        a.admit(0, 100, 29)
    assert a.usage().other == SLOTS
    assert a.admit(0, 100, 28)


def test_the_audit_sees_a_lost_block():
    a = PagedAllocator(160)
    a.admit(0, 40, 5)
    a.check()
    a.tables[0].pop()
    with pytest.raises(PoolCorrupted):
        a.check()
