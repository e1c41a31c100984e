"""Copy-on-write: what a copy is, in the books and in memory."""

from __future__ import annotations

from paged_kv.checks import lessons
from paged_kv.checks.cases.forking import PARTIAL, new_fork
from paged_kv.checks.cases.tokens import (
    Array,
    append,
    block_table,
    expect_contents,
    same,
)
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr


def copy_on_write(s: Script) -> None:
    """Check the first write into a shared, partial block."""
    new_fork(s, PARTIAL)
    shared = block_table(s, "base")
    returned = append(s, "child")
    base, child = block_table(s, "base"), block_table(s, "child")
    old = shared[-1]
    where = tr("block {block}", block=old)
    if len(child) != len(shared):
        raise Wrong(
            "copy-added-to-table",
            tr(
                "The copy was added to the table. It takes the place of the shared "
                "block: `block_table[-1] = new`."
            ),
            "len(child.block_table) == 2",
            str(child),
        )
    if base != shared:
        raise Wrong(
            "copy-changes-parent",
            tr(
                "The child copied a block, and the table of the parent changed: they "
                "share one table. Copy it in fork."
            ),
            f"base.block_table == {shared}",
            str(base),
        )
    new = child[-1]
    if new == old and child != shared:
        raise Wrong(
            "copy-replaces-wrong-entry",
            tr(
                "The copy took the place of another block in the table. It replaces "
                "the shared block that is written to, the last one: `block_table[-1]`."
            ),
            f"child.block_table[:-1] == {shared[:-1]}, child.block_table[-1] != {old}",
            str(child),
            where,
        )
    if new == old and s.ask("pool.used") == 5:
        raise Wrong(
            "copy-not-in-table",
            tr(
                "A block was taken for the copy, but it was not put into the table: "
                "`block_table[-1] = new`. The token went into the shared block."
            ),
            f"child.block_table[-1] != {old}",
            str(new),
            where,
        )
    if new == old:
        raise Wrong(
            "no-copy-on-write",
            tr(
                "The child wrote into a block that the parent reads too. Before a "
                "write, a block with `pool.ref` above 1 must be copied."
            ),
            f"child.block_table[-1] != {old}",
            str(new),
            where,
        )
    if child[:-1] == shared[:-1]:
        _expect_others_kept(s, shared[:-1])
    _expect_counts_after_copy(s, old, new)
    _expect_copy(s, old, new)
    expect_contents(s, "base", "child")
    if returned != new:
        raise Wrong(
            "append-returns-old-block",
            tr(
                "append must return the block that it wrote to: after a copy that is "
                "the new one."
            ),
            f"child.block_table[-1] == {new}",
            show(returned),
        )
    if child[0] != shared[0]:
        raise Wrong(
            "copies-every-block",
            tr("Only the block that is written to must be copied; others stay shared."),
            f"child.block_table[0] == {shared[0]}",
            str(child[0]),
        )
    _last_holder(s, old)


def _expect_others_kept(s: Script, blocks: list[int]) -> None:
    """Raise Wrong when another block than the copied one was released."""
    counts = [int(s.ask(f"pool.ref[{block}]")) for block in blocks]
    if counts != [2] * len(blocks):
        raise Wrong(
            "copy-releases-wrong-block",
            tr(
                "A reference to another block of the table went away. The block that "
                "is copied and let go is the last one: `block_table[-1]`, before it is "
                "replaced."
            ),
            f"[pool.ref[b] for b in {blocks}] == {[2] * len(blocks)}",
            str(counts),
        )


def _expect_counts_after_copy(s: Script, old: int, new: int) -> None:
    old_count, new_count = (int(s.ask(f"pool.ref[{b}]")) for b in (old, new))
    if (old_count, new_count) == (1, 1):
        return
    if new_count == 0:
        code = "copy-released-again"
        cause = tr(
            "The new block is in the table and counted as free: the old block must be "
            "let go, not the copy."
        )
    elif old_count == 2:
        code = "copy-forgets-to-decrement"
        cause = tr(
            "The child has a copy and does not hold the old block any more, but its "
            "reference is still counted: the block will never return to the pool."
        )
    elif old_count == 0:
        code = "copy-releases-twice"
        cause = tr(
            "The old block is counted as free, and the parent still reads it: one "
            "reference goes away, not two."
        )
    elif new_count > 1:
        code = "copy-counted-twice"
        cause = tr("`allocate()` has already counted the new block; it has one holder.")
    else:
        code = "copy-counts-wrong"
        cause = tr("After the copy, the old and the new block have one holder each.")
    raise Wrong(
        code,
        cause,
        f"pool.ref[{old}] == 1, pool.ref[{new}] == 1",
        f"{old_count}, {new_count}",
        tr("blocks {blocks}", blocks=show([old, new])),
    )


