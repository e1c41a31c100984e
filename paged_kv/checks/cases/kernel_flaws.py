"""What a paged kernel gives when it computes addresses wrongly.

A kernel has nothing but pointers, so its own mistakes are wrong rows: of the table, or
of the caches seen as (rows, head_dim). Mistakes of the softmax are those of
`attention_flaws`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.checks.cases.attention_causes import CAUSES
from paged_kv.checks.cases.attention_flaws import Problem, attend, name_flaw
from paged_kv.messages import tr

Array = NDArray[Any]

#: Row of the caches for (block, slot, KV head), as (block, slot, head, block size,
#: KV heads) → row. The right one is (block · size + slot) · heads + head.
ROWS: dict[str, Callable[[Array, Array, Array, int, int], Array]] = {
    "block-not-multiplied": lambda b, t, h, size, n: (b + t) * n + h,
    "heads-not-skipped": lambda b, t, h, size, n: b * size + t + h,
    "head-not-added": lambda b, t, h, size, n: (b * size + t) * n + 0 * h,
    "head-major": lambda b, t, h, size, n: (b * n + h) * size + t,
}

KERNEL_CAUSES: dict[str, Callable[[], str]] = {
    **CAUSES,
    "batch-row-ignored": lambda: tr(
        "Every sequence was read with the table of sequence 0. Row `seq` of the table "
        "begins at `table_ptr + seq * width`."
    ),
    "table-rows-packed": lambda: tr(
        "The rows of the table were taken to follow each other without padding. Each "
        "has `width` entries, however many its sequence uses."
    ),
    "next-table-entry": lambda: tr(
        "Each block is the one behind the right one in the table: blocks are counted "
        "from 0, as i is."
    ),
    "block-not-multiplied": lambda: tr(
        "The block id was taken for a token. Block b begins `b * BLOCK_SIZE` tokens "
        "into the cache."
    ),
    "heads-not-skipped": lambda: tr(
        "The rows of one head were taken to stand side by side. In the cache each "
        "token has `N_KV_HEADS` rows: token n of head h is row `n * N_KV_HEADS + h`."
    ),
    "head-not-added": lambda: tr(
        "Every program instance read KV head 0: add `kv_head` to the row."
    ),
    "head-major": lambda: tr(
        "The cache was read as if the slots of a head stood together (the layout HND). "
        "Here the order is block, slot, head, element."
    ),
    "table-ignored": lambda: tr(
        "It read the blocks 0, 1, 2 …: the block table was not used. Logical block i "
        "is the physical block at `table_ptr + seq * width + i`."
    ),
    "tail-not-masked": lambda: tr(
        "All slots of the last block were counted, also those beyond `length`: "
        "somebody else's old tokens. Slot t of block i counts only if "
        "`i * BLOCK_SIZE + t < length`."
    ),
    "empty-slots-weighted": lambda: tr(
        "Slots beyond `length` were loaded as 0, but their scores are 0 too, and "
        "`exp(0)` is a weight like any other. Set those scores to `-inf`."
    ),
    "last-block-lost": lambda: tr(
        "The last block is missing. When it is full, `length % BLOCK_SIZE` is 0, and "
        "all of its slots count."
    ),
    "block-size-hard-coded": lambda: tr(
        "It counts with 16 tokens per block; use `BLOCK_SIZE`."
    ),
    "last-block-only": lambda: tr(
        "The result is that of the last block alone: m must become `m_new` at the end "
        "of the loop's body, and l and acc must keep what they had."
    ),
}


def name_kernel_flaw(
    p: Problem, tables: Array, row: int, out: Array, right: Array
) -> tuple[str, str] | None:
    """Return the code and the cause of the flaw that gives `out`, if there is one."""
    for code, wrong in _wrong_addresses(p, tables, row):
        if np.allclose(attend(wrong), out, rtol=1e-4, atol=1e-4):
            return code, KERNEL_CAUSES[code]()
    if np.allclose(attend(_zero_beyond(p), "tail-not-masked"), out, atol=1e-4):
        return "empty-slots-weighted", KERNEL_CAUSES["empty-slots-weighted"]()
    flaw = name_flaw(p, out, right)
    return (flaw, KERNEL_CAUSES[flaw]()) if flaw else None


def _wrong_addresses(
    p: Problem, tables: Array, row: int
) -> Iterator[tuple[str, Problem]]:
    entries, n = tables.ravel(), len(p.table)
    for code, start in (
        ("batch-row-ignored", 0),
        ("table-rows-packed", row * n),
        ("next-table-entry", row * tables.shape[1] + 1),
    ):
        table = [int(block) for block in entries[start : start + n]]
        if table != p.table and len(table) == n and min(table) >= 0:
            yield code, replace(p, table=table)
    num_blocks, size, n_kv_heads, head_dim = p.k.shape[1:]
    block, slot, head = np.indices((num_blocks, size, n_kv_heads))
    for code, row_of in ROWS.items():
        rows = row_of(block, slot, head, size, n_kv_heads).clip(
            max=num_blocks * size * n_kv_heads - 1
        )
        k, v = (cache.reshape(-1, head_dim)[rows][None] for cache in (p.k, p.v))
        yield code, replace(p, k=k, v=v)


def _zero_beyond(p: Problem) -> Problem:
    """Return `p` with zeros in the slots of its last block that hold no token."""
    k, v = p.k.copy(), p.v.copy()
    used = p.length - (len(p.table) - 1) * p.k.shape[2]
    k[:, p.table[-1], used:] = v[:, p.table[-1], used:] = 0
    return replace(p, k=k, v=v)
