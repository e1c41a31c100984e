"""Tells an allocation or a release that looks through the pool from one that does not.

Timing, but nothing that a busy machine could turn: the quickest of several repetitions
in a small pool is compared with the quickest in a much larger one, in time of this
thread alone, and one quick round is enough to pass. O(1) and O(log n) stay within a
factor of 2, and anything that touches every block, even in C, is slower by a factor of
10 and more.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from paged_kv.checks import lessons
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.messages import tr

# A search that is written in C is slow only in a very large pool. One that stops at the
# first free block is slow only in a full one, and there each step is Python's.
EMPTY = 1 << 8, 1 << 19
NEARLY_FULL = 1 << 6, 1 << 11
LEFT = 32  # with fewer, the pop() of a set has to search for them itself
AT_ONCE = 4
REPETITIONS = 6
ROUNDS = 3
TOO_SLOW = 4


def _finest_clock() -> Callable[[], float]:
    # Windows counts the time of a thread in steps of 16 ms, a browser not at all.
    if not hasattr(time, "thread_time"):
        return time.perf_counter
    fine = time.get_clock_info("thread_time").resolution < 1e-6
    return time.thread_time if fine else time.perf_counter


_clock = _finest_clock()


def constant_time(s: Script) -> None:
    """Check that neither allocate nor release looks through the whole pool."""
    for sizes, fill in ((EMPTY, False), (NEARLY_FULL, True)):
        s.restart()
        for name, size in zip(("small", "large"), sizes, strict=True):
            s.do(f"{name} = BlockPool({size}, 1, 1, 1, block_size=1)")
            if fill:
                s.do(f"_ = [{name}.allocate() for _ in range({size - LEFT})]")
        rounds = [(_quickest(s, "small"), _quickest(s, "large")) for _ in range(ROUNDS)]
        for i, mistake in enumerate((_allocation_scans, _release_scans)):
            if all(large[i] > TOO_SLOW * small[i] for small, large in rounds):
                raise _wrong(s, *mistake(), sizes[1])


def _quickest(s: Script, pool: str) -> tuple[float, float]:
    """Return the seconds that some allocations take, and as many releases."""
    allocate, release = s.ask(f"{pool}.allocate"), s.ask(f"{pool}.release")
    taking = giving = float("inf")
    for _ in range(REPETITIONS):
        start = _clock()
        blocks = [allocate() for _ in range(AT_ONCE)]
        middle = _clock()
        for block in blocks:
            release(block)
        giving = min(giving, _clock() - middle)
        taking = min(taking, middle - start)
    return taking, giving


def _allocation_scans() -> tuple[str, str]:
    return (
        "allocation-scans-pool",
        tr(
            "`allocate()` takes longer in a larger pool: it looks through all blocks. "
            "Keep the free ids in a list and take one from its end: `pop()`, not "
            "`pop(0)`, `min()` or a search in ref. The same holds for what "
            "`allocate()` uses, such as used."
        ),
    )


def _release_scans() -> tuple[str, str]:
    return (
        "release-scans-pool",
        tr(
            "`release()` takes longer in a larger pool: it looks through the free list "
            "or moves all of it. Put the id at the end with `append()`, not `insert(0, "
            "…)` or a sort; whether a block is free, `pool.ref` knows."
        ),
    )


def _wrong(s: Script, code: str, cause: str, size: int) -> Wrong:
    s.lines += [
        f"%timeit {pool}.release({pool}.allocate())" for pool in ("small", "large")
    ]
    return Wrong(
        code,
        cause,
        tr("about the same time in a pool of {n} blocks", n=size),
        tr("more than {n} times as long", n=TOO_SLOW),
    )


COST_CASE = Case(
    lambda: tr("`allocate()` and `release()` take the same time in a pool of any size"),
    lessons.blocks,
    constant_time,
)
