"""Exercise 09.3: fork, copy-on-write, and the experiment with a shared prompt."""

from __future__ import annotations

from paged_kv.checks import lessons
from paged_kv.checks.cases.copy_what import COPY_CASE, FAILED_COPY_CASE
from paged_kv.checks.cases.copy_when import (
    BOUNDARY_CASE,
    IN_PLACE_CASE,
    WHO_COPIES_CASES,
)
from paged_kv.checks.cases.experiment import EXPERIMENT_CASES, run_experiment
from paged_kv.checks.cases.forking import FORK_CASE, FREE_CASE
from paged_kv.checks.cases.freeing import FREEING_CASES
from paged_kv.checks.cases.growth import GROWTH_CASES
from paged_kv.checks.cases.life import live
from paged_kv.checks.cases.stumbles import explain_sequence
from paged_kv.checks.cases.writing import WRITING_CASES
from paged_kv.checks.exercise import Asked, Case, Exercise
from paged_kv.checks.script import Script, Wrong
from paged_kv.messages import tr
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence


def _summary(s: Script) -> str:
    numbers = run_experiment(Sequence)
    return tr(
        "Your forks share {shared} blocks and use {used} in place of {unshared}: "
        "{saved_blocks} blocks = {saved_mib} MiB saved. {used_after_base_free} are in "
        "use after `base.free()`, {used_after_all_free} in the end.",
        **{name: round(value) for name, value in numbers.items()},
    )


def _explain(error: BaseException, s: Script) -> Wrong | None:
    if type(error).__name__ == "DoubleFree" and "held" in str(error):
        return Wrong(
            "retain-then-release",
            tr(
                "A reference taken by `pool.retain()` is given back by "
                "`pool.release_many()`; one taken by `pool.allocate()` or "
                "`pool.ref[block] += 1` is given back by `pool.release()`. Do not mix "
                "them."
            ),
        )
    return explain_sequence(error, s)


def _hints() -> tuple[str, str, str]:
    return (
        tr(
            "Draw two block tables that point at the same blocks. What must be written "
            "down so that freeing one leaves the other intact? And when may a token be "
            "written into a block, and when not?"
        ),
        tr(
            "fork: a new sequence with a copy of the table, the same length, and one "
            "reference more for each block.\n"
            "\n"
            "append: if the last block has room and `pool.ref` of it is above 1, take "
            "a new block, copy the old one into it, put it in the table, release the "
            "old one. At a block boundary nothing is copied."
        ),
        tr(
            "Copy-on-write, with the lines left for you:\n\n"
            "    has_room = self.length % pool.block_size != 0\n"
            "    if has_room and pool.ref[self.block_table[-1]] > 1:\n"
            "        new = pool.allocate()       # first: it may fail\n"
            "        # pool.copy_block(...), the table, pool.release(...)\n\n"
            "Then append goes on as in 09.1, with the block from the table."
        ),
    )


SHARING = Exercise(
    id="09.3",
    title=lambda: tr("prefix sharing"),
    asked=(
        Asked("Sequence", ("__init__", "__len__", "append", "fork", "free")),
        Asked("prefix_sharing"),
    ),
    given={"BlockPool": BlockPool},
    cases=(
        IN_PLACE_CASE,
        *GROWTH_CASES,
        *WRITING_CASES,
        *FREEING_CASES,
        FORK_CASE,
        BOUNDARY_CASE,
        COPY_CASE,
        *WHO_COPIES_CASES,
        FREE_CASE,
        FAILED_COPY_CASE,
        Case(
            lambda: tr("counts, tables and contents agree in random runs with forks"),
            lessons.sharing,
            lambda s: live(s, with_forks=True),
        ),
        *EXPERIMENT_CASES,
    ),
    hints=_hints,
    not_verified=lambda: (
        tr("prefix caching without an explicit fork: it belongs to 09.4"),
        tr("the order in which `free()` lets go of the blocks"),
        tr("the exact types of the exceptions"),
        tr("use from several threads"),
    ),
    explain=_explain,
    summary=_summary,
)
