"""A step as HTML: the one renderer of widget, static cell and stored notebook."""

from __future__ import annotations

from html import escape

import numpy as np

from paged_kv.messages import tr, trn
from paged_kv.spec import KVCacheSpec, MiB
from paged_kv.widgets.audit import audit, unexplained
from paged_kv.widgets.blocks import slots
from paged_kv.widgets.facts import Facts
from paged_kv.widgets.history import Event, History, Moment
from paged_kv.widgets.page import Picture, page, title
from paged_kv.widgets.pool_map import pool_map
from paged_kv.widgets.snapshot import Reader, is_cache, is_sequence
from paged_kv.widgets.tables import block_tables
from paged_kv.widgets.timeline import timeline
from paged_kv.widgets.words import NO_BREAK, headline, number, operation, sentence

SHEET = "explorer.css"


def draw(
    pool_or_history: object,
    *sequences: object,
    step: int = -1,
    model: str | KVCacheSpec = "llama-3-8b",
    lead: str = "",
    name: str | None = None,
) -> Picture:
    """Return a still picture of a pool as it is now, or of one step of a history.

    Parameters
    ----------
    pool_or_history : BlockPool or History
        The student's pool or ours.
    *sequences : Sequence
        Whose tables to show, with a pool; caches with `held_blocks()` too.
    step : int
        Which step of a history; the last one by default.
    model : str or KVCacheSpec
        The model for the MiB: a name that `KVCacheSpec.preset` knows, or a spec.
    lead : str
        One sentence beside the title.
    name : str, optional
        Another title.

    Returns
    -------
    Picture
        Shows in a notebook as HTML and elsewhere as text, in the language in use.

    Raises
    ------
    TypeError
        For something that is neither a pool nor a history, or no sequence.
    IndexError
        When the history has no such step.
    ValueError
        For an unknown model.
    """
    spec = model_spec(model)
    if isinstance(pool_or_history, History):
        history = pool_or_history
        facts = Facts(history.at(step))
    else:
        history = None
        facts = Facts(_now(pool_or_history, sequences))

    def html() -> str:
        line = timeline(history, facts.moment.index) if history else ""
        head = header(facts, spec, lead, name) + line + what(facts)
        label = name or tr("Block explorer")
        return page(head + body(facts) + legend(facts), label, SHEET)

    return Picture(html, lambda: plain(facts, spec))


def model_spec(model: str | KVCacheSpec) -> KVCacheSpec:
    """Return the spec of a model given by name or as a spec."""
    return KVCacheSpec.preset(model) if isinstance(model, str) else model


def header(
    facts: Facts, spec: KVCacheSpec, lead: str = "", name: str | None = None
) -> str:
    """Return title, totals and the bars below them."""
    if not lead:
        pool = trn("A pool of {n} block", "A pool of {n} blocks", facts.num_blocks)
        each = trn("with {n} slot", "with {n} slots each", facts.block_size)
        lead = f"{pool} {each}."
    name = name or tr("Block explorer")
    return f"{title(name, lead)}{totals(facts, spec)}{_bars(facts)}"


def what(facts: Facts) -> str:
    """Return the line that says what happened at this step."""
    moment = facts.moment
    more = headline(facts)
    call = operation(facts)
    parts = []
    if moment.total > 1:
        words = tr("Step {step} / {last}", step=moment.index, last=moment.total - 1)
        parts.append(f'<span class="st">{escape(words)}</span>')
    if call:
        parts.append(f"<code>{escape(call)}</code>")
    if more:
        parts.append(f'<span class="cw">{escape(more)}</span>')
    first = " ".join(parts) + " <br>" if parts else ""
    notes = "".join(f"<li>{escape(text)}</li>" for text in audit(facts))
    if notes:
        words = escape(tr("This does not add up:"))
        notes = f'<div class="bad"><p><b>{words}</b></p><ul>{notes}</ul></div>'
    if note := unexplained(facts):
        notes += f'<p class="hint">{escape(note)}</p>'
    return (
        f'<div class="now"><p>{first}<span class="tx">{escape(sentence(facts))}</span>'
        f"</p>{notes}</div>"
    )


def body(facts: Facts, steady: bool = False) -> str:
    """Return block tables and pool; `steady` keeps the height over all steps."""
    return f'<div class="wide">{block_tables(facts, steady)}{pool_map(facts)}</div>'


