"""A student's Sequence: which blocks it takes, and when."""

from __future__ import annotations

import numpy as np

from paged_kv.checks import lessons
from paged_kv.checks.cases.tokens import append, block_table, new_pool
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr


def fresh_sequence(s: Script) -> None:
    """Check that a new sequence is empty, also when there was another one before."""
    new_pool(s)
    length_of_a = None
    for name in ("a", "b"):
        s.do(f'{name} = Sequence(pool, "{name}")')
        if length_of_a is not None:
            s.expect(
                "len(a)",
                length_of_a,
                "sequence-state-shared",
                tr(
                    "A second sequence was made, and the length of the first one "
                    "changed. What is assigned to the class, as in `Sequence.length = "
                    "0`, is one value for all sequences: assign to self."
                ),
            )
        table, length = block_table(s, name), s.ask(f"len({name})")
        if table or length:
            raise _not_empty(name, table, length)
        s.expect(
            f"{name}.length",
            0,
            "length-differs",
            tr("length and `len(seq)` must be the same number."),
        )
        append(s, name, 2)  # enough to need all of append
        length_of_a = s.ask("len(a)")


def _not_empty(name: str, table: list[int], length: int) -> Wrong:
    if name == "a" and not table:
        code, cause = "sequence-not-empty", tr("A new sequence has no tokens.")
    elif name == "a":
        code = "sequence-not-empty"
        cause = tr(
            "A new sequence has no blocks yet: the first append takes one. If the "
            "block is left from another sequence, `block_table` was created in the "
            "body of the class: create it in `__init__`."
        )
    else:
        code = "sequence-state-shared"
        cause = tr(
            "A second sequence starts with what the first one has. A list created in "
            "the body of the class, or as a default argument, is one object for all "
            "sequences: create it in `__init__`."
        )
    return Wrong(
        code,
        cause,
        f"{name}.block_table == [], len({name}) == 0",
        f"{table}, {length}",
    )


