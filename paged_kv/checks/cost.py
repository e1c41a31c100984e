"""Tells an allocation that looks through the pool from one that does not.

Timing, but nothing that a busy machine could turn: the quickest of many repetitions in
a small pool is compared with the quickest in a pool two thousand times as large. O(1)
and O(log n) stay within a factor of 3 of each other, and anything that touches every
block, even in C, is slower by a factor of 30 and more.
"""

from __future__ import annotations

import time

from paged_kv.checks import lessons
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.messages import tr

SMALL, LARGE = 1 << 8, 1 << 19
REPETITIONS, PER_REPETITION = 12, 4
TOO_SLOW = 10
ROUNDS = 3

# Time of this thread alone where the clock is fine enough (not on Windows).
_FINE = time.get_clock_info("thread_time").resolution < 1e-6
_clock = time.thread_time if _FINE else time.perf_counter


def constant_time(s: Script) -> None:
    """Check that allocate does not look through the whole pool."""
    s.do(f"small = BlockPool({SMALL}, 1, 1, 1, block_size=1)")
    s.do(f"large = BlockPool({LARGE}, 1, 1, 1, block_size=1)")
    for _ in range(ROUNDS):
        ratio = _quickest(s, "large") / _quickest(s, "small")
        if ratio < TOO_SLOW:
            return
    s.lines += ["%timeit small.release(small.allocate())"]
    s.lines += ["%timeit large.release(large.allocate())"]
    raise Wrong(
        "allocation-scans-pool",
        tr(
            "allocate() takes longer in a larger pool: it looks through all blocks. "
            "Keep the free ids in a list and take one from its end: pop(), not "
            "pop(0), min() or a search in ref. The same holds for what allocate() "
            "uses, such as used."
        ),
        tr("about the same time in a pool of {n} blocks", n=LARGE),
        tr("more than {n} times as long", n=TOO_SLOW),
    )


def _quickest(s: Script, pool: str) -> float:
    allocate, release = s.ask(f"{pool}.allocate"), s.ask(f"{pool}.release")
    best = float("inf")
    for _ in range(REPETITIONS):
        start = _clock()
        blocks = [allocate() for _ in range(PER_REPETITION)]
        best = min(best, _clock() - start)
        for block in blocks:
            release(block)
    return max(best, 1e-7)


COST_CASE = Case(
    lambda: tr("allocate() takes the same time in a pool of any size"),
    lessons.pool,
    constant_time,
)
