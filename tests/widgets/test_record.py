"""Recording changes nothing about what it follows, and shows what is there."""

import pickle

import numpy as np
import pytest

from paged_kv import BlockPool, OutOfBlocks, Sequence
from paged_kv.widgets import draw, record
from paged_kv.widgets.audit import audit, unexplained
from paged_kv.widgets.facts import Facts
from tests.widgets.runs import small_pool
from tests.widgets.students import (
    RIGHT,
    WRONG_POOLS,
    WRONG_SEQUENCES,
    BoastfulPool,
    LeakingSequence,
    ListPool,
    NoCopySequence,
    NoCountSequence,
    PlainSequence,
    SharedListSequence,
)

TOKEN = np.ones((1, 1, 1))


def play(pool_class, sequence_class, follow):
    """Do a fixed run and return all that a caller can see of it."""
    pool = pool_class(6, 1, 1, 1, block_size=2)
    base = sequence_class(pool, "base")
    history = record(pool, base) if follow else None
    seen = []

    def do(action):
        try:
            seen.append(repr(action()) if action else None)
        except Exception as error:
            seen.append((type(error).__name__, str(error)))
        counts = [int(n) for n in pool.ref]
        seen.append((counts, [str(b) for b in base.block_table], len(base)))

    for _ in range(3):
        do(lambda: base.append(TOKEN, TOKEN))
    forks = []
    do(lambda: forks.append(base.fork("child")))
    child = forks[0] if forks else base
    for _ in range(5):
        do(lambda: child.append(TOKEN, TOKEN))
    do(lambda: base.append(TOKEN, TOKEN))
    do(pool.allocate)
    do(base.free)
    do(child.free)
    seen.append((type(child) is type(base), isinstance(child, sequence_class)))
    seen.append(type(base).__name__)
    return seen, history


@pytest.mark.parametrize(
    "sequence_class",
    [*RIGHT, *WRONG_SEQUENCES],
    ids=lambda c: c.__name__,
)
def test_a_followed_sequence_behaves_as_before(sequence_class):
    seen, history = play(ListPool, sequence_class, follow=True)
    assert seen == play(ListPool, sequence_class, follow=False)[0]
    for index in range(len(history)):  # and everything can be drawn, mistakes included
        assert draw(history, step=index)._repr_html_()


@pytest.mark.parametrize("pool_class", [BlockPool, ListPool, *WRONG_POOLS])
def test_a_followed_pool_behaves_as_before(pool_class):
    sequence_class = Sequence if pool_class is BlockPool else PlainSequence
    seen, history = play(pool_class, sequence_class, follow=True)
    assert seen == play(pool_class, sequence_class, follow=False)[0]
    assert draw(history)._repr_html_()


def test_what_an_operation_does_inside_is_part_of_its_step():
    pool = small_pool()
    seq = Sequence(pool, "a")
    history = record(pool, seq)
    seq.append(TOKEN, TOKEN)  # allocates
    seq.free()  # truncates and releases
    kinds = [history.step(i).event.kind for i in range(len(history))]
    assert kinds == ["start", "append", "free"]


def test_questions_make_no_step_and_do_not_end_a_run():
    pool = small_pool()
    seq = Sequence(pool, "a")
    history = record(pool, seq)
    seq.append(TOKEN, TOKEN)
    pool.bytes_per_block()
    pool.check([seq])
    seq.blocks_needed(3)
    seq.append(TOKEN, TOKEN)
    assert len(history) == 2
    assert history.step(1).event.count == 2


def test_pool_operations_are_steps():
    pool = small_pool()
    history = record(pool)
    block = pool.allocate()
    pool.retain([block])
    pool.release(block)
    events = [history.step(i).event for i in range(len(history))]
    assert [e.kind for e in events] == ["start", "allocate", "retain", "release"]
    assert all(event.actor is None for event in events)


def test_a_cache_is_followed_with_what_it_holds():
    class Cache:
        def __init__(self, pool):
            self.pool, self.blocks = pool, []

        def held_blocks(self):
            return iter(self.blocks)

        def insert(self, blocks):
            self.pool.retain(blocks)
            self.blocks += blocks

        def evict(self):
            self.pool.release_many([self.blocks.pop()])

    pool = small_pool()
    seq, cache = Sequence(pool, "a"), Cache(pool)
    history = record(pool, seq, cache)
    seq.reserve(8)
    cache.insert(seq.block_table)
    seq.free()
    cache.evict()
    kinds = [history.step(i).event.kind for i in range(len(history))]
    assert kinds == ["start", "append", "insert", "free", "evict"]
    facts = Facts(history.at(-1))
    assert facts.moment.after.tables[1].cache
    assert np.flatnonzero(facts.listed).tolist() == [0]
    assert unexplained(facts) == ""


def test_stop_gives_the_classes_back_and_keeps_the_history():
    pool = small_pool()
    seq = Sequence(pool, "a")
    with record(pool, seq) as history:
        child = seq.fork("b")
    assert type(pool) is BlockPool
    assert type(seq) is type(child) is Sequence
    seq.append(TOKEN, TOKEN)
    assert len(history) == 2
    pickle.loads(pickle.dumps(seq))


