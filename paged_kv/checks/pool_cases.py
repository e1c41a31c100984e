"""Cases about a student's BlockPool: storage, books, free list."""

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


def storage(s: Script) -> None:
    """Check k, v, dtype and bytes_per_block."""
    s.do("pool = BlockPool(6, 2, 3, 5, block_size=4, dtype=np.float16)")
    shape = (2, 6, 4, 3, 5)
    for name in ("k", "v"):
        array = s.ask(f"pool.{name}")
        if not isinstance(array, np.ndarray):
            cause = tr("pool.{name} must be one numpy array.", name=name)
            raise Wrong("storage-not-array", cause, "numpy.ndarray", show(array))
        s.expect(
            f"pool.{name}.shape",
            shape,
            "storage-wrong-shape",
            tr(
                "The shape of pool.{name} is not (n_layers, num_blocks, block_size, "
                "n_kv_heads, head_dim).",
                name=name,
            ),
        )
        s.expect(
            f"pool.{name}.dtype",
            np.dtype(np.float16),
            "dtype-ignored",
            tr(
                "pool.{name} is not stored in the dtype that was asked for. A wider "
                "type takes more memory than bytes_per_block() promises.",
                name=name,
            ),
        )
    if s.ask("np.shares_memory(pool.k, pool.v)"):
        raise Wrong(
            "k-and-v-share-memory",
            tr(
                "pool.k and pool.v are one and the same array: V overwrites K. Make "
                "two arrays."
            ),
            "np.shares_memory(pool.k, pool.v) == False",
            "True",
        )
    _bytes_per_block(s)


def _bytes_per_block(s: Script) -> None:
    right = 2 * 2 * 4 * 3 * 5 * 2
    factors = {
        right // 2: tr("It counts K only, and a block holds K and V: factor 2."),
        right // 4: tr("The block size is missing: a block holds 4 tokens."),
        right * 6: tr("It is the size of the whole pool, not of one block."),
        right * 2: tr("It counts 4 bytes per element, and float16 has 2."),
    }
    got = s.ask("pool.bytes_per_block()")
    cause = factors.get(int(got)) if isinstance(got, int | np.integer) else None
    s.expect(
        "pool.bytes_per_block()",
        right,
        "bytes-per-block-wrong",
        cause
        or tr(
            "It is 2 · n_layers · block_size · n_kv_heads · head_dim · sizeof(dtype)."
        ),
    )


def fresh_pool(s: Script) -> None:
    """Check that a new pool is empty, also when there was another one before."""
    for _ in range(2):
        make_pool(s)
        ref = s.ask("[int(n) for n in pool.ref]")
        if ref != [0] * N_BLOCKS or s.value("pool.used") != 0:
            raise _not_empty(s, ref)
        s.expect("pool.peak", 0, "peak-wrong", tr("peak of a new pool is 0."))
        expect_counts(s, used=0)
        s.do("pool.allocate()")


def _not_empty(s: Script, ref: list[int]) -> Wrong:
    got = f"pool.used == {show(s.ask('pool.used'))}, pool.ref == {ref}"
    if any("allocate" in line for line in s.lines):
        code = "pool-state-shared"
        cause = tr(
            "A second pool starts with the counts of the first. A list or array "
            "created in the body of the class, or as a default argument, is one "
            "object for all pools: create it in __init__."
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
                tr("allocate() must return the id of the block."),
                tr("a number from 0 to {last}", last=N_BLOCKS - 1),
                "None",
            )
        if (
            not isinstance(block, int | np.integer)
            or isinstance(block, bool)
            or not 0 <= block < N_BLOCKS
        ):
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
                    "allocate() handed out a block that is already in use: two "
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
                    "The pool is empty, and allocate() returned None. The caller would "
                    "write to pool.k[:, None]: raise an exception."
                ),
                expected,
                "None",
            )
        raise Wrong(
            "exhaustion-hands-out-live-block",
            tr("The pool is empty, and allocate() handed out a block all the same."),
            expected,
            show(block),
        )
    if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfBlocks":
        raise Wrong(
            "exhaustion-wrong-exception",
            tr(
                "The pool is empty, and allocate() failed by accident. Whoever calls "
                "it waits for OutOfBlocks: look whether a block is free, and raise it."
            ),
            "OutOfBlocks",
            type(error).__name__,
        )
    if s.ask("pool.used") != N_BLOCKS or s.ask("pool.free") != 0:
        raise Wrong(
            "failed-allocate-changes-pool",
            tr(
                "allocate() failed, but the counts changed. Look whether a block is "
                "free before anything is counted."
            ),
            f"pool.used == {N_BLOCKS}, pool.free == 0",
            f"pool.used == {show(s.ask('pool.used'))}, "
            f"pool.free == {show(s.ask('pool.free'))}",
        )


def release(s: Script) -> None:
    """Check that a block returns at count 0 and not before."""
    make_pool(s)
    s.do("a, b = pool.allocate(), pool.allocate()")
    s.do("pool.release(a)")
    a = s.ask("a")
    where = tr("block {block}", block=a)
    s.expect(
        "pool.ref[a]",
        0,
        "release-does-not-decrement",
        tr("release() must take one reference away: the count goes from 1 to 0."),
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
    _everything_can_be_allocated(s, held=[int(s.ask("b"))])


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
                    "Blocks are free, but allocate() refused. A released block must "
                    "return to the free list, once."
                ),
                tr("blocks {blocks}", blocks=free),
                type(error).__name__,
            )
        got.append(block)
    if sorted(got) != free:
        raise Wrong(
            "block-handed-out-twice",
            tr("allocate() handed out a block that is already in use."),
            tr("the blocks {blocks} in any order", blocks=free),
            show(got),
        )


def shared_block(s: Script) -> None:
    """Check that a block with two references survives the first release."""
    make_pool(s)
    s.do("a = pool.allocate()")
    s.do("pool.ref[a] += 1  # a second holder, as after a fork")
    where = tr("block {block}", block=s.ask("a"))
    s.expect(
        "pool.ref[a]",
        2,
        "ref-not-writable",
        tr(
            "pool.ref is a copy: a change of pool.ref[a] is lost. A fork counts its "
            "references there, so give out the array itself."
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
        tr("release() must take one reference away."),
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
    _, error = s.attempt("pool.release(a)  # once too often")
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


POOL_CASES = (
    Case(
        lambda: tr("k and v have the shape and dtype asked for; bytes_per_block()"),
        lessons.pool,
        storage,
    ),
    Case(
        lambda: tr("a new pool is empty, whatever other pools did"),
        lessons.pool,
        fresh_pool,
    ),
    Case(lambda: tr("allocate() gives each block once"), lessons.pool, allocation),
    Case(
        lambda: tr("ref, used, free and peak follow each allocate()"),
        lessons.pool,
        allocation_counts,
    ),
    Case(
        lambda: tr("an empty pool raises and stays as it is"),
        lessons.pool,
        exhaustion,
    ),
    Case(lambda: tr("a released block can be allocated again"), lessons.pool, release),
    Case(
        lambda: tr("a block returns only when its count is 0"),
        lessons.pool,
        shared_block,
    ),
    Case(
        lambda: tr("a release too many raises and does no harm"),
        lessons.pool,
        double_release,
    ),
)
