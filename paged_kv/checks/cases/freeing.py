"""A student's Sequence: free."""

from __future__ import annotations

from paged_kv.checks import lessons
from paged_kv.checks.cases.tokens import (
    append,
    block_table,
    expect_contents,
    new_pool,
)
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr


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
    s.attempt("a.free()", tr("once more: may raise, must do no harm"))
    s.expect(
        "pool.used",
        4,
        "free-twice-releases-again",
        tr("The second `free()` released blocks that the sequence no longer has."),
    )
    _expect_reusable(s, blocks)


def _expect_returned_to_pool(s: Script, blocks: list[int]) -> None:
    used = s.ask("pool.used")
    kept = [block for block in blocks if s.ask(f"pool.ref[{block}]")]
    others = [int(b) for b in s.ask("held")] + block_table(s, "b")
    if lost := [block for block in others if s.ask(f"pool.ref[{block}]") != 1]:
        raise Wrong(
            "free-releases-others",
            tr(
                "`free()` released blocks that somebody else holds. Release what "
                "stands in the table of this sequence, physical ids, and nothing else."
            ),
            f"[pool.ref[b] for b in {lost}] == {[1] * len(lost)}",
            str([int(s.ask(f"pool.ref[{block}]")) for block in lost]),
            tr("blocks {blocks}", blocks=lost),
        )
    if used == 4 and not kept:
        return
    if len(kept) == len(blocks) or (used == 4 + len(blocks) and kept):
        code = "blocks-not-returned"
        cause = tr(
            "`free()` did not give the blocks back: nobody can use them any more. "
            "Release every block of the table."
        )
    elif kept == blocks[-1:]:
        code = "last-block-not-returned"
        cause = tr("`free()` gave back all blocks but the last, partly filled one.")
    elif kept == blocks[:1]:
        code = "first-block-not-returned"
        cause = tr("`free()` gave back all blocks but the first.")
    elif kept == blocks[1::2]:
        code = "every-other-block-returned"
        cause = tr(
            "`free()` gave back every other block. A list that is changed while a loop "
            "runs over it skips elements: loop first, clear afterwards."
        )
    elif not kept and used == 4 + len(blocks):
        code = "counts-lowered-only"
        cause = tr(
            "The counts are 0, but the blocks did not go back to the pool: nobody can "
            "use them any more. `pool.release(block)` does both."
        )
    else:
        code = "blocks-partly-returned"
        cause = tr(
            "`free()` gave back a part of the blocks, or only a part of the books."
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
    if left := block_table(s, "a"):
        raise Wrong(
            "stale-table",
            tr(
                "After `free()` the table still lists blocks that belong to somebody "
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
                "After `free()` the table is empty, but the sequence still has a "
                "length: `ceil(length / block_size)` entries no longer hold. Set it to "
                "0."
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
    s.do(f"pool.ref[{first}] += 1", tr("a second holder, as after a fork"))
    s.do("a.free()")
    where = tr("block {block}", block=first)
    if s.ask(f"pool.ref[{first}]") == 0 or s.ask("pool.used") == 2:
        raise Wrong(
            "free-ignores-count",
            tr(
                "`free()` returned a block to the pool that has another holder. free "
                "takes one reference away; the block returns at 0: leave it to "
                "`pool.release()`."
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
        tr("`free()` must take one reference away from every block of the table."),
        where,
    )


FREEING_CASES = (
    Case(
        lambda: tr("`free()` gives back all blocks and leaves an empty table"),
        lessons.blocks,
        freeing,
    ),
    Case(
        lambda: tr("`free()` leaves a block that somebody else holds"),
        lessons.blocks,
        freeing_a_shared_block,
    ),
)
