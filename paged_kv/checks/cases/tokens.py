"""Appends tokens, remembers them, and finds where in the pool they really are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr

Array = NDArray[Any]
SHAPE = (2, 3, 4)  # layers, KV heads, head_dim


def new_pool(s: Script, num_blocks: int = 12, block_size: int = 4) -> None:
    """Make a pool full of NaN, two of whose blocks somebody else holds.

    So the ids that a sequence gets are not 0, 1, 2: a mistake that takes the logical
    number of a block for the physical one is seen.
    """
    s.use_random_tokens(*SHAPE)
    sizes = ", ".join(map(str, (num_blocks, *SHAPE)))
    s.do(f"pool = BlockPool({sizes}, block_size={block_size})")
    s.do("pool.k[:] = pool.v[:] = np.nan")
    s.do("held = [pool.allocate(), pool.allocate()]")


def append(s: Script, name: str, times: int = 1, shown: bool = True) -> Any:
    """Append random tokens to sequence `name`; return what the last append returned."""
    line = f"{name}.append(kv(), kv())"
    returned = None
    for _ in range(times):
        start = len(s.arrays)
        returned = s.do(line) if shown else s.ask(line)
        k, v = s.arrays[start:]
        s.tokens.setdefault(name, []).append((k, v))
    return returned


def block_table(s: Script, name: str) -> list[int]:
    """Return the block table of sequence `name` as a list of int."""
    table = s.value(f"{name}.block_table")
    try:
        if isinstance(table, dict | set | frozenset | str):
            raise TypeError  # each can be iterated over, and none is a table
        return [int(block) for block in table]
    except (TypeError, ValueError):
        raise Wrong(
            "block-table-not-a-list",
            tr("`block_table` must be a list of block ids."),
            "list[int]",
            show(table),
        ) from None


def place(block: object, slot: object) -> str:
    """Return "block 3, slot 1"."""
    return tr("block {block}, slot {slot}", block=block, slot=slot)


def same(a: Array, b: Array) -> bool:
    """Whether `a` holds `b`, rounded to the float type that it stores and no more."""
    return np.array_equal(a, b.astype(a.dtype))


def expect_contents(s: Script, *names: str) -> None:
    """Raise Wrong unless every token of the sequences is where it belongs.

    The newest token is looked at first: when it went astray, that is the mistake, and
    an older token that it overwrote is a consequence.
    """
    for name in names:
        for position in reversed(range(len(s.tokens.get(name, [])))):
            _expect_token(s, name, position)


def _expect_token(s: Script, name: str, position: int) -> None:
    K, V = s.ask("pool.k"), s.ask("pool.v")
    size = K.shape[2]
    logical, slot = divmod(position, size)
    table = block_table(s, name)
    if logical >= len(table):
        raise _too_short(name, len(s.tokens[name]), size, table)
    block = table[logical]
    k, v = s.tokens[name][position]
    if same(K[:, block, slot], k) and same(V[:, block, slot], v):
        return
    code, cause = _misplaced(K, V, block, slot, logical, k, v)
    wrong_k = not same(K[:, block, slot], k)
    letter, array, right = ("k", K, k) if wrong_k else ("v", V, v)
    here = array[:, block, slot]
    layer, head = next(
        i for i in np.ndindex(right.shape[:2]) if not same(here[i], right[i])
    )
    if code == "token-lost" and position < len(s.tokens[name]) - 1:
        code, cause = _overwritten(K, block, s.tokens[name][-1][0])
    elif code in ("token-lost", "k-not-written", "v-not-written"):
        code, cause = _altered(s, letter, here, right) or (code, cause)
    raise Wrong(
        code,
        cause,
        f"pool.{letter}[{layer}, {block}, {slot}, {head}] == "
        f"{show(right[layer, head])}",
        show(here[layer, head]),
        tr(
            "token {position} of {name}: block {block}, slot {slot}, layer {layer}",
            position=position,
            name=name,
            block=block,
            slot=slot,
            layer=layer,
        ),
    )


def _too_short(name: str, n: int, size: int, table: list[int]) -> Wrong:
    return Wrong(
        "table-too-short",
        tr(
            "`{name}` must hold {n} tokens, and its table has too few blocks for them: "
            "some were lost on the way. Was the table emptied when another sequence "
            "was freed?",
            name=name,
            n=n,
        ),
        f"len({name}.block_table) == {-(-n // size)}",
        f"{len(table)}, {name}.block_table == {table}",
    )


def _altered(
    s: Script, letter: str, here: Array, right: Array
) -> tuple[str, str] | None:
    """Say what differs when a token is at its place, but not as it was passed."""
    written = [h for h in range(right.shape[1]) if same(here[:, h], right[:, h])]
    if written:
        return "heads-not-written", tr(
            "Only the heads {heads} of {n} were written: `pool.{letter}[:, block, "
            "slot]` is all of them.",
            heads=written,
            n=right.shape[1],
            letter=letter,
        )
    if not np.isfinite(here).all() or any(same(here, other) for other in s.arrays):
        return None  # nothing was written there: old memory, or another token
    if np.abs(here - right).max() < 1:
        return "token-rounded", tr(
            "The token is at its place, but rounded: it was converted to a narrower "
            "type on the way. The only type it may be converted to is "
            "`pool.{letter}.dtype`.",
            letter=letter,
        )
    return "token-altered", tr(
        "What stands there is neither the token nor what was there before: the token "
        "was changed on the way."
    )


def _overwritten(K: Array, block: int, newest: Array) -> tuple[str, str]:
    if all(same(K[:, block, slot], newest) for slot in range(K.shape[2])):
        return "whole-block-written", tr(
            "The newest token was written to every slot of the block. It belongs to "
            "one slot: `pool.k[:, block, slot]`."
        )
    return "token-overwritten", tr(
        "A token that was written earlier is not there any more: something else was "
        "written over it."
    )


def _misplaced(
    K: Array, V: Array, block: int, slot: int, logical: int, k: Array, v: Array
) -> tuple[str, str]:
    """Say what happened to a token that is not at (block, slot)."""
    k_here, v_here = K[:, block, slot], V[:, block, slot]
    if same(k_here, v) and same(v_here, k):
        return "k-and-v-swapped", tr("K was written to `pool.v` and V to `pool.k`.")
    if same(k_here, k):
        if same(v_here, k):
            return "v-is-k", tr("K was written to `pool.v` as well; V is lost.")
        if not same(v_here[0], v[0]):
            return "v-not-written", tr("K was written, V was not.")
    if same(v_here, v) and not same(k_here[0], k[0]):
        return "k-not-written", tr("V was written, K was not.")
    if same(k_here[0], k[0]) and len(k) > 1 and not same(k_here[1], k[1]):
        if same(k_here[1], k[0]):
            return "layer-0-everywhere", tr(
                "The K of layer 0 was written to every layer; each layer has its own."
            )
        return "only-layer-0-written", tr(
            "Only layer 0 was written. The index of `pool.k` begins with the layer: "
            "`pool.k[:, block, slot]` is the token in all layers."
        )
    return _found_elsewhere(K, block, slot, logical, k)


def _found_elsewhere(
    K: Array, block: int, slot: int, logical: int, k: Array
) -> tuple[str, str]:
    found = [
        (b, t)
        for b, t in np.ndindex(K.shape[1:3])
        if same(K[0, b, t], k[0]) and (b, t) != (block, slot)
    ]
    if not found:
        return "token-lost", tr(
            "The token is nowhere in the pool. Was it written to a copy of a block, or "
            "added with `+=` to what was left there?"
        )
    if same(K[0, block, slot], k[0]):
        return "token-lost", tr("The token is only partly there.")
    b, t = found[0]
    there = place(b, t)
    if b == block:
        return "wrong-slot", tr(
            "The token is in {place}. Its slot is its position modulo the block size, "
            "counted from 0: look at when length is increased.",
            place=there,
        )
    if b == logical:
        return "logical-block-written", tr(
            "The token is in {place}. {logical} is the logical number of its block; "
            "the physical one is `block_table[{logical}]`, which is {block}.",
            place=there,
            logical=logical,
            block=block,
        )
    return "wrong-block", tr(
        "The token is in {place}. It belongs to `block_table[{logical}]`, which is "
        "{block}.",
        place=there,
        logical=logical,
        block=block,
    )