def _expect_copy(s: Script, old: int, new: int) -> None:
    """Raise Wrong when the old tokens or the new one are not in the new block."""
    K, V = s.ask("pool.k"), s.ask("pool.v")
    *_, newest = s.tokens["child"]
    copied = s.tokens["base"][4:]  # the tokens of the second block
    slot = len(copied)
    where = tr("block {block}", block=new)
    if same(K[:, old, slot], newest[0]) and not same(K[:, new, slot], newest[0]):
        raise Wrong(
            "written-to-old-block",
            tr(
                "The block was copied, but the token was written to the old one. Take "
                "`block_table[-1]` again after the copy."
            ),
            tr("the new token in block {block}", block=new),
            tr("it is in block {block}", block=old),
            tr("block {block}, slot {slot}", block=old, slot=slot),
        )
    if same(K[:, old, slot], newest[0]):
        raise Wrong(
            "written-before-copy",
            tr(
                "The token was written into the shared block, and the block was copied "
                "afterwards. Whoever else holds it must not see a write: copy first, "
                "then write."
            ),
            tr("nothing written to block {block}", block=old),
            tr("it is in block {block}", block=old),
            tr("block {block}, slot {slot}", block=old, slot=slot),
        )
    if not _holds(K[:, old], copied, 0):
        raise Wrong(
            "copied-backwards",
            tr(
                "The new block was copied over the old one: wrong direction. The old "
                "block is what the parent reads."
            ),
            tr("the tokens of base in block {block}", block=old),
            tr("other numbers"),
            tr("block {block}", block=old),
        )
    has_k, has_v = _holds(K[:, new], copied, 0), _holds(V[:, new], copied, 1)
    if has_k and has_v:
        return
    if has_k and _holds(V[:, new], [(k, k) for k, _ in copied], 1):
        code = "copies-k-into-v"
        cause = tr("K was copied into `pool.v` too; V is lost.")
    elif has_k or has_v:
        code = "copies-k-only" if has_k else "copies-v-only"
        cause = tr("Only one of K and V was copied; a block holds both.")
    elif _holds(K[:1, new], copied, 0):
        code = "copies-layer-0-only"
        cause = tr(
            "Only layer 0 was copied; a block holds all layers: `pool.k[:, new]`."
        )
    elif any(same(K[:1, new, i, :1], k[:1, :1]) for i, (k, _) in enumerate(copied)):
        code = "copies-too-few-slots"
        cause = tr(
            "Not all tokens of the old block were copied, or not with all their layers "
            "and heads."
        )
    else:
        code = "copies-nothing"
        cause = tr(
            "The child has a new block, but what stood in the old one was not copied: "
            "its earlier tokens are lost."
        )
    letter = "v" if has_k else "k"
    raise Wrong(
        code,
        cause,
        f"pool.{letter}[:, {new}, :{slot}] == pool.{letter}[:, {old}, :{slot}]",
        tr("other numbers"),
        where,
    )


def _holds(block: Array, tokens: list[tuple[Array, Array]], which: int) -> bool:
    """Whether the slots of a block begin with K (0) or V (1) of `tokens`."""
    return all(
        same(block[:, slot], token[which][: len(block)])
        for slot, token in enumerate(tokens)
    )


def _last_holder(s: Script, old: int) -> None:
    """Check that the parent, alone with the old block again, writes in place."""
    append(s, "base")
    s.expect(
        "base.block_table[-1]",
        old,
        "last-holder-copies",
        tr(
            "After the child's copy base is the only holder of its last block again, "
            "and it copied nevertheless. Ask `pool.ref` of the last block, at the "
            "moment of the write."
        ),
        tr("block {block}", block=old),
    )
    expect_contents(s, "base", "child")


def failed_copy(s: Script) -> None:
    """Check that a copy for which there is no block changes nothing."""
    new_fork(s, PARTIAL)
    s.do("rest = [pool.allocate() for _ in range(pool.free)]")
    table = block_table(s, "child")
    _, error = s.attempt("child.append(kv(), kv())", tr("no block is free"))
    counts = [int(s.ask(f"pool.ref[{block}]")) for block in table]
    if error is None:
        raise Wrong(
            "copy-without-block",
            tr("No block is free for the copy, and append did not raise."),
            "OutOfBlocks",
            show(s.ask("child.block_table")),
        )
    if (
        counts != [2, 2]
        or block_table(s, "child") != table
        or s.ask("len(child)") != PARTIAL
    ):
        raise Wrong(
            "failed-copy-changes-state",
            tr(
                "append failed because no block was free for the copy, but something "
                "had already changed. Allocate first; release the old block afterwards."
            ),
            f"[pool.ref[b] for b in {table}] == [2, 2], len(child) == {PARTIAL}, "
            f"child.block_table == {table}",
            f"{counts}, {show(s.ask('len(child)'))}, "
            f"{show(s.ask('child.block_table'))}",
        )
    expect_contents(s, "base", "child")


COPY_CASE = Case(
    lambda: tr(
        "the first write into a shared block copies it; the last holder's does not"
    ),
    lessons.sharing,
    copy_on_write,
)
FAILED_COPY_CASE = Case(
    lambda: tr("a copy without a free block raises and changes nothing"),
    lessons.run_out,
    failed_copy,
)
