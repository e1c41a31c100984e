"""The sentence of a step says what happened, with the right numbers."""

import numpy as np
import pytest

from paged_kv import BlockPool, OutOfBlocks, Sequence
from paged_kv.messages import use_language
from paged_kv.widgets import record
from paged_kv.widgets.facts import Facts
from paged_kv.widgets.words import block_list, number, operation, sentence
from tests.widgets.runs import shared_prompt, small_pool


@pytest.fixture(autouse=True)
def english():
    use_language("en")
    yield
    use_language("en")


def said(history, index=-1):
    return sentence(Facts(history.at(index)))


def test_the_shared_prompt_is_told():
    history = shared_prompt()
    assert said(history, 0) == "The pool is empty: all 64 blocks are free."
    assert said(history, 1) == (
        "sys writes 500 tokens and takes blocks 0…31 from the free list; 12 slots of "
        "block 31 stay empty."
    )
    assert said(history, 2) == (
        "req0 gets a copy of the block table of sys; no token is copied, the reference "
        "counts of 0…31 grow from 1 to 2."
    )
    assert said(history, 12) == (
        "req0 writes, but block 31 is shared by 11: it is copied to block 32, and the "
        "count of 31 drops from 11 to 10."
    )
    assert said(history, 22) == (
        "sys is freed: each of its blocks loses one reference; block 31 drops to 0 and "
        "is free, the others stay."
    )
    assert said(history, 23).endswith(
        "block 32 drops to 0 and is free, the others stay."
    )
    assert said(history) == (
        "req9 is freed: nobody else holds its 32 blocks, 0…30, 41; they are free now."
    )


def test_appends_within_a_block_and_up_to_its_end():
    pool = small_pool()
    seq = Sequence(pool, "a")
    history = record(pool, seq)
    seq.reserve(1)
    assert said(history) == (
        "a writes 1 token and takes block 0 from the free list; 3 slots of block 0 "
        "stay empty."
    )
    history.split()
    seq.reserve(2)
    assert said(history) == (
        "a writes 2 tokens into block 0: 3 of 4 slots are filled, no new block is "
        "needed."
    )
    history.split()
    seq.reserve(5)
    assert said(history) == (
        "a writes 5 tokens and takes block 1 from the free list; every slot is filled."
    )
    assert operation(Facts(history.at(-1))) == "append ×5 a"


def test_a_full_pool_explains_itself():
    pool = small_pool(num_blocks=1)
    seq = Sequence(pool, "a")
    history = record(pool, seq)
    seq.reserve(4)
    with pytest.raises(OutOfBlocks):
        seq.append(np.zeros((1, 1, 1)), np.zeros((1, 1, 1)))
    text = said(history)
    assert text.startswith("append a is impossible, the pool is full (OutOfBlocks: ")
    assert text.endswith(" Nothing changed.")


def test_a_failure_that_changed_something_is_called_out():
    class Clumsy(Sequence):
        def clumsy(self):
            self.length += 1
            raise ValueError("oops.")

    pool = small_pool()
    seq = Clumsy(pool, "a")
    history = record(pool, seq)
    with pytest.raises(ValueError, match="oops"):
        seq.clumsy()
    assert said(history) == (
        "clumsy a raised ValueError: oops. And yet pool or tables changed: a failed "
        "step must not."
    )


def test_what_a_pool_does_by_itself():
    pool = BlockPool(8, 1, 1, 1)
    history = record(pool)
    a, _ = pool.allocate(), pool.allocate()
    assert said(history) == "allocate: block 1 is taken from the free list."
    pool.retain([a])
    assert said(history) == "retain: block 0 gains a reference."
    pool.release(a)
    assert said(history) == "release: block 0 loses a reference and stays in use."
    pool.release_many([a])
    assert said(history) == "release_many: block 0 is free again."


def test_truncate_is_told_by_its_blocks():
    pool = small_pool()
    seq = Sequence(pool, "a")
    history = record(pool, seq)
    seq.reserve(9)
    seq.truncate(3)
    assert said(history) == "truncate a: blocks 1, 2 are free again."


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([], ""),
        ([4], "4"),
        ([4, 5], "4, 5"),
        ([1, 2, 3, 7], "1…3, 7"),
        ([1, 3, 5, 7], "1, 3, 5, 7"),
        ([1, 3, 5, 7, 9], "1, 3, 5, …"),
    ],
)
def test_lists_of_blocks_are_short(ids, text):
    assert block_list(np.array(ids, int)) == text


def test_numbers_have_the_mark_of_the_language():
    assert [number(x, 2) for x in (2, 0.5, 1.875, 1880.0)] == [
        "2",
        "0.5",
        "1.88",
        "1880",
    ]
    use_language("ru")
    assert number(0.5, 2) == "0,5"
    assert [number(x, 0) for x in (0, 10, 100)] == ["0", "10", "100"]


@pytest.mark.parametrize(
    ("tokens", "ending"),
    [(1, "1 токен"), (3, "3 токена"), (5, "5 токенов"), (21, "21 токен")],
)
def test_russian_plurals(tokens, ending):
    use_language("ru")
    pool = small_pool()
    seq = Sequence(pool, "a")
    history = record(pool, seq)
    seq.reserve(tokens)
    assert f"записывает {ending} и берёт" in said(history)
