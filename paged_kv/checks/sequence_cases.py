"""Cases about a student's Sequence: table, append, free. Used by 09.1 and 09.3.

They run on whatever `BlockPool` the script has: the student's in 09.1, the module's in
09.3.
"""

from __future__ import annotations

import numpy as np

from paged_kv.checks import lessons
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.checks.tokens import (
    append,
    block_table,
    expect_contents,
)
from paged_kv.messages import tr

SHAPE = (2, 3, 4)  # layers, KV heads, head_dim


def new_pool(s: Script, num_blocks: int = 12, block_size: int = 4) -> None:
    """Make a pool full of NaN, two of whose blocks somebody else holds.

    So the ids that a sequence gets are not 0, 1, 2: a mistake that takes the logical
    number of a block for the physical one is seen.
    """
    s.use_random_tokens(*SHAPE)
    sizes = ", ".join(map(str, (num_blocks, *SHAPE)))
    s.do(f"pool = BlockPool({sizes}, block_size={block_size})")
    s.do("pool.k[:] = pool.v[:] = np.nan")
    s.do("held = [pool.allocate(), pool.allocate()]")


def fresh_sequence(s: Script) -> None:
    """Check that a new sequence is empty, also when there was another one before."""
    new_pool(s)
    for name in ("a", "b"):
        s.do(f'{name} = Sequence(pool, "{name}")')
        table, length = block_table(s, name), s.ask(f"len({name})")
        if table or length:
            raise _not_empty(name, table, length)
        s.expect(
            f"{name}.length",
            0,
            "length-differs",
            tr("length and len(seq) must be the same number."),
        )
        append(s, name)


