"""Cases about fork and copy-on-write of a student's Sequence."""

from __future__ import annotations

from paged_kv.checks import lessons
from paged_kv.checks.exercise import Case
from paged_kv.checks.life import live
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.sequence_cases import new_pool
from paged_kv.checks.show import show
from paged_kv.checks.tokens import append, block_table, expect_contents, same
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
                "the same. A copy is needed only when pool.ref of the block is above 1."
            ),
            f"base.block_table == {before}",
            str(after),
        )


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


def _expect_counted(s: Script, table: list[int]) -> None:
    counts = [int(s.ask(f"pool.ref[{block}]")) for block in table]
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
    if after[:2] != before or s.ask("pool.used") != 5:
        raise Wrong(
            "copies-full-block",
            tr(
                "The last block was full, so the new token needs a fresh block and no "
                "copy. Copy only when the last block has room: len(seq) % block_size "
                "!= 0."
            ),
            f"child.block_table[:2] == {before}, pool.used == 5",
            f"{after[:2]}, {show(s.ask('pool.used'))}",
        )
    expect_contents(s, "base", "child")


def copy_on_write(s: Script) -> None:
    """Check the first write into a shared, partial block."""
    new_fork(s, PARTIAL)
    shared = block_table(s, "base")
    append(s, "child")
    base, child = block_table(s, "base"), block_table(s, "child")
    old = shared[-1]
    where = tr("block {block}", block=old)
    if len(child) != len(shared):
        raise Wrong(
            "copy-added-to-table",
            tr(
                "The copy was added to the table. It takes the place of the shared "
                "block: block_table[-1] = new."
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
    if new == old and s.ask("pool.used") == 5:
        raise Wrong(
            "copy-not-in-table",
            tr(
                "A block was taken for the copy, but it was not put into the table: "
                "block_table[-1] = new. The token went into the shared block."
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
                "write, a block with pool.ref above 1 must be copied."
            ),
            f"child.block_table[-1] != {old}",
            str(new),
            where,
        )
    _expect_counts_after_copy(s, old, new)
    _expect_copy(s, old, new)
    expect_contents(s, "base", "child")
    if child[0] != shared[0]:
        raise Wrong(
            "copies-every-block",
            tr("Only the block that is written to must be copied; others stay shared."),
            f"child.block_table[0] == {shared[0]}",
            str(child[0]),
        )
    _last_holder(s, old)


def _expect_counts_after_copy(s: Script, old: int, new: int) -> None:
    old_count, new_count = (int(s.ask(f"pool.ref[{b}]")) for b in (old, new))
    if (old_count, new_count) == (1, 1):
        return
    if old_count == 2:
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
        cause = tr("allocate() has already counted the new block; it has one holder.")
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
    k, _ = s.tokens["child"][-1]
    k_old, v_old = s.tokens["child"][-2]
    slot = (len(s.tokens["child"]) - 1) % 4
    where = tr("block {block}", block=new)
    if same(K[:, old, slot], k) and not same(K[:, new, slot], k):
        raise Wrong(
            "written-to-old-block",
            tr(
                "The block was copied, but the token was written to the old one. Take "
                "block_table[-1] again after the copy."
            ),
            tr("the new token in block {block}", block=new),
            tr("it is in block {block}", block=old),
            tr("block {block}, slot {slot}", block=old, slot=slot),
        )
    if not same(K[:, old, slot - 1], s.tokens["base"][-1][0]):
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
    k_ok, v_ok = same(K[:, new, slot - 1], k_old), same(V[:, new, slot - 1], v_old)
    if k_ok and v_ok and not same(K[:, new, 0], s.tokens["child"][4][0]):
        k_ok = v_ok = False
    if k_ok and v_ok:
        return
    first = (same(K[0, new, slot - 1], k_old[0]), same(V[0, new, slot - 1], v_old[0]))
    if k_ok or v_ok:
        code = "copies-k-only" if k_ok else "copies-v-only"
        cause = tr("Only one of K and V was copied; a block holds both.")
    elif first == (True, True) and not same(K[1, new, slot - 1], k_old[1]):
        code = "copies-layer-0-only"
        cause = tr("Only layer 0 was copied; a block holds all layers: pool.k[:, new].")
    elif same(K[:, new, 0], s.tokens["child"][4][0]):
        code = "copies-too-few-slots"
        cause = tr("Not all tokens of the old block were copied.")
    else:
        code = "copies-nothing"
        cause = tr(
            "The child has a new block, but what stood in the old one was not copied: "
            "its earlier tokens are lost."
        )
    raise Wrong(
        code,
        cause,
        f"pool.k[:, {new}, :{slot}] == pool.k[:, {old}, :{slot}]",
        tr("other numbers"),
        where,
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
            "and it copied nevertheless. Ask pool.ref at the moment of the write."
        ),
        tr("block {block}", block=old),
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
                "writes first copies, parent or child: only pool.ref decides."
            ),
            f"base.block_table[-1] != {shared[-1]}",
            str(shared[-1]),
            tr("block {block}", block=shared[-1]),
        )
    append(s, "child")
    expect_contents(s, "base", "child")


def freeing_forks(s: Script) -> None:
    """Check frees in both orders: data stay until the last holder goes."""
    for first, last in (("base", "child"), ("child", "base")):
        s.lines.clear()
        s.tokens.clear()
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


def failed_copy(s: Script) -> None:
    """Check that a copy for which there is no block changes nothing."""
    new_fork(s, PARTIAL)
    s.do("rest = [pool.allocate() for _ in range(pool.free)]")
    table = block_table(s, "child")
    _, error = s.attempt("child.append(kv(), kv())  # no block is free for the copy")
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
            f"[pool.ref[b] for b in {table}] == [2, 2], len(child) == {PARTIAL}",
            f"{counts}, {show(s.ask('len(child)'))}",
        )
    expect_contents(s, "base", "child")


IN_PLACE_CASE = Case(
    lambda: tr("a block that nobody shares is written in place"),
    lessons.copy_on_write,
    in_place,
)
FORK_CASES = (
    Case(
        lambda: tr("fork gives a table of its own with the same blocks, all counted"),
        lessons.sharing,
        forking,
    ),
    Case(
        lambda: tr("at a block boundary the next block is fresh, without a copy"),
        lessons.copy_on_write,
        tables_stay_apart,
    ),
    Case(
        lambda: tr(
            "the first write into a shared block copies it; the last holder's does not"
        ),
        lessons.copy_on_write,
        copy_on_write,
    ),
    Case(
        lambda: tr("the parent copies too when it writes first"),
        lessons.copy_on_write,
        parent_writes_first,
    ),
    Case(
        lambda: tr("free keeps what others hold, in any order"),
        lessons.sharing,
        freeing_forks,
    ),
    Case(lambda: tr("forks of forks"), lessons.sharing, fork_of_a_fork),
    Case(
        lambda: tr("a copy without a free block raises and changes nothing"),
        lessons.copy_on_write,
        failed_copy,
    ),
    Case(
        lambda: tr("counts, tables and contents agree in random runs with forks"),
        lessons.sharing,
        lambda s: live(s, with_forks=True),
    ),
)
