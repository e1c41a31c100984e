"""Exercise 09.1: BlockPool and Sequence with append and free."""

from __future__ import annotations

from paged_kv.checks import lessons
from paged_kv.checks.cases.cost import COST_CASE
from paged_kv.checks.cases.freeing import FREEING_CASES
from paged_kv.checks.cases.growth import GROWTH_CASES
from paged_kv.checks.cases.life import live
from paged_kv.checks.cases.pool_allocate import ALLOCATE_CASES
from paged_kv.checks.cases.pool_release import RELEASE_CASES
from paged_kv.checks.cases.pool_storage import STORAGE_CASES
from paged_kv.checks.cases.stumbles import explain_sequence
from paged_kv.checks.cases.writing import WRITING_CASES
from paged_kv.checks.exercise import Asked, Case, Exercise
from paged_kv.checks.script import Script, Wrong
from paged_kv.messages import tr


def explain(error: BaseException, s: Script) -> Wrong | None:
    """Return the likely mistake behind an exception of the student's code."""
    last = s.lines[-1] if s.lines else ""
    if isinstance(error, MemoryError) and last == "pool.allocate()":
        return Wrong(
            "refuses-with-free-blocks",
            tr(
                "`allocate()` handed out {n} of 6 blocks and says that none is free. "
                "It may refuse only when all of them are taken.",
                n=len(s.lines) - 2,
            ),
        )
    if type(error).__name__ == "DoubleFree" and ".free()" in last:
        return Wrong(
            "free-releases-twice",
            tr(
                "`free()` released a block twice. Release each block of the table "
                "once, then empty the table."
            ),
        )
    return explain_sequence(error, s)


def _hints() -> tuple[str, str, str]:
    return (
        tr(
            "Two questions decide everything. When does a sequence need a new block? "
            "And who else may still hold a block that is released?\n"
            "\n"
            "Write down `len(seq)` before each append, and beside it whether the last "
            "block still has room."
        ),
        tr(
            "The pool: a list of free ids is enough, with block 0 at the end that you "
            "pop from. allocate sets the count to 1; release takes one away and puts "
            "the id back only when it reached 0.\n"
            "\n"
            "The sequence: position t lives in `block_table[t // block_size]` at slot "
            "`t % block_size`. Before the append, the position of the new token is "
            "`len(seq)`."
        ),
        tr(
            "The order inside append, with the lines left for you:\n\n"
            "    block_is_full = self.length % pool.block_size == 0\n"
            "    # if so: allocate, and add the id to the table\n"
            "    slot = ...   # remainder of the position\n"
            "    pool.k[:, block, slot] = k   # and the same for v\n"
            "    # only now is the token counted\n\n"
            "free: release each block of the table, then empty the table and set the "
            "length to 0."
        ),
    )


BLOCK_POOL = Exercise(
    id="09.1",
    title=lambda: tr("block pool and block table"),
    asked=(
        Asked("BlockPool", ("__init__", "allocate", "release", "bytes_per_block")),
        Asked("Sequence", ("__init__", "__len__", "append", "free")),
    ),
    cases=(
        *STORAGE_CASES,
        *ALLOCATE_CASES,
        *RELEASE_CASES,
        *GROWTH_CASES,
        *WRITING_CASES,
        *FREEING_CASES,
        Case(
            lambda: tr("counts, tables and contents agree in random runs"),
            lessons.blocks,
            lambda s: live(s, with_forks=False),
        ),
        COST_CASE,
    ),
    hints=_hints,
    not_verified=lambda: (
        tr("fork and copy-on-write: they belong to 09.3"),
        tr("the order in which `free()` lets go of the blocks"),
        tr("the exact types of the exceptions"),
        tr("use from several threads"),
    ),
    explain=explain,
)