def test_the_newest_recording_follows():
    pool = small_pool()
    seq = Sequence(pool, "a")
    first = record(pool, seq)
    seq.append(TOKEN, TOKEN)
    second = record(pool, seq)
    seq.append(TOKEN, TOKEN)
    assert (len(first), len(second)) == (2, 2)
    second.stop()
    assert type(seq) is Sequence


def test_a_method_replaced_later_is_the_one_that_runs():
    class Sloppy(PlainSequence):
        pass

    pool = ListPool(4, 1, 1, 1)
    seq = Sloppy(pool, "a")
    record(pool, seq)
    Sloppy.free = lambda self: "replaced"
    assert seq.free() == "replaced"


def test_a_sequence_used_after_free_is_shown_again():
    pool = ListPool(4, 1, 1, 1, block_size=2)
    seq = PlainSequence(pool, "a")
    history = record(pool, seq)
    seq.append(TOKEN, TOKEN)
    seq.free()
    assert not history.at(-1).after.tables[0].live
    len(seq)
    seq.append(TOKEN, TOKEN)
    table = history.at(-1).after.tables[0]
    assert table.live
    assert table.length == 1


def test_strange_insides_are_shown_as_they_are():
    class Odd:
        seq_id = "odd"
        block_table = None

        def change(self, table):
            self.block_table = table

    pool = ListPool(4, 1, 1, 1)
    odd = Odd()
    odd.block_table = []
    history = record(pool, odd)
    for table in (
        [None, "x", 2.5, 3],
        [7, -4, 2**40],
        [[1], [2, 3]],
        (1, 2),
        np.array([1, 2]),
        np.zeros((2, 2)),
        7,
        None,
    ):
        odd.change(table)
    pool.ref = [1, 2]
    history.note("cut")
    pool.ref = "nonsense"
    history.note("broken")
    pool.ref = [0, 0, 0, 0, 9, 9]
    history.note("grown")
    assert history.at(1).after.tables[0].blocks.tolist() == [-1, -1, -1, 3]
    assert history.at(2).after.tables[0].blocks.tolist() == [7, -4, -1]
    assert history.at(-2).after.ref.tolist() == [1, 2, 0, 0]
    assert history.at(-1).after.ref.tolist() == [0, 0, 0, 0]
    for index in range(len(history)):
        picture = draw(history, step=index)
        assert picture._repr_html_()
        assert repr(picture)


def test_something_else_is_refused():
    with pytest.raises(TypeError, match="needs `ref`"):
        record(object())
    with pytest.raises(TypeError, match="neither block_table nor held_blocks"):
        record(small_pool(), "req0")
    with pytest.raises(TypeError, match="no sequence"):
        draw(small_pool(), "req0")


def last_audit(pool_class, sequence_class, act):
    pool = pool_class(8, 1, 1, 1, block_size=4)
    seq = sequence_class(pool, "a")
    history = record(pool, seq)
    for _ in range(6):
        seq.append(TOKEN, TOKEN)
    act(seq)
    facts = Facts(history.at(-1))
    return audit(facts), unexplained(facts)


@pytest.mark.parametrize(
    ("pool_class", "sequence_class", "act", "found"),
    [
        (ListPool, NoCountSequence, lambda a: a.fork("b"), "count 1, but 2 tables"),
        (
            ListPool,
            NoCopySequence,
            lambda a: a.fork("b").append(TOKEN, TOKEN),
            "was written although 2",
        ),
        (
            ListPool,
            SharedListSequence,
            lambda a: a.fork("b").append(TOKEN, TOKEN),
            "table of a changed too",
        ),
        (BoastfulPool, PlainSequence, lambda a: None, "pool.used is 99"),
        (
            ListPool,
            PlainSequence,
            lambda a: (a.block_table.insert(0, 77), a.append(TOKEN, TOKEN)),
            "lists 77",
        ),
    ],
)
def test_what_does_not_add_up_is_said(pool_class, sequence_class, act, found):
    said, _ = last_audit(pool_class, sequence_class, act)
    assert any(found in text for text in said), said


def test_a_leak_is_said_and_right_classes_are_not_blamed():
    said, note = last_audit(ListPool, LeakingSequence, lambda a: a.free())
    assert said == []
    assert "Blocks 0, 1 have more references" in note
    for sequence_class in RIGHT:
        said, note = last_audit(
            ListPool, sequence_class, lambda a: a.fork("b").append(TOKEN, TOKEN)
        )
        assert (said, note) == ([], "")


def test_out_of_blocks_passes_through():
    pool = small_pool(num_blocks=1)
    seq = Sequence(pool, "a")
    record(pool, seq)
    seq.reserve(4)
    with pytest.raises(OutOfBlocks, match="0 free of 1"):
        seq.append(TOKEN, TOKEN)
