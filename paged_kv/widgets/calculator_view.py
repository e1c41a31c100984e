"""The calculator's numbers as HTML: facts, memory, and the table under the curve."""

from __future__ import annotations

from html import escape

from paged_kv.messages import tr, trn
from paged_kv.serving.report import number, size
from paged_kv.spec import GB, GiB
from paged_kv.widgets.calculator_curve import curve
from paged_kv.widgets.calculator_plan import Plan

SHEET = "calculator.css"
#: More boxes than this would be thinner than their borders.
_BOXES = 128


def body(plan: Plan) -> str:
    """Return everything below the controls."""
    words = f'<div class="now"><p class="tx">{escape(sentence(plan))}</p></div>'
    return f"{_facts(plan)}{words}{_memory(plan)}{curve(plan)}{_rates(plan)}"


def plain(plan: Plan) -> str:
    """Return the same numbers as text."""
    lines = [f"{name}: {value} ({note})" for name, value, note in _numbers(plan)]
    lines += [f"{row[0]}: {', '.join(row[1:])}" for row in _rate_rows(plan)]
    return "\n".join([plan.spec.name, *lines, sentence(plan)])


def sentence(plan: Plan) -> str:
    """Return what the numbers come to, in one sentence."""
    if not plan.kv_memory:
        return tr(
            "Nothing is left for the cache: the weights take {weights} of {memory}.",
            weights=gigabytes(plan.weights),
            memory=gigabytes(plan.memory),
        )
    if not plan.paged:
        return tr("Not even one request of {n} tokens fits.", n=number(plan.context))
    if plan.batch > plan.paged:
        return trn(
            "A batch of {batch} does not fit: there is room for {n} request.",
            "A batch of {batch} does not fit: there is room for {n} requests.",
            plan.paged,
            batch=number(plan.batch),
        )
    if not plan.reserved:
        return tr("Reserved in full, not even one request fits.")
    return tr(
        "Paging makes the batch {batch} times as large, and throughput {rate} times: "
        "the weights are read once per step for all requests, but the KV of each.",
        batch=number(plan.paged / plan.reserved, 1),
        rate=number(plan.throughput(plan.paged) / plan.throughput(plan.reserved), 2),
    )


def gigabytes(n_bytes: float) -> str:
    """Return bytes in GB, powers of ten, as data sheets count them."""
    return tr("{n} GB", n=number(n_bytes / GB, 2))


def gibibytes(n_bytes: float) -> str:
    """Return bytes in GiB, powers of two."""
    return tr("{n} GiB", n=number(n_bytes / GiB, 2))


def duration(seconds: float) -> str:
    """Return a time in µs or ms."""
    if seconds < 1e-3:
        return tr("{n} µs", n=number(seconds * 1e6))
    return tr("{n} ms", n=number(seconds * 1e3, 2))


def rate(tokens_per_second: float) -> str:
    """Return tokens per second."""
    return tr("{n} tok/s", n=number(tokens_per_second))


def _numbers(plan: Plan) -> list[tuple[str, str, str]]:
    spec, block = plan.spec, plan.spec.block_size
    useful = gain = "–"
    if plan.reserved:
        percent = number(100 * plan.context / plan.max_len, 1)
        useful = tr("{percent}% of the slots used", percent=percent)
        gain = tr("{n} times as many", n=number(plan.paged / plan.reserved, 1))
    return [
        (
            tr("One token"),
            size(spec.bytes_per_token()),
            tr("{n} B", n=number(spec.bytes_per_token())),
        ),
        (
            trn("A block of {n} token", "A block of {n} tokens", block),
            size(spec.bytes_per_block()),
            tr("all layers, K and V") if spec.n_tensors == 2 else tr("all layers, MLA"),
        ),
        (tr("Fit, reserved"), number(plan.reserved), useful),
        (tr("Fit, paged"), number(plan.paged), gain),
        (
            tr("Reading one request's KV"),
            duration(spec.decode_seconds(plan.context, plan.bandwidth)),
            size(plan.kv_per_request),
        ),
        (
            tr("Batch of {n}", n=number(plan.batch)),
            rate(plan.throughput(plan.batch)),
            tr("{time} per step", time=duration(plan.step_seconds(plan.batch))),
        ),
    ]


