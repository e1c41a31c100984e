"""A student's BlockPool: handing blocks out."""

from __future__ import annotations

import numpy as np

from paged_kv.checks import lessons
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr

N_BLOCKS = 6


def make_pool(s: Script, num_blocks: int = N_BLOCKS, block_size: int = 4) -> None:
    """Make a pool with 2 layers, 3 KV heads and head_dim 4."""
    s.do(f"pool = BlockPool({num_blocks}, 2, 3, 4, block_size={block_size})")


def expect_counts(s: Script, used: int) -> None:
    """Raise Wrong unless used and free of `pool` add up."""
    total = N_BLOCKS
    s.expect(
        "pool.used",
        used,
        "used-wrong",
        tr("used is not the number of blocks that somebody holds."),
    )
    s.expect(
        "pool.free",
        total - used,
        "free-wrong",
        tr("free is not the number of blocks that nobody holds."),
    )


def fresh_pool(s: Script) -> None:
    """Check that a new pool is empty, also when there was another one before."""
    used_before = None
    for _ in range(2):
        make_pool(s)
        if used_before is not None:
            s.expect(
                "first.used",
                used_before,
                "pool-state-shared",
                tr(
                    "A second pool was made, and the first one changed. A list or "
                    "array created in the body of the class is one object for all "
                    "pools: create it in `__init__`."
                ),
            )
        _expect_counters(s)
        ref = s.ask("[int(n) for n in pool.ref]")
        if ref != [0] * N_BLOCKS or s.value("pool.used") != 0:
            raise _not_empty(s, ref)
        s.expect("pool.peak", 0, "peak-wrong", tr("peak of a new pool is 0."))
        expect_counts(s, used=0)
        s.do("pool.allocate()")
        s.do("first = pool")
        used_before = s.value("first.used")


def _expect_counters(s: Script) -> None:
    """Raise Wrong when `pool.ref` cannot hold reference counts."""
    ref = s.value("pool.ref")
    expected = f"np.zeros({N_BLOCKS}, np.int32)"
    if isinstance(ref, dict) or not hasattr(ref, "__getitem__"):
        cause = tr("`pool.ref` must be an array of counts, one for each block.")
        raise Wrong("ref-not-array", cause, expected, show(ref))
    if isinstance(ref, np.ndarray) and (ref.dtype.kind != "i" or ref.itemsize < 4):
        raise Wrong(
            "ref-not-int32",
            tr(
                "`pool.ref` holds counts: a popular block has hundreds of holders, so "
                "its type is int32."
            ),
            expected,
            show(ref) + f", {ref.dtype}",
        )


def _not_empty(s: Script, ref: list[int]) -> Wrong:
    used, free = s.ask("pool.used"), s.ask("pool.free")
    got = f"pool.used == {show(used)}, pool.ref == {ref}"
    if any("allocate" in line for line in s.lines):
        code = "pool-state-shared"
        cause = tr(
            "A second pool starts with the counts of the first. A list or array "
            "created in the body of the class, or as a default argument, is one object "
            "for all pools: create it in `__init__`."
        )
    elif used == N_BLOCKS and free == 0:
        code = "used-and-free-swapped"
        cause = tr("A new pool is empty: used is 0, and free is all blocks.")
    elif not any(ref) and used == N_BLOCKS - free:
        code = "free-list-incomplete"
        cause = tr(
            "In a new pool {free} of {n} blocks are free. The free list begins with "
            "all ids from 0 to {last}, each once; `range` stops before its end. If the "
            "list is left from another pool, it was created in the body of the class: "
            "create it in `__init__`.",
            free=show(free),
            n=N_BLOCKS,
            last=N_BLOCKS - 1,
        )
    else:
        code = "pool-not-empty"
        cause = tr("A new pool must be empty: every count 0, no block in use.")
    return Wrong(code, cause, f"pool.used == 0, pool.ref == {[0] * N_BLOCKS}", got)


