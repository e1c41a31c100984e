"""Copy-on-write: when a block is copied, and when not."""

from __future__ import annotations

from paged_kv.checks import lessons
from paged_kv.checks.cases.forking import FULL, PARTIAL, fork, new_fork
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


def in_place(s: Script) -> None:
    """Check that a sequence that shares nothing copies nothing."""
    new_pool(s)
    s.do('base = Sequence(pool, "base")')
    append(s, "base", 5)
    before = block_table(s, "base")
    append(s, "base")
    after = block_table(s, "base")
    if len(after) == len(before) and after != before:
        raise Wrong(
            "always-copies",
            tr(
                "Nobody shares the last block, and append replaced it by a copy all "
                "the same. A copy is needed only when `pool.ref` of the block is above "
                "1."
            ),
            f"base.block_table == {before}",
            str(after),
        )


def tables_stay_apart(s: Script) -> None:
    """Check a fork at a block boundary: the next block is fresh, nothing is copied."""
    new_fork(s, FULL)
    before = block_table(s, "base")
    append(s, "child")
    if block_table(s, "base") != before:
        raise Wrong(
            "fork-shares-table",
            tr(
                "child appended, and the table of base changed: they share one table. "
                "Copy it in fork."
            ),
            f"base.block_table == {before}",
            show(s.ask("base.block_table")),
        )
    after = block_table(s, "child")
    if s.ask("pool.used") == 4:
        raise Wrong(
            "child-in-another-pool",
            tr(
                "The child took a block, and none was taken from the pool: it has a "
                "pool of its own. `copy.deepcopy` copies the pool too. Parent and "
                "child share one pool."
            ),
            "pool.used == 5",
            "4",
        )
    if after[:2] != before or s.ask("pool.used") != 5:
        raise Wrong(
            "copies-full-block",
            tr(
                "The last block was full, so the new token needs a fresh block and no "
                "copy. Copy only when the last block has room: `len(seq) % block_size "
                "!= 0`."
            ),
            f"child.block_table[:2] == {before}, pool.used == 5",
            f"{after[:2]}, {show(s.ask('pool.used'))}",
        )
    expect_contents(s, "base", "child")


def parent_writes_first(s: Script) -> None:
    """Check that the parent copies too, when it is the first to write."""
    new_fork(s, PARTIAL)
    shared = block_table(s, "base")
    append(s, "base")
    if block_table(s, "base")[-1] == shared[-1]:
        raise Wrong(
            "parent-does-not-copy",
            tr(
                "The parent wrote into a block that its child reads too. Whoever "
                "writes first copies, parent or child: only `pool.ref` decides."
            ),
            f"base.block_table[-1] != {shared[-1]}",
            str(shared[-1]),
            tr("block {block}", block=shared[-1]),
        )
    append(s, "child")
    expect_contents(s, "base", "child")


def fork_of_a_fork(s: Script) -> None:
    """Check three holders of one block, each of which writes."""
    new_fork(s, PARTIAL)
    fork(s, "child", "grandchild")
    tail = block_table(s, "base")[-1]
    s.expect(
        f"pool.ref[{tail}]",
        3,
        "fork-of-fork-not-counted",
        tr("base, child and grandchild hold the block: three references."),
        tr("block {block}", block=tail),
    )
    append(s, "grandchild")
    if block_table(s, "grandchild")[-1] == tail:
        raise Wrong(
            "third-holder-not-copied",
            tr(
                "The block has three holders, and one of them wrote into it. A copy is "
                "needed at any count above 1."
            ),
            f"grandchild.block_table[-1] != {tail}",
            str(tail),
            tr("block {block}", block=tail),
        )
    append(s, "base", 2)
    append(s, "child", 2)
    s.expect(
        "pool.used",
        6,
        "copies-wrong-number",
        tr("Three sequences share the first block and have a last block each."),
    )
    expect_contents(s, "base", "child", "grandchild")


IN_PLACE_CASE = Case(
    lambda: tr("a block that nobody shares is written in place"),
    lessons.sharing,
    in_place,
)
BOUNDARY_CASE = Case(
    lambda: tr("at a block boundary the next block is fresh, without a copy"),
    lessons.boundary,
    tables_stay_apart,
)
WHO_COPIES_CASES = (
    Case(
        lambda: tr("the parent copies too when it writes first"),
        lessons.sharing,
        parent_writes_first,
    ),
    Case(lambda: tr("forks of forks"), lessons.sharing, fork_of_a_fork),
)
