"""What does not add up in a pool: in a picture the student sees it at once."""

from __future__ import annotations

import numpy as np

from paged_kv.messages import tr, trn
from paged_kv.widgets.facts import Facts
from paged_kv.widgets.words import block_list

_SHOWN = 3


def wrong_blocks(facts: Facts) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which blocks are listed by more tables than they have references."""
    return facts.listed > facts.ref


def audit(facts: Facts) -> list[str]:
    """Return what contradicts the rules of a pool, in words; empty when all is well.

    A count *above* the number of tables is not among it: somebody who is not in the
    picture may hold the block. `unexplained` names those.
    """
    found = [*_counts(facts), *_tables(facts), *_writes(facts), *_books(facts)]
    if len(found) > _SHOWN:
        rest = len(found) - _SHOWN
        more = trn("… and {n} more", "… and {n} more of the kind", rest)
        found = [*found[:_SHOWN], more]
    return found


def unexplained(facts: Facts) -> str:
    """Return a note on references that no table in the picture explains."""
    blocks = np.flatnonzero(facts.ref > facts.listed)
    if not len(blocks):
        return ""
    return trn(
        "Block {blocks} has more references than the tables here list: someone who "
        "is not in the picture holds it, or it has leaked.",
        "Blocks {blocks} have more references than the tables here list: someone who "
        "is not in the picture holds them, or they have leaked.",
        len(blocks),
        blocks=block_list(blocks),
    )


def _counts(facts: Facts) -> list[str]:
    return [
        trn(
            "Block {block}: count {count}, but {n} table lists it.",
            "Block {block}: count {count}, but {n} tables list it.",
            int(facts.listed[block]),
            block=block,
            count=int(facts.ref[block]),
        )
        for block in np.flatnonzero(wrong_blocks(facts)).tolist()
    ]


def _tables(facts: Facts) -> list[str]:
    found = []
    for _, table in facts.live:
        outside = table.blocks[(table.blocks < 0) | (table.blocks >= facts.num_blocks)]
        if len(outside):
            found.append(
                tr(
                    "{seq} lists {block}, which is no block of the pool.",
                    seq=table.name,
                    block=int(outside[0]),
                )
            )
        needed = -(-table.length // facts.block_size)
        if not table.cache and len(table.blocks) < needed:
            found.append(
                trn(
                    "{seq} holds {tokens} tokens, which need {needed} blocks; its "
                    "table has {n} entry.",
                    "{seq} holds {tokens} tokens, which need {needed} blocks; its "
                    "table has {n} entries.",
                    len(table.blocks),
                    seq=table.name,
                    tokens=table.length,
                    needed=needed,
                )
            )
    return found


def _writes(facts: Facts) -> list[str]:
    """Find writes into blocks that others read, and tables changed by others."""
    event, before = facts.moment.event, facts.moment.before
    if event.kind != "append" or event.actor is None:
        return []
    found = [
        tr(
            "Block {block} was written although {n} tables share it.",
            block=block,
            n=int(facts.listed[block]),
        )
        for block in np.flatnonzero(facts.written & (facts.listed > 1)).tolist()
    ]
    for i, table in enumerate(facts.moment.after.tables[: len(before.tables)]):
        if i != event.actor and table.blocks is not before.tables[i].blocks:
            found.append(
                tr(
                    "The table of {other} changed too: do the two share one list?",
                    other=table.name,
                )
            )
    return found


def _books(facts: Facts) -> list[str]:
    books = facts.moment.after.books
    claims = (("used", books.used, facts.used), ("free", books.free, facts.free))
    return [
        trn(
            "pool.{name} is {claim}, but by the counts it is {n} block.",
            "pool.{name} is {claim}, but by the counts it is {n} blocks.",
            count,
            name=name,
            claim=claim,
        )
        for name, claim, count in claims
        if claim is not None and claim != count
    ]