def allocation(s: Script) -> None:
    """Check that allocate gives each id once."""
    make_pool(s)
    seen: list[int] = []
    for _ in range(N_BLOCKS):
        block = s.do("pool.allocate()")
        if block is None:
            raise Wrong(
                "allocate-returns-none",
                tr("`allocate()` must return the id of the block."),
                tr("a number from 0 to {last}", last=N_BLOCKS - 1),
                "None",
            )
        if not isinstance(block, int | np.integer) or isinstance(block, bool):
            raise Wrong(
                "block-id-not-a-number",
                tr("`allocate()` must return the id of the block, one whole number."),
                tr("a number from 0 to {last}", last=N_BLOCKS - 1),
                show(block),
            )
        if not 0 <= block < N_BLOCKS:
            raise Wrong(
                "block-id-outside-pool",
                tr("A pool of {n} blocks has the ids 0 to {last}.", n=N_BLOCKS, last=5),
                tr("a number from 0 to {last}", last=N_BLOCKS - 1),
                show(block),
            )
        if block in seen:
            raise Wrong(
                "block-handed-out-twice",
                tr(
                    "`allocate()` handed out a block that is already in use: two "
                    "sequences would write into it. Take it off the free list."
                ),
                tr("a block other than {seen}", seen=seen),
                show(block),
            )
        seen.append(int(block))


def allocation_counts(s: Script) -> None:
    """Check ref, used, free and peak while the pool fills up."""
    make_pool(s)
    for n in range(1, N_BLOCKS + 1):
        block = s.do("pool.allocate()")
        s.expect(
            f"pool.ref[{block}]",
            1,
            "allocate-does-not-count",
            tr("A block that was just handed out has one holder: its count is 1."),
            tr("block {block}", block=block),
        )
        expect_counts(s, used=n)
        s.expect(
            "pool.peak",
            n,
            "peak-wrong",
            tr("peak is the largest number of blocks that were in use at one time."),
        )


def exhaustion(s: Script) -> None:
    """Check that an empty pool refuses, and is not changed by it."""
    make_pool(s)
    for _ in range(N_BLOCKS):
        s.do("pool.allocate()")
    block, error = s.attempt("pool.allocate()")
    if error is None:
        expected = "OutOfBlocks"
        if block is None:
            raise Wrong(
                "exhaustion-returns-none",
                tr(
                    "The pool is empty, and `allocate()` returned None. The caller "
                    "would write to `pool.k[:, None]`: raise an exception."
                ),
                expected,
                "None",
            )
        if isinstance(block, int) and block < 0:
            raise Wrong(
                "exhaustion-returns-negative",
                tr(
                    "The pool is empty, and `allocate()` returned {block}. To numpy "
                    "that is an index from the end, so the caller would write into "
                    "another block: raise an exception.",
                    block=block,
                ),
                expected,
                show(block),
            )
        raise Wrong(
            "exhaustion-hands-out-live-block",
            tr("The pool is empty, and `allocate()` handed out a block all the same."),
            expected,
            show(block),
        )
    if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfBlocks":
        raise Wrong(
            "exhaustion-wrong-exception",
            tr(
                "The pool is empty, and `allocate()` raised {error}. Whoever calls it "
                "waits for OutOfBlocks: look whether a block is free, and raise that.",
                error=type(error).__name__,
            ),
            "OutOfBlocks",
            type(error).__name__,
        )
    if s.ask("pool.used") != N_BLOCKS or s.ask("pool.free") != 0:
        raise Wrong(
            "failed-allocate-changes-pool",
            tr(
                "`allocate()` failed, but the counts changed. Look whether a block is "
                "free before anything is counted."
            ),
            f"pool.used == {N_BLOCKS}, pool.free == 0",
            f"pool.used == {show(s.ask('pool.used'))}, "
            f"pool.free == {show(s.ask('pool.free'))}",
        )


ALLOCATE_CASES = (
    Case(
        lambda: tr("a new pool is empty, whatever other pools did"),
        lessons.blocks,
        fresh_pool,
    ),
    Case(
        lambda: tr("`allocate()` gives each block once"),
        lessons.blocks,
        allocation,
    ),
    Case(
        lambda: tr("ref, used, free and peak follow each `allocate()`"),
        lessons.blocks,
        allocation_counts,
    ),
    Case(
        lambda: tr("an empty pool raises and stays as it is"),
        lessons.run_out,
        exhaustion,
    ),
)
