"""A student's Sequence: what append writes, and what a failed one leaves alone."""

from __future__ import annotations

from paged_kv.checks import lessons
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


def writing(s: Script) -> None:
    """Check that K and V of each token are in its slot, in all layers."""
    new_pool(s)
    s.do('a = Sequence(pool, "a")')
    s.do('b = Sequence(pool, "b")')
    for name in "aabaabbaababbbaaa":
        append(s, name)
        expect_contents(s, name)
    expect_contents(s, "a", "b")


def failed_append(s: Script) -> None:
    """Check that an append for which there is no block changes nothing."""
    new_pool(s, num_blocks=4)
    s.do('a = Sequence(pool, "a")')
    append(s, "a", 8)
    table = block_table(s, "a")
    _, error = s.attempt("a.append(kv(), kv())", tr("no block is free"))
    if error is None:
        raise Wrong(
            "append-without-block",
            tr("The pool is empty, the last block is full, and append did not raise."),
            "OutOfBlocks",
            f"len(a) == {show(s.ask('len(a)'))}, "
            f"a.block_table == {show(s.ask('a.block_table'))}",
        )
    now = block_table(s, "a")
    if s.ask("len(a)") != 8 or now != table:
        raise Wrong(
            "failed-append-changes-sequence",
            tr(
                "append failed because no block was free, but the sequence changed. "
                "Take the block first; count the token only when it is written."
            ),
            f"len(a) == 8, a.block_table == {table}",
            f"{show(s.ask('len(a)'))}, {now}",
        )
    expect_contents(s, "a")


def wrong_shape(s: Script) -> None:
    """Check that k of a wrong shape is refused before anything changes."""
    new_pool(s)
    s.do('a = Sequence(pool, "a")')
    append(s, "a", 4)
    table = block_table(s, "a")
    for given, note, accepted in _wrong_shapes():
        _, error = s.attempt(f"a.append({given})", note)
        length, used = s.ask("len(a)"), s.ask("pool.used")
        got = f"len(a) == {show(length)}, pool.used == {show(used)}"
        if error is None:
            raise Wrong("wrong-shape-accepted", accepted, "ValueError", got)
        if length != 4 or block_table(s, "a") != table or used != 3:
            raise Wrong(
                "refused-append-changes-state",
                tr(
                    "append refused k and v of a wrong shape, but a block was already "
                    "taken or a token counted. Validate first, then allocate, then "
                    "write."
                ),
                "len(a) == 4, pool.used == 3",
                got,
            )
        expect_contents(s, "a")


def _wrong_shapes() -> list[tuple[str, str, str]]:
    """Return arguments of append, what is wrong with them, and what if accepted."""
    return [
        (
            "kv()[0], kv()[0]",
            tr("one layer in place of two"),
            tr(
                "k and v of one layer were accepted, and numpy copied them into every "
                "layer. Compare the shape with `(n_layers, n_kv_heads, head_dim)` and "
                "raise ValueError."
            ),
        ),
        (
            "kv(), kv()[0]",
            tr("v of one layer"),
            tr(
                "k has the right shape, v has not, and v was accepted. Compare the "
                "shapes of both."
            ),
        ),
        (
            "kv().swapaxes(1, 2), kv().swapaxes(1, 2)",
            tr("heads and head_dim swapped"),
            tr(
                "k and v with heads and head_dim swapped were accepted. The number of "
                "elements is right, the shape is not: compare the shapes, and do not "
                "reshape."
            ),
        ),
    ]


WRITING_CASES = (
    Case(
        lambda: tr("K and V of each token are in its slot, in all layers"),
        lessons.blocks,
        writing,
    ),
    Case(
        lambda: tr("an append without a free block raises and changes nothing"),
        lessons.run_out,
        failed_append,
    ),
    Case(
        lambda: tr("k and v of a wrong shape are refused and change nothing"),
        lessons.blocks,
        wrong_shape,
    ),
)