def _not_empty(name: str, table: list[int], length: int) -> Wrong:
    if name == "a" and not table:
        code, cause = "sequence-not-empty", tr("A new sequence has no tokens.")
    elif name == "a":
        code = "sequence-not-empty"
        cause = tr(
            "A new sequence has no blocks yet: the first append takes one. If the "
            "block is left from another sequence, block_table was created in the body "
            "of the class: create it in __init__."
        )
    else:
        code = "sequence-state-shared"
        cause = tr(
            "A second sequence starts with what the first one has. A list created in "
            "the body of the class, or as a default argument, is one object for all "
            "sequences: create it in __init__."
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
        new_pool(s, num_blocks=40, block_size=size)
        s.do('a = Sequence(pool, "a")')
        grew: list[int] = []  # lengths at which the next append took a block
        wrong: Wrong | None = None
        blocks_before = 0
        for n in range(n_tokens):
            append(s, "a", shown=wrong is None)
            if wrong is None:
                _expect_length(s, n + 1)
            n_blocks = len(block_table(s, "a"))
            grew += [n] * (n_blocks != blocks_before)
            blocks_before = n_blocks
            needed = -(-(n + 1) // size)
            if n_blocks != needed and wrong is None:
                wrong = Wrong(
                    "",
                    "",
                    f"len(a.block_table) == {needed}",
                    f"{n_blocks}: {show(s.ask('a.block_table'))}",
                )
        if wrong is not None:
            wrong.code, wrong.cause = _growth_mistake(grew, size, n_tokens)
            raise wrong


def _expect_length(s: Script, length: int) -> None:
    for line in ("len(a)", "a.length"):
        s.expect(
            line,
            length,
            "length-differs",
            tr("{line} is not the number of tokens appended so far.", line=line),
        )


def _growth_mistake(grew: list[int], size: int, n: int) -> tuple[str, str]:
    """Name the rule that takes blocks at the lengths `grew`."""
    later = [x for x in grew if x]
    if size > 1 and len(grew) >= n - 1:
        return "block-per-token", tr(
            "A block was taken for every token. A block holds {size} tokens: take a "
            "new one only when the last one is full, len(seq) % block_size == 0.",
            size=size,
        )
    if size > 1 and later == list(range(1, n, size)):
        return "block-at-remainder-one", tr(
            "A new block was taken at len(seq) % {size} == 1, one token too late. "
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
            "The pool has block_size={size}, and a block was taken every 16 tokens: "
            "read pool.block_size.",
            size=size,
        )
    if not later:
        return "single-block", tr(
            "Only the first token took a block. When {size} tokens fill it, the next "
            "token needs another one.",
            size=size,
        )
    return "table-wrong-length", tr(
        "A sequence of L tokens has ceil(L / block_size) blocks. Here blocks were "
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
    if a == [*range(len(a))] and b == [*range(len(b))]:
        raise Wrong(
            "table-holds-logical-blocks",
            tr(
                "block_table[i] is i, the logical number. It must be the physical "
                "block that pool.allocate() returned."
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


def _expect_returned(s: Script, name: str, returned: object) -> None:
    table = block_table(s, name)
    if isinstance(returned, int | np.integer) and returned == table[-1]:
        return
    if returned is None:
        code = "append-returns-none"
        cause = tr("append must return the physical block that it wrote to.")
    elif returned == len(table) - 1:
        code = "append-returns-logical-block"
        cause = tr(
            "append returned the logical number of the block, its place in the table. "
            "It must return the physical block, block_table[-1]."
        )
    else:
        code = "append-returns-wrong-value"
        cause = tr("append must return the physical block that it wrote to.")
    raise Wrong(code, cause, f"{name}.block_table[-1] == {table[-1]}", show(returned))


def writing(s: Script) -> None:
    """Check that K and V of each token are in its slot, in all layers."""
    new_pool(s)
    s.do('a = Sequence(pool, "a")')
    s.do('b = Sequence(pool, "b")')
    for name in "aabaabbaababbbaaa":
        append(s, name)
        expect_contents(s, name)
    expect_contents(s, "a", "b")


def freeing(s: Script) -> None:
    """Check that free gives back all blocks and leaves an empty table."""
    new_pool(s)
    s.do('a = Sequence(pool, "a")')
    s.do('b = Sequence(pool, "b")')
    append(s, "a", 13)
    append(s, "b", 5)
    blocks = block_table(s, "a")
    s.do("a.free()")
    _expect_returned_to_pool(s, blocks)
    _expect_empty_after_free(s)
    expect_contents(s, "b")
    s.attempt("a.free()  # once more: may raise, must do no harm")
    s.expect(
        "pool.used",
        4,
        "free-twice-releases-again",
        tr("The second free() released blocks that the sequence no longer has."),
    )
    _expect_reusable(s, blocks)


def _expect_returned_to_pool(s: Script, blocks: list[int]) -> None:
    used = s.ask("pool.used")
    kept = [block for block in blocks if s.ask(f"pool.ref[{block}]")]
    if used == 4 and not kept:
        return
    if len(kept) == len(blocks) or (used == 4 + len(blocks) and kept):
        code = "blocks-not-returned"
        cause = tr(
            "free() did not give the blocks back: nobody can use them any more. "
            "Release every block of the table."
        )
    elif kept == blocks[-1:]:
        code = "last-block-not-returned"
        cause = tr("free() gave back all blocks but the last, partly filled one.")
    elif kept == blocks[:1]:
        code = "first-block-not-returned"
        cause = tr("free() gave back all blocks but the first.")
    elif kept == blocks[1::2]:
        code = "every-other-block-returned"
        cause = tr(
            "free() gave back every other block. A list that is changed while a loop "
            "runs over it skips elements: loop first, clear afterwards."
        )
    else:
        code = "blocks-partly-returned"
        cause = tr(
            "free() gave back a part of the blocks, or only a part of the books."
        )
    raise Wrong(
        code,
        cause,
        f"pool.used == 4, [b for b in {blocks} if pool.ref[b]] == []",
        f"pool.used == {show(used)}, {kept}",
    )


def _expect_empty_after_free(s: Script) -> None:
    try:
        table, length = s.ask("a.block_table"), s.ask("len(a)")
    except Exception:  # a freed sequence may refuse every use
        return
    left = [] if table is None else block_table(s, "a")
    if left:
        raise Wrong(
            "stale-table",
            tr(
                "After free() the table still lists blocks that belong to somebody "
                "else now. The next append would write into them: empty the table."
            ),
            "a.block_table == []",
            show(table),
            tr("blocks {blocks}", blocks=left),
        )
    if length:
        raise Wrong(
            "stale-length",
            tr(
                "After free() the table is empty, but the sequence still has a length: "
                "ceil(length / block_size) entries no longer hold. Set it to 0."
            ),
            "len(a) == 0",
            show(length),
        )


def _expect_reusable(s: Script, blocks: list[int]) -> None:
    s.do('c = Sequence(pool, "c")')
    append(s, "c", 4 * (12 - 4))
    table = block_table(s, "c")
    if not set(blocks) <= set(table) or len(set(table)) != len(table):
        raise Wrong(
            "released-block-lost",
            tr("The freed blocks cannot be used again, or one of them is used twice."),
            tr("{blocks} among the blocks of c", blocks=sorted(blocks)),
            show(sorted(table)),
        )
    expect_contents(s, "c", "b")


def freeing_a_shared_block(s: Script) -> None:
    """Check that free leaves a block that has another holder."""
    new_pool(s)
    s.do('a = Sequence(pool, "a")')
    append(s, "a", 5)
    first = block_table(s, "a")[0]
    s.do(f"pool.ref[{first}] += 1  # a second holder, as after a fork")
    s.do("a.free()")
    where = tr("block {block}", block=first)
    if s.ask(f"pool.ref[{first}]") == 0 or s.ask("pool.used") == 2:
        raise Wrong(
            "free-ignores-count",
            tr(
                "free() returned a block to the pool that has another holder. free "
                "takes one reference away; the block returns at 0: leave it to "
                "pool.release()."
            ),
            f"pool.ref[{first}] == 1, pool.used == 3",
            f"pool.ref[{first}] == {show(s.ask(f'pool.ref[{first}]'))}, "
            f"pool.used == {show(s.ask('pool.used'))}",
            where,
        )
    s.expect(
        f"pool.ref[{first}]",
        1,
        "free-does-not-decrement",
        tr("free() must take one reference away from every block of the table."),
        where,
    )


def failed_append(s: Script) -> None:
    """Check that an append for which there is no block changes nothing."""
    new_pool(s, num_blocks=4)
    s.do('a = Sequence(pool, "a")')
    append(s, "a", 8)
    table = block_table(s, "a")
    _, error = s.attempt("a.append(kv(), kv())  # the pool is empty")
    if error is None:
        raise Wrong(
            "append-without-block",
            tr("The pool is empty, the last block is full, and append did not raise."),
            "OutOfBlocks",
            f"len(a) == {show(s.ask('len(a)'))}, "
            f"a.block_table == {show(s.ask('a.block_table'))}",
        )
    now = block_table(s, "a")
    if s.ask("len(a)") != 8 or now != table:
        raise Wrong(
            "failed-append-changes-sequence",
            tr(
                "append failed because no block was free, but the sequence changed. "
                "Take the block first; count the token only when it is written."
            ),
            f"len(a) == 8, a.block_table == {table}",
            f"{show(s.ask('len(a)'))}, {now}",
        )
    expect_contents(s, "a")


def wrong_shape(s: Script) -> None:
    """Check that k of a wrong shape is refused before anything changes."""
    new_pool(s)
    s.do('a = Sequence(pool, "a")')
    append(s, "a", 4)
    table = block_table(s, "a")
    _, error = s.attempt("a.append(kv()[0], kv()[0])  # one layer in place of two")
    got = f"len(a) == {show(s.ask('len(a)'))}, pool.used == {show(s.ask('pool.used'))}"
    if error is None:
        raise Wrong(
            "wrong-shape-accepted",
            tr(
                "k and v of one layer were accepted, and numpy copied them into every "
                "layer. Compare the shape with (n_layers, n_kv_heads, head_dim) and "
                "raise ValueError."
            ),
            "ValueError",
            got,
        )
    if s.ask("len(a)") != 4 or block_table(s, "a") != table or s.ask("pool.used") != 3:
        raise Wrong(
            "refused-append-changes-state",
            tr(
                "append refused k and v of a wrong shape, but a block was already "
                "taken or a token counted. Validate first, then allocate, then write."
            ),
            "len(a) == 4, pool.used == 3",
            got,
        )
    expect_contents(s, "a")


BASIC_CASES = (
    Case(
        lambda: tr("a new sequence is empty, whatever other sequences did"),
        lessons.block_table,
        fresh_sequence,
    ),
    Case(
        lambda: tr("append takes a block only when the last one is full"),
        lessons.block_table,
        growth,
    ),
    Case(
        lambda: tr("block tables and append give physical block ids"),
        lessons.block_table,
        physical_ids,
    ),
    Case(
        lambda: tr("K and V of each token are in its slot, in all layers"),
        lessons.block_table,
        writing,
    ),
    Case(
        lambda: tr("free() gives back all blocks and leaves an empty table"),
        lessons.pool,
        freeing,
    ),
    Case(
        lambda: tr("free() leaves a block that somebody else holds"),
        lessons.pool,
        freeing_a_shared_block,
    ),
    Case(
        lambda: tr("an append without a free block raises and changes nothing"),
        lessons.block_table,
        failed_append,
    ),
    Case(
        lambda: tr("k and v of a wrong shape are refused and change nothing"),
        lessons.block_table,
        wrong_shape,
    ),
)
