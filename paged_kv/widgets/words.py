"""One plain sentence for each step, in the language in use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paged_kv.messages import language, tr, trn
from paged_kv.widgets.facts import Facts, rising_runs

_MANY_RUNS = 4
NO_BREAK = "\N{NO-BREAK SPACE}"


def block_list(ids: NDArray[np.integer]) -> str:
    """Return ids for people: "0…30, 33"; a long list is cut."""
    runs = rising_runs(ids)
    shown = runs if len(runs) <= _MANY_RUNS else runs[: _MANY_RUNS - 1]
    parts = [_run(a, z) for a, z in shown]
    return ", ".join(parts) + (", …" if len(shown) < len(runs) else "")


def _run(first: int, last: int) -> str:
    if last - first < 2:
        return f"{first}" if first == last else f"{first}, {last}"
    return f"{first}…{last}"


def number(value: float, digits: int) -> str:
    """Return a number with at most `digits` decimals, marked as in the language."""
    text = f"{value:.{digits}f}"
    if digits:
        text = text.rstrip("0").rstrip(".")
    return text.replace(".", ",") if language() == "ru" else text


def operation(facts: Facts) -> str:
    """Return the step as a call: ``append ×3 req3``, ``fork sys→req0``."""
    event = facts.moment.event
    who = _actor(facts)
    if event.kind in ("start", "now"):
        return ""
    if event.child is not None:
        return f"{event.kind} {who}→{facts.moment.names[event.child]}"
    times = f" ×{event.count}" if event.count > 1 else ""
    return f"{event.kind}{times} {who}".rstrip()


def headline(facts: Facts) -> str:
    """Return what the step shows besides the operation, or an empty string."""
    if facts.moment.event.error:
        return tr("refused") if facts.moment.event.out_of_blocks else tr("failed")
    if copied := facts.moment.copied:
        return tr("copy-on-write {source}→{target}", source=copied[0], target=copied[1])
    return ""


def sentence(facts: Facts) -> str:
    """Return one sentence that says what happened at this step."""
    event = facts.moment.event
    if event.error:
        return _failure(facts)
    if event.kind in ("start", "now"):
        return _start(facts)
    if event.kind == "append" and event.actor is not None:
        return _append(facts)
    if event.child is not None:
        return _fork(facts)
    if event.kind == "free" and event.actor is not None:
        return _free(facts)
    if event.kind == "new":
        return tr("{seq} is new: its block table is empty.", seq=_actor(facts))
    return _other(facts)


def _actor(facts: Facts) -> str:
    return facts.moment.event.who(facts.moment.names)


def _start(facts: Facts) -> str:
    n, used = facts.num_blocks, facts.used
    if not used:
        return trn(
            "The pool is empty: its only block is free.",
            "The pool is empty: all {n} blocks are free.",
            n,
        )
    return trn(
        "{used} of {n} block is in use.",
        "{used} of {n} blocks are in use.",
        n,
        used=used,
    )


def _append(facts: Facts) -> str:
    event, size = facts.moment.event, facts.block_size
    seq, n = _actor(facts), event.count
    if copied := facts.moment.copied:
        return _copy(facts, seq, *copied)
    table = facts.moment.after.tables[event.actor or 0]
    if not len(table.blocks) or not table.length:
        return trn("{seq} takes {n} token.", "{seq} takes {n} tokens.", n, seq=seq)
    last = -(-table.length // size) - 1
    block = int(table.blocks[min(last, len(table.blocks) - 1)])
    filled = table.length - last * size
    fresh = np.flatnonzero(facts.written & (facts.moment.before.ref == 0))
    if not len(fresh):
        return trn(
            "{seq} writes {n} token into block {block}: {filled} of {size} slots are "
            "filled, no new block is needed.",
            "{seq} writes {n} tokens into block {block}: {filled} of {size} slots are "
            "filled, no new block is needed.",
            n,
            seq=seq,
            block=block,
            filled=filled,
            size=size,
        )
    empty = size - filled
    blocks = block_list(fresh)
    if len(fresh) == 1:
        start = trn(
            "{seq} writes {n} token and takes block {blocks} from the free list",
            "{seq} writes {n} tokens and takes block {blocks} from the free list",
            n,
            seq=seq,
            blocks=blocks,
        )
    else:
        start = trn(
            "{seq} writes {n} token and takes blocks {blocks} from the free list",
            "{seq} writes {n} tokens and takes blocks {blocks} from the free list",
            n,
            seq=seq,
            blocks=blocks,
        )
    if not empty:
        return tr("{start}; every slot is filled.", start=start)
    return trn(
        "{start}; {n} slot of block {block} stays empty.",
        "{start}; {n} slots of block {block} stay empty.",
        empty,
        start=start,
        block=block,
    )


def _copy(facts: Facts, seq: str, source: int, target: int) -> str:
    n = facts.num_blocks
    if not (0 <= source < n and 0 <= target < n):
        return tr(
            "{seq} replaces entry {source} of its table by {target}.",
            seq=seq,
            source=source,
            target=target,
        )
    was, now = int(facts.moment.before.ref[source]), int(facts.ref[source])
    if was < 2:
        return tr(
            "{seq} copies block {source} to block {target}, although nobody shares it.",
            seq=seq,
            source=source,
            target=target,
        )
    if was == now:
        return tr(
            "{seq} writes, but block {source} is shared by {was}: it is copied to "
            "block {target}. The count of {source} stays {was}.",
            seq=seq,
            source=source,
            target=target,
            was=was,
        )
    return tr(
        "{seq} writes, but block {source} is shared by {was}: it is copied to block "
        "{target}, and the count of {source} drops from {was} to {now}.",
        seq=seq,
        source=source,
        target=target,
        was=was,
        now=now,
    )


def _fork(facts: Facts) -> str:
    event, before = facts.moment.event, facts.moment.before.ref
    child = facts.moment.names[event.child or 0]
    grown = np.flatnonzero(facts.change > 0)
    values = {"child": child, "seq": _actor(facts), "blocks": block_list(grown)}
    if not len(grown):
        return tr(
            "{child} gets a copy of the block table of {seq}; no reference count "
            "grows.",
            **values,
        )
    counts = set(zip(before[grown].tolist(), facts.ref[grown].tolist(), strict=True))
    if len(counts) > 1:
        return tr(
            "{child} gets a copy of the block table of {seq}; no token is copied, the "
            "reference counts of {blocks} grow by one.",
            **values,
        )
    was, now = counts.pop()
    return tr(
        "{child} gets a copy of the block table of {seq}; no token is copied, the "
        "reference counts of {blocks} grow from {was} to {now}.",
        was=was,
        now=now,
        **values,
    )


def _free(facts: Facts) -> str:
    seq = _actor(facts)
    freed = np.flatnonzero(facts.freed)
    kept = np.flatnonzero((facts.change < 0) & ~facts.freed)
    if not len(freed) and not len(kept):
        return tr("{seq} is freed, and no reference count changes.", seq=seq)
    if not len(kept):
        return trn(
            "{seq} is freed: nobody else holds its block {blocks}, which is free now.",
            "{seq} is freed: nobody else holds its {n} blocks, {blocks}; they are free "
            "now.",
            len(freed),
            seq=seq,
            blocks=block_list(freed),
        )
    start = tr("{seq} is freed: each of its blocks loses one reference", seq=seq)
    if not len(freed):
        return tr("{start}; others hold them all, none becomes free.", start=start)
    return trn(
        "{start}; block {blocks} drops to 0 and is free, the others stay.",
        "{start}; blocks {blocks} drop to 0 and are free, the others stay.",
        len(freed),
        start=start,
        blocks=block_list(freed),
    )


def _other(facts: Facts) -> str:
    taken = np.flatnonzero((facts.moment.before.ref == 0) & (facts.ref > 0))
    freed = np.flatnonzero(facts.freed)
    up = np.flatnonzero((facts.change > 0) & (facts.moment.before.ref > 0))
    down = np.flatnonzero((facts.change < 0) & ~facts.freed)
    changes = (
        trn(
            "block {blocks} is taken from the free list",
            "blocks {blocks} are taken from the free list",
            len(taken),
            blocks=block_list(taken),
        ),
        trn(
            "block {blocks} is free again",
            "blocks {blocks} are free again",
            len(freed),
            blocks=block_list(freed),
        ),
        trn(
            "block {blocks} gains a reference",
            "blocks {blocks} gain a reference",
            len(up),
            blocks=block_list(up),
        ),
        trn(
            "block {blocks} loses a reference and stays in use",
            "blocks {blocks} lose a reference and stay in use",
            len(down),
            blocks=block_list(down),
        ),
    )
    met = zip((taken, freed, up, down), changes, strict=True)
    what = "; ".join(text for blocks, text in met if len(blocks))
    what = what or tr("no reference count changes")
    return tr("{operation}: {what}.", operation=operation(facts), what=what)


def _failure(facts: Facts) -> str:
    event, moment = facts.moment.event, facts.moment
    values = {"operation": operation(facts), "error": event.error.rstrip(".")}
    if event.out_of_blocks:
        start = tr("{operation} is impossible, the pool is full ({error}).", **values)
    else:
        start = tr("{operation} raised {error}.", **values)
    if moment.before.same_as(moment.after):
        return start + " " + tr("Nothing changed.")
    return start + " " + tr("And yet pool or tables changed: a failed step must not.")