def _facts(plan: Plan) -> str:
    items = (
        f"<div><dt>{escape(name)}</dt> <dd><b>{escape(value)}</b> "
        f"<span>{escape(note)}</span></dd></div>"
        for name, value, note in _numbers(plan)
    )
    return f'<dl class="facts">{"".join(items)}</dl>'


def _memory(plan: Plan) -> str:
    """Return where the device's memory goes: one row per part, bars on one scale."""
    before = plan.weights + plan.other
    each = [
        (tr("reserved"), plan.reserved, plan.max_len),
        (tr("paged"), plan.paged, plan.context),
    ]
    rows = [
        _memory_row(plan, tr("weights"), "b-w", 0, plan.weights),
        _memory_row(plan, tr("other things"), "b-o", plan.weights, plan.other),
        _memory_row(plan, tr("left for the cache"), "b-k", before, plan.kv_memory),
    ]
    for name, count, tokens in each:
        slots = plan.spec.blocks_for(tokens) * plan.spec.block_size
        taken = count * slots * plan.spec.bytes_per_token()
        words = tr(
            "{name}: {n} × {size}",
            name=name,
            n=number(count),
            size=size(slots * plan.spec.bytes_per_token()),
        )
        extra = f";--n:{max(count, 1)};--u:{plan.context / slots:.4f}"
        many = " many" if count > _BOXES else ""
        rows.append(_memory_row(plan, words, "bx" + many, before, taken, extra))
    heads = "".join(
        f'<th scope="col">{escape(text)}</th>'
        for text in (tr("GB"), tr("GiB"), tr("share"))
    )
    note = tr("{memory} = {binary}; blue is filled, hatched is empty",
              memory=gigabytes(plan.memory), binary=gibibytes(plan.memory))  # fmt: skip
    return (
        f'<table class="mem"><caption><b>{escape(tr("Memory of the device"))}</b> '
        f'{escape(note)}</caption><thead><tr><th scope="col">{escape(tr("part"))}</th>'
        f"<td></td>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _memory_row(
    plan: Plan, words: str, kind: str, start: float, n_bytes: float, extra: str = ""
) -> str:
    whole = max(plan.memory, plan.weights + plan.other)
    bar = f"--x:{start / whole:.4f};--w:{n_bytes / whole:.4f}{extra}"
    cells = (
        number(n_bytes / GB, 2),
        number(n_bytes / GiB, 2),
        tr("{n}%", n=number(100 * n_bytes / plan.memory, 1)),
    )
    return (
        f'<tr><th scope="row">{escape(words)}</th><td class="br"><i class="{kind}" '
        f'style="{bar}"></i></td>{_cells(cells)}</tr>'
    )


def _rate_rows(plan: Plan) -> list[tuple[str, ...]]:
    base = plan.throughput(plan.reserved)
    rows = []
    points = [
        ("reserved", plan.reserved),
        ("chosen", plan.batch),
        ("paged", plan.paged),
    ]
    names = {"reserved": tr("reserved"), "chosen": tr("chosen"), "paged": tr("paged")}
    for name, batch in sorted(points, key=lambda point: point[1]):
        words = names[name]
        if batch > plan.paged:
            words = tr("{name}, does not fit", name=words)
        if not batch:
            rows.append((words, "0", *["–"] * 5))
            continue
        step, got = plan.step_seconds(batch), plan.throughput(batch)
        rows.append(
            (
                words,
                number(batch),
                size(batch * plan.kv_per_request),
                duration(step),
                tr("{n}%", n=number(100 * plan.weights / plan.bandwidth / step, 1)),
                number(got),
                number(got / base, 2) if base else "–",
            )
        )
    limit = number(plan.saturation / base, 2) if base else "–"
    rows.append((tr("limit"), "∞", "∞", "–", "–", number(plan.saturation), limit))
    return rows


def _rates(plan: Plan) -> str:
    heads = (
        tr("requests together"),
        tr("batch"),
        tr("KV read"),
        tr("step"),
        tr("weights' share of it"),
        tr("tok/s"),
        tr("times reserved"),
    )
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{_cells(row[1:])}</tr>'
        for row in _rate_rows(plan)
    )
    return (
        f'<table class="num"><caption class="v">{escape(tr("Throughput by batch"))}'
        f"</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cells(texts: tuple[str, ...]) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in texts)
