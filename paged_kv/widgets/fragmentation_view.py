"""Several systems side by side at one step, as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from paged_kv.messages import tr, trn
from paged_kv.serving.allocators import Span, Usage
from paged_kv.serving.report import number, system_name
from paged_kv.widgets.fragmentation_areas import LOOKS, areas
from paged_kv.widgets.fragmentation_run import Moment, Run

SHEET = "fragmentation.css"
#: Rows of a map, and the least slots in one of them.
_ROWS, _LEAST = 16, 16
_WIDTH = 190  # pixels of the narrowest map


def name() -> str:
    """Return the title."""
    return tr("Fragmentation, system by system")


def lead(runs: Sequence[Run]) -> str:
    """Return the sentence beside the title."""
    return tr(
        "{n} requests arrive at the same steps everywhere; each system has {slots} "
        "slots.",
        n=number(len(runs[0].result.workload)),
        slots=number(runs[0].num_slots),
    )


def last_step(runs: Sequence[Run]) -> int:
    """Return the step at which the slowest system is done."""
    return max(len(run.moments) for run in runs) - 1


def body(runs: Sequence[Run], step: int) -> str:
    """Return everything below the controls."""
    last = last_step(runs)
    words = tr("Step {step} / {last}", step=number(step), last=number(last))
    columns = "".join(_column(run, step, last) for run in runs)
    return (
        f'<div class="now"><p><span class="st">{escape(words)}</span> '
        f'<span class="tx">{escape(_sentence(runs, step))}</span></p></div>'
        f'<div class="systems" style="--systems:{len(runs)}">{columns}</div>'
        f"{_legend()}{_now(runs, step)}{_means(runs)}{_places(runs, step)}"
    )


def plain(runs: Sequence[Run], step: int) -> str:
    """Return the same numbers as text."""
    lines = [lead(runs), tr("Step {step} / {last}", step=step, last=last_step(runs))]
    for run in runs:
        moment = run.at(step)
        shares = ", ".join(
            f"{kind} {share}"
            for kind, share in zip(_kinds(), _percent(run, moment), strict=True)
        )
        lines.append(f"{system_name(run.name)}: {shares}; {_status(run, step)}")
    return "\n".join(lines)


def _kinds() -> tuple[str, str, str, str]:
    return (
        tr("tokens"),
        tr("reservation"),
        tr("internal fragmentation"),
        tr("external and other"),
    )


def _percent(run: Run, moment: Moment) -> list[str]:
    shares = (100 * slots / run.num_slots for slots in moment.usage)
    return [tr("{n}%", n=number(share, 1)) for share in shares]


def _sentence(runs: Sequence[Run], step: int) -> str:
    parts = [f"{system_name(run.name)} {run.at(step).running}" for run in runs]
    return tr("Requests that run now: {systems}.", systems=", ".join(parts))


def _status(run: Run, step: int) -> str:
    """Return who runs and waits, in a few words."""
    moment = run.at(step)
    if step >= len(run.moments) - 1:
        return tr("all done at step {step}", step=number(len(run.moments) - 2))
    words = tr("{run} run, {wait} wait", run=moment.running, wait=moment.waiting)
    if moment.preemptions:
        words += ", " + trn(
            "{n} preemption so far", "{n} preemptions so far", moment.preemptions
        )
    return words


def _why_some_wait(run: Run, moment: Moment) -> str:
    refusal = moment.refusal
    if refusal is None:
        # Requests that came during the step: the system has not been asked yet.
        if moment.waiting:
            return tr("Just arrived: room is asked for at the next step.")
        return ""
    if run.block_size:
        return tr(
            "Request {request} waits: {free} of {n} blocks are free.",
            request=refusal.request,
            free=refusal.free // run.block_size,
            n=run.num_slots // run.block_size,
        )
    if refusal.is_external:
        return tr(
            "Request {request} needs {needed} slots in one piece. {free} are free, but "
            "the largest piece has {largest}: external fragmentation.",
            **refusal._asdict(),
        )
    return tr(
        "Request {request} needs {needed} slots in one piece; {free} are free.",
        request=refusal.request,
        needed=refusal.needed,
        free=refusal.free,
    )


def _how(run: Run) -> str:
    if run.block_size:
        return tr("blocks of {n} as tokens come", n=run.block_size)
    return {
        "Orca (Max)": tr("{n} slots for everyone", n=run.max_len),
        "Orca (Pow2)": tr("powers of two, from a buddy allocator"),
        "Orca (Oracle)": tr("the true length, from a buddy allocator"),
    }[run.name]


def _column(run: Run, step: int, last: int) -> str:
    moment = run.at(step)
    why = _why_some_wait(run, moment)
    mark = " ext" if moment.refusal and moment.refusal.is_external else ""
    return (
        f'<section aria-label="{escape(system_name(run.name))}"><p class="sys">'
        f"<b>{escape(system_name(run.name))}</b> <span>{escape(_how(run))}</span></p>"
        f'{_map(run, moment)}<p class="run"><b>{escape(_status(run, step))}</b></p>'
        f'<p class="why{mark}">{escape(why)}</p>{areas(run, step, last)}</section>'
    )


def _map(run: Run, moment: Moment) -> str:
    """Return the memory, row by row from slot 0 on; the table below says the same."""
    across = max(_LEAST, -(-run.num_slots // _ROWS))
    rows = -(-run.num_slots // across)
    pieces = "".join(_span(span, across) for span in moment.spans)
    return (
        f'<div class="memory" style="--rows:{rows};--across:{across}" '
        f'aria-hidden="true">{pieces}</div>'
    )


def _span(span: Span, across: int) -> str:
    parts, start = [], span.start
    sizes = (span.tokens, span.reservation, span.internal)
    for kind, slots in zip(LOOKS, (*sizes, span.slots - sum(sizes)), strict=True):
        stop = start + slots
        while start < stop:  # row by row
            row, column = divmod(start, across)
            width = min(stop - start, across - column)
            first, label = start == span.start, str(span.request)
            edge = " a" if first else ""
            said = ""
            if first and width * _WIDTH >= across * (len(label) * 7 + 4):
                said = f' data-t="{label}"'  # by the style sheet, see the table below
            parts.append(
                f'<i class="{kind}{edge}"{said} style="--r:{row};--c:{column};'
                f'--n:{width}"></i>'
            )
            start += width
    return "".join(parts)


def _legend() -> str:
    looks = [*zip(LOOKS[:3], _kinds()[:3], strict=True)]
    looks += [(LOOKS[3], tr("rounding up")), ("free", tr("free"))]
    items = "".join(
        f'<li><i class="sw {kind}" aria-hidden="true"></i>{escape(text)}</li>'
        for kind, text in looks
    )
    note = tr("rounding up and what is free are “external and other”")
    return f'<ul class="legend">{items}<li>{escape(note)}</li></ul>'


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(text)}</td>" for text in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<table class="num"><caption>{caption}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def _now(runs: Sequence[Run], step: int) -> str:
    rows = []
    for run in runs:
        moment = run.at(step)
        counts = (number(moment.running), number(moment.waiting))
        rows.append([system_name(run.name), *_percent(run, moment), *counts])
    heads = [tr("system"), *_kinds(), tr("run"), tr("wait")]
    caption = tr("Slots at step {step}", step=number(step))
    return _table(f"<b>{escape(caption)}</b>", heads, rows)


def _means(runs: Sequence[Run]) -> str:
    rows = []
    for run in runs:
        shares = [
            tr("{n}%", n=number(100 * run.result.shares[kind], 1))
            for kind in Usage._fields
        ]
        batch = number(run.result.mean_batch, 1)
        done = number(run.result.seconds)
        rows.append([system_name(run.name), *shares, batch, done])
    heads = [tr("system"), *_kinds(), tr("mean batch"), tr("last step")]
    note = tr("over the steps at which a request waited")
    caption = f"<b>{escape(tr('Mean of all steps'))}</b> {escape(note)}"
    return _table(caption, heads, rows)


def _places(runs: Sequence[Run], step: int) -> str:
    """Return the maps as a table, folded away."""
    rows = []
    for run in runs:
        spans: dict[int, list[Span]] = {}
        for span in run.at(step).spans:
            spans.setdefault(span.request, []).append(span)
        for request, held in spans.items():
            counts = (sum(part) for part in zip(*(s[3:] for s in held), strict=True))
            rows.append(
                [
                    system_name(run.name),
                    number(request),
                    _where(run, held),
                    *(number(count) for count in counts),
                ]
            )
    heads = [tr("system"), tr("request"), tr("where"), *_kinds()[:3]]
    summary = escape(tr("Which slots each request has"))
    caption = f'<span class="v">{summary}</span>'
    return (
        f'<details class="places"><summary>{summary}</summary>'
        f"{_table(caption, heads, rows)}</details>"
    )


def _where(run: Run, held: Sequence[Span]) -> str:
    if run.block_size:
        ids = [span.start // run.block_size for span in held]
        blocks = ", ".join(map(str, ids[:6])) + (", …" if len(ids) > 6 else "")
        return trn("block {blocks}", "blocks {blocks}", len(ids), blocks=blocks)
    first, last = held[0].start, held[0].start + held[0].slots - 1
    return tr("slots {first}…{last}", first=first, last=last)
