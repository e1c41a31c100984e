"""A student's Sequence: fork, and free of what is shared."""

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

PARTIAL, FULL = 6, 8  # tokens: the last of two blocks half full, or full


def new_fork(s: Script, n_tokens: int) -> None:
    """Make base with `n_tokens` tokens, and child, its fork."""
    new_pool(s)
    s.do('base = Sequence(pool, "base")')
    append(s, "base", n_tokens)
    fork(s, "base", "child")


def fork(s: Script, parent: str, child: str) -> None:
    """Fork `parent`."""
    s.do(f'{child} = {parent}.fork("{child}")')
    s.tokens[child] = list(s.tokens[parent])


def forking(s: Script) -> None:
    """Check what a fork is: same blocks, counted, in a table of its own."""
    new_fork(s, PARTIAL)
    child = s.ask("child")
    if child is None:
        raise Wrong(
            "fork-returns-none",
            tr("fork must return the new sequence."),
            "child.block_table == base.block_table",
            "child is None",
        )
    if child is s.ask("base"):
        raise Wrong(
            "fork-returns-itself",
            tr("fork returned the sequence itself; it must return a new one."),
            "child is not base",
            "child is base",
        )
    base_table, child_table = block_table(s, "base"), block_table(s, "child")
    s.expect(
        "pool.used",
        4,
        "fork-copies-blocks",
        tr("fork took blocks from the pool. It copies the table, not the memory."),
    )
    s.expect(
        "len(base)",
        PARTIAL,
        "fork-changes-parent",
        tr("fork changed the parent: it keeps its table and its tokens."),
    )
    if child_table != base_table:
        raise Wrong(
            "fork-table-differs",
            tr("The child must list the same physical blocks as its parent."),
            f"child.block_table == {base_table}",
            str(child_table),
        )
    s.expect(
        "len(child)",
        PARTIAL,
        "fork-forgets-length",
        tr("The child must have as many tokens as its parent."),
    )
    _expect_counted(s, base_table)
    names = {name: s.ask(f"getattr({name}, 'seq_id', {name!r})") for name in s.tokens}
    if names != {name: name for name in s.tokens}:
        raise Wrong(
            "fork-ignores-id",
            tr("The child gets the id that fork was given, the parent keeps its own."),
            "base.seq_id == 'base', child.seq_id == 'child'",
            f"{show(names['base'])}, {show(names['child'])}",
        )


def _expect_counted(s: Script, table: list[int]) -> None:
    counts = [int(s.ask(f"pool.ref[{block}]")) for block in table]
    others = [b for b in range(int(s.ask("len(pool.ref)"))) if b not in table]
    right = {b: int(b in s.ask("held")) for b in others}
    if wrong := [b for b in others if s.ask(f"pool.ref[{b}]") != right[b]]:
        raise Wrong(
            "fork-counts-other-blocks",
            tr("fork changed the counts of blocks that are not in the table."),
            f"[pool.ref[b] for b in {wrong}] == {[right[b] for b in wrong]}",
            str([int(s.ask(f"pool.ref[{b}]")) for b in wrong]),
        )
    if counts == [2] * len(table):
        return
    if counts == [1] * len(table):
        code = "fork-does-not-count"
        cause = tr(
            "fork did not count its references. When one of the two is freed, the "
            "blocks return to the pool while the other still reads them."
        )
    elif counts[:-1] == [1] * (len(table) - 1):
        code = "fork-counts-last-block-only"
        cause = tr("fork counted the last block only; the child holds all of them.")
    elif counts[:-1] == [2] * (len(table) - 1):
        code = "fork-skips-last-block"
        cause = tr("fork did not count the last block; the child holds it too.")
    elif min(counts) > 2:
        code = "fork-counts-twice"
        cause = tr(
            "fork counted a reference more than there is: the blocks will never "
            "return to the pool."
        )
    else:
        code = "fork-counts-wrong"
        cause = tr("Every block of the table has two holders now.")
    raise Wrong(
        code,
        cause,
        f"[pool.ref[b] for b in {table}] == {[2] * len(table)}",
        str(counts),
    )


def freeing_forks(s: Script) -> None:
    """Check frees in both orders: data stay until the last holder goes."""
    for first, last in (("base", "child"), ("child", "base")):
        s.restart()
        new_fork(s, PARTIAL)
        s.do(f"{first}.free()")
        del s.tokens[first]
        _expect_one_holder(s, last)
        append(s, last)
        expect_contents(s, last)
        s.do(f"{last}.free()")
        s.expect(
            "pool.used",
            2,
            "blocks-not-returned",
            tr("All sequences are freed, and blocks are still in use."),
        )


def _expect_one_holder(s: Script, name: str) -> None:
    table = block_table(s, name)
    counts = [int(s.ask(f"pool.ref[{block}]")) for block in table]
    if counts == [1] * len(table):
        return
    if 0 in counts:
        code = "free-returns-shared-blocks"
        cause = tr(
            "One of two holders was freed, and the blocks returned to the pool: the "
            "other one still reads them."
        )
    else:
        code = "free-does-not-decrement"
        cause = tr(
            "One of two holders was freed, and its references are still counted: the "
            "blocks will never return to the pool."
        )
    raise Wrong(
        code,
        cause,
        f"[pool.ref[b] for b in {table}] == {[1] * len(table)}",
        str(counts),
    )


FORK_CASE = Case(
    lambda: tr("fork gives a table of its own with the same blocks, all counted"),
    lessons.sharing,
    forking,
)
FREE_CASE = Case(
    lambda: tr("free keeps what others hold, in any order"),
    lessons.sharing,
    freeing_forks,
)
