"""A history against snapshots taken by hand, whatever the run."""

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_kv import BlockPool, OutOfBlocks, Sequence
from paged_kv.widgets import record
from paged_kv.widgets.history import CHECKPOINT
from tests.widgets.runs import mixed, shared_prompt, small_pool
from tests.widgets.students import RIGHT, ListPool
from tests.widgets.students import OutOfBlocks as HerOutOfBlocks

TOKEN = np.zeros((1, 1, 1))
CLASSES = [(BlockPool, Sequence), *((ListPool, sequence) for sequence in RIGHT)]


def snapshot(pool, sequences):
    """Copy what is there: counts, and per sequence its table and length."""
    tables = {str(seq.seq_id): (list(seq.block_table), len(seq)) for seq in sequences}
    return list(map(int, pool.ref)), tables


def recorded(state):
    tables = {t.name: (t.blocks.tolist(), t.length) for t in state.tables if t.live}
    return state.ref.tolist(), tables


@pytest.mark.parametrize("classes", CLASSES, ids=lambda c: c[1].__name__)
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=120))
def test_state_at_each_step_is_what_was_there(classes, choices):
    pool_class, sequence_class = classes
    pool = pool_class(10, 1, 1, 1, block_size=2)
    live = [sequence_class(pool, 0)]
    made = 1
    with record(pool, live[0]) as history:
        by_hand = {0: snapshot(pool, live)}
        for kind, which in choices:
            if not live:
                break
            seq = live[which % len(live)]
            try:
                if kind == 0:
                    live.append(seq.fork(made))
                    made += 1
                elif kind == 1:
                    live.remove(seq)
                    seq.free()
                else:
                    seq.append(TOKEN, TOKEN)
            except (MemoryError, HerOutOfBlocks):
                pass
            by_hand[len(history) - 1] = snapshot(pool, live)
        assert len(by_hand) == len(history)
        for index in sorted(by_hand, reverse=True):
            moment = history.at(index)
            assert recorded(moment.after) == by_hand[index]
            if index:
                assert recorded(moment.before) == by_hand[index - 1]


def test_steps_beyond_a_checkpoint_are_reached_from_both_sides():
    history = mixed(256, 12, random.Random(2), operations=6 * CHECKPOINT)
    assert len(history) > 3 * CHECKPOINT
    for index in range(1, len(history)):
        moment = history.at(index)
        assert moment.before.same_as(history.at(index - 1).after)
        assert (moment.index, moment.total) == (index, len(history))


def test_a_run_of_appends_is_one_step_and_a_fork_ends_it():
    pool = small_pool()
    seq = Sequence(pool, "a")
    history = record(pool, seq)
    for _ in range(3):
        seq.append(TOKEN, TOKEN)
    child = seq.fork("b")
    seq.append(TOKEN, TOKEN)
    child.append(TOKEN, TOKEN)
    child.append(TOKEN, TOKEN)
    events = [history.step(i).event for i in range(len(history))]
    assert [(e.kind, e.actor, e.count) for e in events] == [
        ("start", None, 1),
        ("append", 0, 3),
        ("fork", 0, 1),
        ("append", 0, 1),
        ("append", 1, 2),
    ]
    assert history.names == ("a", "b")


def test_copies_are_found_with_source_and_target():
    history = shared_prompt()
    copies = [history.step(i).copied for i in range(len(history))]
    assert [copy for copy in copies if copy] == [(31, 32 + i) for i in range(10)]
    index, found = 0, []
    while (index := history.next_copy(index)) is not None:
        found.append(index)
    assert found == [i for i, copy in enumerate(copies) if copy]


def test_a_copy_in_the_middle_of_a_run_starts_a_step_of_its_own():
    pool = small_pool()
    seq = Sequence(pool, "a")
    history = record(pool, seq)
    seq.append(TOKEN, TOKEN)
    pool.ref[seq.block_table[0]] += 1  # a holder that nobody told the history about
    seq.append(TOKEN, TOKEN)
    assert history.step(len(history) - 1).copied == (0, 1)


def test_a_failed_operation_is_a_step_that_changes_nothing():
    pool = small_pool(num_blocks=1)
    seq = Sequence(pool, "a")
    history = record(pool, seq)
    seq.extend(*np.zeros((2, 1, 4, 1, 1)))
    for _ in range(3):
        with pytest.raises(OutOfBlocks):
            seq.append(TOKEN, TOKEN)
    moment = history.at(-1)
    assert len(history) == 3
    assert moment.event.count == 3
    assert moment.event.out_of_blocks
    assert "OutOfBlocks" in moment.event.error
    assert moment.before.same_as(moment.after)


def test_a_step_outside_is_refused():
    history = shared_prompt(forks=1)
    for index in (len(history), -len(history) - 1):
        with pytest.raises(IndexError, match=f"step {index} is outside"):
            history.at(index)
    assert history.at(-1).index == len(history) - 1


def test_a_long_run_takes_little_memory():
    tracemalloc.start()
    try:
        history = mixed(1024, 40, random.Random(4), operations=1000)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(history) > 700
    assert size < 5_000_000  # 10 000 operations: 50 MB