def growth(s: Script) -> None:
    """Check at which lengths a sequence takes a block."""
    for size, n_tokens in ((4, 17), (16, 33), (1, 3)):
        s.restart()
        new_pool(s, num_blocks=40, block_size=size)
        s.do('a = Sequence(pool, "a")')
        grew: list[int] = []  # lengths at which the next append took a block
        wrong: Wrong | None = None
        before: list[int] = []
        for n in range(n_tokens):
            append(s, "a", shown=wrong is None)
            if wrong is None:
                _expect_length(s, n + 1)
            table = block_table(s, "a")
            grew += [n] * (len(table) != len(before))
            needed = -(-(n + 1) // size)
            if len(table) != needed and wrong is None:
                wrong = Wrong(
                    *_table_mistake(before, table),
                    f"len(a.block_table) == {needed}",
                    f"{len(table)}, a.block_table == {show(s.ask('a.block_table'))}",
                )
            before = table
        if wrong is not None:
            if not wrong.code:
                wrong.code, wrong.cause = _growth_mistake(grew, size, n_tokens)
            raise wrong


def _table_mistake(before: list[int], table: list[int]) -> tuple[str, str]:
    """Name what is wrong with the entries, if it is not when they were added."""
    if not table:
        return "block-not-in-table", tr(
            "A token was appended, and the table is still empty: add the block to "
            "`block_table`. `table + [block]` makes a new list and leaves the old one "
            "as it is."
        )
    if table[: len(before)] != before:
        return "table-replaced", tr(
            "The table was {before} and is {table} now: the earlier blocks are lost. "
            "Add the new block at the end, with `append`.",
            before=before,
            table=table,
        )
    if len(set(table)) < len(table):
        return "entry-per-token", tr(
            "The table has an entry for every token. It has one for every block: "
            "token t is found in `block_table[t // block_size]`."
        )
    return "", ""


def _expect_length(s: Script, length: int) -> None:
    for line in ("len(a)", "a.length"):
        s.expect(
            line,
            length,
            "length-differs",
            tr("`{line}` is not the number of tokens appended so far.", line=line),
        )


def _growth_mistake(grew: list[int], size: int, n: int) -> tuple[str, str]:
    """Name the rule that takes blocks at the lengths `grew`."""
    later = [x for x in grew if x]
    if size > 1 and len(grew) >= n - 1:
        return "block-per-token", tr(
            "A block was taken for every token. A block holds {size} tokens: take a "
            "new one only when the last one is full, `len(seq) % block_size == 0`.",
            size=size,
        )
    if size > 1 and later == list(range(1, n, size)):
        return "block-at-remainder-one", tr(
            "A new block was taken at `len(seq) % {size} == 1`, one token too late. "
            "Before the append, a block is needed at remainder 0: the last one is "
            "full, or there is none.",
            size=size,
        )
    if later == list(range(size - 1, n, size)):
        return "block-taken-early", tr(
            "The next block was taken as soon as the last one was full. It may never "
            "be needed: take it when the next token comes."
        )
    if size != 16 and later == list(range(16, n, 16)):
        return "block-size-hard-coded", tr(
            "The pool has `block_size={size}`, and a block was taken every 16 tokens: "
            "read `pool.block_size`.",
            size=size,
        )
    if size > 1 and later == list(range(2 * size, n, size)):
        return "block-one-too-late", tr(
            "Position {size} is the first of a new block, and it got none. Position t "
            "is in block `t // block_size`: take one when the table has no such entry "
            "yet, `>=` in place of `>`.",
            size=size,
        )
    if not later:
        return "single-block", tr(
            "Only the first token took a block. When {size} tokens fill it, the next "
            "token needs another one.",
            size=size,
        )
    return "table-wrong-length", tr(
        "A sequence of L tokens has `ceil(L / block_size)` blocks. Here blocks were "
        "taken at the lengths {grew}.",
        grew=grew,
    )


def physical_ids(s: Script) -> None:
    """Check that tables and append name physical blocks."""
    new_pool(s)
    s.do('a = Sequence(pool, "a")')
    s.do('b = Sequence(pool, "b")')
    for name in "ababababab":
        returned = append(s, name)
        _expect_own_blocks(s)
        _expect_counted_once(s, name)
        _expect_returned(s, name, returned)


def _expect_own_blocks(s: Script) -> None:
    a, b = block_table(s, "a"), block_table(s, "b")
    held = [int(block) for block in s.ask("held")]
    got = f"a.block_table == {a}, b.block_table == {b}"
    expected = tr("no block twice, none of {held}", held=held)
    n_blocks = int(s.ask("len(pool.ref)"))
    if any(not 0 <= block < n_blocks for block in a + b):
        cause = tr("The table holds ids that the pool does not have.")
        raise Wrong("table-ids-outside-pool", cause, f"0 … {n_blocks - 1}", got)
    if len({*a, *b, *held}) == len(a) + len(b) + len(held):
        return
    if s.ask("pool.used") == len(held):
        raise Wrong(
            "nothing-allocated",
            tr(
                "The table grew, and the pool has handed out nothing. A block comes "
                "from `pool.allocate()`, of the pool that was passed to `Sequence`."
            ),
            expected,
            got,
        )
    if a == [*range(len(a))] and b == [*range(len(b))]:
        raise Wrong(
            "table-holds-logical-blocks",
            tr(
                "`block_table[i]` is i, the logical number. It must be the physical "
                "block that `pool.allocate()` returned."
            ),
            expected,
            got,
        )
    raise Wrong(
        "block-in-two-hands",
        tr("Two holders list the same block, and nobody has shared it."),
        expected,
        got,
    )


def _expect_counted_once(s: Script, name: str) -> None:
    for block in block_table(s, name):
        count = s.ask(f"pool.ref[{block}]")
        if count == 1:
            continue
        if count:
            code = "append-counts-again"
            cause = tr("`allocate()` has already counted the block; it has one holder.")
        else:
            code = "table-lists-free-block"
            cause = tr(
                "The table lists a block that the pool has not handed out. It must "
                "hold the ids that `pool.allocate()` returned, as they are."
            )
        where = tr("block {block}", block=block)
        raise Wrong(code, cause, f"pool.ref[{block}] == 1", show(count), where)


def _expect_returned(s: Script, name: str, returned: object) -> None:
    table = block_table(s, name)
    if isinstance(returned, int | np.integer) and returned == table[-1]:
        return
    if returned is None:
        code = "append-returns-none"
        cause = tr("append must return the physical block that it wrote to.")
    elif isinstance(returned, int | np.integer) and returned in table:
        code = "wrong-table-entry"
        cause = tr(
            "The new token went to `block_table[{i}]`, and it belongs to the last "
            "block. New blocks are added at the end of the table, and append writes to "
            "`block_table[-1]`.",
            i=table.index(int(returned)),
        )
    elif returned == len(table) - 1 and s.ask(f"{name}.append(kv(), kv())") == 1:
        code = "append-returns-slot"
        cause = tr(
            "append returned the slot. It must return the physical block, "
            "`block_table[-1]`."
        )
    elif returned == len(table) - 1:
        code = "append-returns-logical-block"
        cause = tr(
            "append returned the logical number of the block, its place in the table. "
            "It must return the physical block, `block_table[-1]`."
        )
    else:
        code = "append-returns-wrong-value"
        cause = tr("append must return the physical block that it wrote to.")
    raise Wrong(code, cause, f"{name}.block_table[-1] == {table[-1]}", show(returned))


GROWTH_CASES = (
    Case(
        lambda: tr("a new sequence is empty, whatever other sequences did"),
        lessons.blocks,
        fresh_sequence,
    ),
    Case(
        lambda: tr("append takes a block only when the last one is full"),
        lessons.blocks,
        growth,
    ),
    Case(
        lambda: tr("block tables and append give physical block ids"),
        lessons.blocks,
        physical_ids,
    ),
)
