"""A student's BlockPool: taking blocks back."""

from __future__ import annotations

from paged_kv.checks import lessons
from paged_kv.checks.cases.pool_allocate import N_BLOCKS, expect_counts, make_pool
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr


def release(s: Script) -> None:
    """Check that a block returns at count 0 and not before."""
    make_pool(s)
    s.do("a, b = pool.allocate(), pool.allocate()")
    s.do("pool.k[:, a], pool.v[:, a] = 1, 2")
    s.do("pool.release(a)")
    a = s.ask("a")
    where = tr("block {block}", block=a)
    s.expect(
        "pool.ref[a]",
        0,
        "release-does-not-decrement",
        tr("`release()` must take one reference away: the count goes from 1 to 0."),
        where,
    )
    if s.ask("pool.free") == N_BLOCKS - 1:
        s.expect(
            "pool.used",
            1,
            "used-not-lowered",
            tr(
                "The block is free again, and used still counts it: used and free "
                "together are always all blocks."
            ),
            where,
        )
    s.expect(
        "pool.used",
        1,
        "release-does-not-return",
        tr("The count is 0, but the block did not return to the pool."),
        where,
    )
    expect_counts(s, used=1)
    s.expect(
        "pool.peak", 2, "peak-wrong", tr("peak does not fall when a block is released.")
    )
    s.do("pool.release(b)")
    s.do("c = pool.allocate()")
    s.expect(
        "pool.peak",
        2,
        "peak-wrong",
        tr(
            "Two blocks were in use at one time, never more: peak is the largest value "
            "that used has had."
        ),
    )
    _everything_can_be_allocated(s, held=[int(s.ask("c"))])
    if (s.ask("pool.k[:, a]") != 1).any() or (s.ask("pool.v[:, a]") != 2).any():
        raise Wrong(
            "memory-zeroed",
            tr(
                "The memory of a block was cleared when it changed hands. Nobody reads "
                "beyond the length, so leave it as it is: clearing costs a pass over "
                "the block each time."
            ),
            "pool.k[:, a] == 1, pool.v[:, a] == 2",
            f"{show(s.ask('pool.k[0, a, 0, 0, 0]'))}, "
            f"{show(s.ask('pool.v[0, a, 0, 0, 0]'))}",
            where,
        )


def _everything_can_be_allocated(s: Script, held: list[int]) -> None:
    """Allocate all that is free; the ids must be those that nobody holds."""
    free = sorted(set(range(N_BLOCKS)) - set(held))
    got: list[int] = []
    for _ in free:
        block, error = s.attempt("pool.allocate()")
        if error is not None:
            raise Wrong(
                "released-block-lost",
                tr(
                    "Blocks are free, but `allocate()` refused. A released block must "
                    "return to the free list, once."
                ),
                tr("blocks {blocks}", blocks=free),
                type(error).__name__,
            )
        got.append(block)
    if sorted(got) != free:
        raise Wrong(
            "block-handed-out-twice",
            tr("`allocate()` handed out a block that is already in use."),
            tr("the blocks {blocks} in any order", blocks=free),
            show(got),
        )


def shared_block(s: Script) -> None:
    """Check that a block with two references survives the first release."""
    make_pool(s)
    s.do("a = pool.allocate()")
    s.do("pool.ref[a] += 1", tr("a second holder, as after a fork"))
    where = tr("block {block}", block=s.ask("a"))
    s.expect(
        "pool.ref[a]",
        2,
        "ref-not-writable",
        tr(
            "`pool.ref` is a copy: a change of `pool.ref[a]` is lost. A fork counts "
            "its references there, so give out the array itself."
        ),
        where,
    )
    s.do("pool.release(a)")
    if s.ask("pool.used") == 0 or s.ask("pool.ref[a]") == 0:
        raise Wrong(
            "returned-while-referenced",
            tr(
                "The block had two holders, one let go, and the block returned to the "
                "pool: somebody else will overwrite what the other holder reads. It "
                "may return only when its count is 0."
            ),
            "pool.ref[a] == 1, pool.used == 1",
            f"pool.ref[a] == {show(s.ask('pool.ref[a]'))}, "
            f"pool.used == {show(s.ask('pool.used'))}",
            where,
        )
    s.expect(
        "pool.ref[a]",
        1,
        "release-does-not-decrement",
        tr("`release()` must take one reference away."),
        where,
    )
    s.do("pool.release(a)")
    s.expect(
        "pool.used",
        0,
        "release-does-not-return",
        tr("The last holder let go, but the block did not return to the pool."),
        where,
    )


def double_release(s: Script) -> None:
    """Check that a release too many raises and does no harm."""
    make_pool(s)
    s.do("a = pool.allocate()")
    s.do("pool.release(a)")
    _, error = s.attempt("pool.release(a)", tr("once too often"))
    where = tr("block {block}", block=s.ask("a"))
    s.expect(
        "pool.ref[a]",
        0,
        "double-release-corrupts",
        tr("A free block was released once more, and its count changed."),
        where,
    )
    if s.ask("pool.free") != N_BLOCKS:
        raise Wrong(
            "double-release-corrupts",
            tr(
                "A free block was released once more and stands in the free list "
                "twice: two sequences will get it. Refuse a release at count 0."
            ),
            f"pool.free == {N_BLOCKS}",
            f"pool.free == {show(s.ask('pool.free'))}",
            where,
        )
    if error is None:
        raise Wrong(
            "double-release-silent",
            tr(
                "A free block was released once more, and nothing was said. Somebody "
                "has lost count: raise DoubleFree."
            ),
            "DoubleFree",
            tr("no exception"),
            where,
        )
    _everything_can_be_allocated(s, held=[])


RELEASE_CASES = (
    Case(
        lambda: tr("a released block can be allocated again"),
        lessons.blocks,
        release,
    ),
    Case(
        lambda: tr("a block returns only when its count is 0"),
        lessons.blocks,
        shared_block,
    ),
    Case(
        lambda: tr("a release too many raises and does no harm"),
        lessons.blocks,
        double_release,
    ),
)