def totals(facts: Facts, spec: KVCacheSpec) -> str:
    """Return used, free, peak, saved and wasted, in blocks and MiB."""
    size = facts.block_size
    per_block = spec.bytes_per_token() * size
    sequences = sum(not table.cache for _, table in facts.live)
    peak = tr(", at most {n}", n=facts.peak) if facts.peak is not None else ""
    over = tr(": would not fit") if facts.alone > facts.num_blocks else ""
    share = 100 * facts.waste / facts.slots if facts.slots else 0
    percent = f"{number(share, 1)}{NO_BREAK}%"
    model = tr(
        "{model}, {size} a block", model=spec.name or tr("model"), size=_mib(per_block)
    )
    blocks = trn("block", "blocks", facts.saved)
    items = [
        ("b-u", tr("Used"), facts.used, f"/ {facts.num_blocks}",
         _mib(facts.used * per_block) + peak),
        ("b-f", tr("Free"), facts.free, "", _mib(facts.free * per_block)),
        ("b-a", tr("Without sharing"), facts.alone, "",
         trn("{n} sequence", "{n} sequences", sequences) + over),
        ("", tr("Saved"), facts.saved,
         f"{blocks} = {_mib(facts.saved * per_block)}", model),
        ("", tr("Empty slots"), facts.waste, "",
         tr("of {n}: {percent}", n=facts.slots, percent=percent)),
    ]  # fmt: skip
    return '<dl class="met">' + "".join(_total(*item) for item in items) + "</dl>"


def _total(key: str, name: str, value: int, unit: str, note: str) -> str:
    mark = f'<i class="key {key}" aria-hidden="true"></i>' if key else ""
    small = f" <small>{escape(unit)}</small>" if unit else ""
    return (
        f"<div><dt>{mark}{escape(name)}</dt> <dd><b>{value}{small}</b> "
        f"<span>{escape(note)}</span></dd></div>"
    )


def _mib(n_bytes: float) -> str:
    return f"{number(n_bytes / MiB, 2)}{NO_BREAK}{tr('MiB')}"


def _bars(facts: Facts) -> str:
    """Return the pool as a bar, and above what it would be without sharing."""
    n = facts.num_blocks
    unit = 1 / max(n, facts.moment.widest, facts.alone)
    label = trn("pool: {n} block", "pool: {n} blocks", n)
    pool = _bar("b-u", facts.used * unit) + _bar("b-f", facts.free * unit)
    alone = _bar("b-a", facts.alone * unit)
    # The style sheet writes the labels: without it there is no bar to label.
    told = f' data-t="{facts.alone}"' if alone else ""
    return (
        f'<div class="bar" aria-hidden="true"><div data-t="{escape(label)}">{pool}'
        f"</div><div{told}>{alone}</div></div>"
    )


def _bar(kind: str, share: float) -> str:
    return f'<i class="{kind}" style="--w:{share:.4g}"></i>' if share else ""


def legend(facts: Facts) -> str:
    """Return how to read a block, folded away until somebody asks."""
    size = facts.block_size
    filled = -(-size * 7 // 16)
    looks = [
        ("fr", "", tr("free")),
        ("pr o2", "", tr("private: one owner")),
        ("sh", "", tr("shared: several owners")),
        ("hot", "", tr("written or freed at this step")),
        ("rf", "↓4", tr("only the count changed")),
    ]
    swatches = "".join(
        f'<li><span class="k {look}" aria-hidden="true">{sign}</span>'
        f"{escape(text)}</li>"
        for look, sign, text in looks
    )
    parts = [
        tr("block number"),
        tr("reference count: how many tables point here"),
        trn(
            "{n} slot: {filled} filled, {empty} empty",
            "{n} slots: {filled} filled, {empty} empty",
            size,
            filled=filled,
            empty=size - filled,
        ),
        tr("owner; a shared block has a dash for each owner"),
    ]
    notes = "".join(f"<li>{escape(text)}</li>" for text in parts)
    return (
        f'<details class="how"><summary>{escape(tr("How to read a block"))}</summary>'
        '<div><div class="an"><div class="big b pr o2" aria-hidden="true"><b>33</b> '
        f'<span class="r">1</span> {slots(filled, size)} <span class="ow">req1</span>'
        f'</div><ul>{notes}</ul></div><ul class="leg">{swatches}</ul></div></details>'
    )


def plain(facts: Facts, spec: KVCacheSpec) -> str:
    """Return the step as text, for a terminal or where HTML is not shown."""
    saved = facts.saved * spec.bytes_per_token() * facts.block_size
    summary = tr(
        "used {used} of {n}, free {free}, without sharing {alone}, saved {saved} = "
        "{mib}, empty slots {waste}",
        used=facts.used,
        n=facts.num_blocks,
        free=facts.free,
        alone=facts.alone,
        saved=facts.saved,
        mib=_mib(saved),
        waste=facts.waste,
    )
    return "\n".join([*plain_state(facts), summary])


def plain_state(facts: Facts) -> list[str]:
    """Return what happened, all tables and what does not add up, line by line."""
    lines = [" ".join(filter(None, [operation(facts), headline(facts)]))]
    lines.append(sentence(facts))
    for _, table in facts.live:
        ids = np.array2string(table.blocks, separator=", ", threshold=16)
        lines.append(f"{table.name} ({table.length}): {ids}")
    return list(filter(None, [*lines, *audit(facts)]))


def _now(pool: object, sequences: tuple[object, ...]) -> Moment:
    for thing in sequences:
        if not is_sequence(thing) and not is_cache(thing):
            raise TypeError(f"cannot draw {thing!r}: it is no sequence and no cache")
    state = Reader(pool).read(list(sequences))
    names = tuple(table.name for table in state.tables)
    return Moment(0, 1, Event("now"), None, state, state, names, 0)
