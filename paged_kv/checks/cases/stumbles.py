"""Exceptions out of a student's append, fork and free, and the mistakes behind them."""

from __future__ import annotations

from paged_kv.checks.cases.tokens import same
from paged_kv.checks.script import Script, Wrong
from paged_kv.messages import tr

_OF_THE_POOL = {
    *("allocate", "release", "ref", "k", "v", "block_size", "copy_block"),
    *("n_layers", "n_kv_heads", "head_dim"),
}


def explain_sequence(error: BaseException, s: Script) -> Wrong | None:
    """Return the likely mistake behind an exception of the student's Sequence."""
    name, _, call = (s.unfinished or (s.lines or [""])[-1]).partition(".")
    if isinstance(error, AttributeError) and error.name in _OF_THE_POOL:
        return _pool_forgotten(error)
    if call.startswith("append("):
        return _append(error, s, name)
    if call.startswith("fork(") and isinstance(error, IndexError):
        if not s.ask(f"len({name.rpartition(' ')[2]})"):
            return Wrong(
                "fork-of-empty",
                tr(
                    "A sequence without tokens was forked: its table is empty, it has "
                    "no last block. Its fork is empty too."
                ),
            )
    elif call.startswith("free(") and "not callable" in str(error):
        return Wrong(
            "free-in-place-of-release",
            tr(
                "`pool.free` is a number, how many blocks are free. A block is given "
                "back by `pool.release(block)`."
            ),
        )
    return None


def _pool_forgotten(error: AttributeError) -> Wrong | None:
    if not hasattr(error.obj, "block_table"):
        return None
    return Wrong(
        "pool-forgotten",
        tr(
            "`{name}` belongs to the pool, and a sequence was asked for it. Is it "
            "`self.{name}` in place of `self.pool.{name}`, or `Sequence(self, …)` in "
            "place of `Sequence(self.pool, …)`?",
            name=error.name,
        ),
    )


def _append(error: BaseException, s: Script, name: str) -> Wrong | None:
    table = list(s.ask(f"{name}.block_table"))
    if any(map(callable, table)):
        return Wrong(
            "allocate-not-called",
            tr(
                "The table holds the method itself in place of a block id. Brackets "
                "call it: `pool.allocate()`."
            ),
        )
    if isinstance(error, IndexError) and not table:
        return _no_first_block(s, name)
    if isinstance(error, IndexError) and (
        "axis 0" in str(error) or "axis 1" in str(error)
    ):
        return _axes()
    if isinstance(error, IndexError) and "axis 2" in str(error):
        first = s.tokens[name][0][0]
        if same(s.ask("pool.k")[:, 0, table[0]], first):
            return _axes()
        return Wrong(
            "slot-outside-block",
            tr(
                "The slot is outside the block: `pool.block_size` is {n} here. A slot "
                "is the remainder of the position by `pool.block_size`.",
                n=s.ask("pool.block_size"),
            ),
        )
    if isinstance(error, ValueError) and "broadcast" in str(error):
        return Wrong(
            "write-wrong-shape",
            tr(
                "The place that was written to has another shape than a token, "
                "`(n_layers, n_kv_heads, head_dim)`. `pool.k[:, block, slot]` has it, "
                "all in one pair of brackets: `pool.k[:, block][slot]` takes the slot "
                "for a layer."
            ),
        )
    return None


def _no_first_block(s: Script, name: str) -> Wrong:
    if s.ask(f"len({name})"):
        return Wrong(
            "counted-too-early",
            tr(
                "The token was counted before it had a block: `len(seq)` is 1 already "
                "when the first block should be taken. Its position is the length "
                "before the append: increase it last."
            ),
        )
    return Wrong(
        "no-first-block",
        tr(
            "The first token found no block: the table is still empty. An empty "
            "sequence needs a block too, and `0 % block_size` is 0: test for remainder "
            "0."
        ),
    )


def _axes() -> Wrong:
    return Wrong(
        "axes-out-of-order",
        tr(
            "The indices are in the wrong order. `pool.k` and `pool.v` begin with "
            "layer, block, slot: `pool.k[:, block, slot]` is a token in all layers."
        ),
    )
