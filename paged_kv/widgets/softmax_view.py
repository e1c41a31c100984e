"""One step of an online softmax as HTML."""

from __future__ import annotations

import math
from html import escape

from paged_kv.messages import tr, trn
from paged_kv.widgets.page import title
from paged_kv.widgets.softmax_tables import (
    COMPONENTS,
    View,
    chart,
    error_text,
    fixed,
    state,
    sums,
)
from paged_kv.widgets.softmax_trace import Reading, Step
from paged_kv.widgets.words import NO_BREAK

SHEET = "softmax.css"
#: Stops of the timeline that fit side by side, the output among them.
STOPS = 5


def header(view: View) -> str:
    """Return title and timeline."""
    return title(name(), _lead(view.reading)) + _timeline(view)


def body(view: View) -> str:
    """Return everything below the timeline."""
    halves = f'<div class="halves"><div>{chart(view)}{state(view)}</div></div>'
    return f"{_what(view)}{halves}{sums(view)}{_legend()}"


def name() -> str:
    """Return the title."""
    return tr("Online-softmax stepper")


def plain(view: View) -> str:
    """Return the whole run as text."""
    lines = [f"{name()}. {_lead(view.reading)}"]
    for step in view.trace.steps:
        lines.append(
            f"{_event(step)}: m = {fixed(step.m)}, α = {fixed(step.alpha, 3)}, "
            f"l = {fixed(step.l)}"
        )
    shown = ", ".join(fixed(float(x)) for x in view.trace.out[:COMPONENTS])
    more = ", …" if len(view.trace.out) > COMPONENTS else ""
    lines.append(f"acc / l = {shown}{more}")
    return "\n".join([*lines, f"max|diff| {error_text(view.error)}"])


def _lead(reading: Reading) -> str:
    n = len(reading.blocks)
    tokens = trn(
        "One query reads {n} token", "One query reads {n} tokens", reading.length
    )
    where = trn(
        "in {n} physical block, one block at a time.",
        "in {n} physical blocks, one block at a time.",
        n,
    )
    return f"{tokens} {where}"


def _timeline(view: View) -> str:
    total = len(view.reading.blocks) + 1
    first = max(0, min(view.index - STOPS // 2, total - STOPS))
    shown = range(first, min(total, first + STOPS))
    cut = " cut" if first else ""
    cut += " cutr" if shown[-1] < total - 1 else ""
    stops = "".join(_stop(view, k) for k in shown)
    return (
        f'<ol class="path{cut}" aria-label="{escape(tr("Blocks in reading order"))}" '
        f'start="{first}" style="--stops:{len(shown)};--k:{view.index - first}">'
        f"{stops}</ol>"
    )


def _stop(view: View, k: int) -> str:
    mark = ' class="on" aria-current="step"' if k == view.index else ""
    if k < view.index:
        mark = ' class="done"'
    more = ""
    if k == len(view.reading.blocks):
        chip = '<span class="blk fin">acc ÷ l</span>'
        label = tr("output")
    else:
        block = view.reading.blocks[k]
        size = view.reading.block_size
        chip = (
            f'<span class="blk"><b>{block.physical}</b> <span class="slots" '
            f'style="--n:{block.valid};--a:{size}"></span></span>'
        )
        label = tr("logical {k} → physical {block}", k=k, block=block.physical)
        if block.valid < size:
            more = tr("{n} of {size} slots valid", n=block.valid, size=size)
    lines = f'<span class="lb">{escape(label)}</span>'
    if more:
        lines += f' <span class="lb">{escape(more)}</span>'
    return f'<li{mark} data-k="{k}">{chip} {lines}</li>'


def _event(step: Step) -> str:
    first, last = step.block.first, step.block.first + step.block.valid - 1
    block = step.block.physical
    if first == last:
        return tr("block {block}: token {token}", block=block, token=first)
    return tr(
        "block {block}: tokens {first}…{last}", block=block, first=first, last=last
    )


def _what(view: View) -> str:
    words = tr(
        "Step {step} / {last}", step=view.index + 1, last=len(view.trace.steps) + 1
    )
    event = tr("divide by l") if view.at_output else _event(view.step)
    text = _sentence(view)
    broken = "" if view.is_whole else f'<p class="warn">{_broken(view)}</p>'
    return (
        f'<div class="now"><p><span class="st">{escape(words)}</span> '
        f'<span class="cw">{escape(event)}</span> <br>'
        f'<span class="tx">{escape(text)}</span></p>{broken}</div>'
    )


def _sentence(view: View) -> str:
    step = view.step
    if view.at_output:
        if view.error < 1e-6:
            return tr(
                "All blocks are read: acc divided by l is the output, the same as "
                "softmax over all {n} tokens at once.",
                n=view.reading.length,
            )
        return tr("All blocks are read, and acc divided by l is not the true output.")
    parts = []
    stale = len(step.block.scores) - step.block.valid
    if stale:
        slots = f"{step.block.valid}…{len(step.block.scores) - 1}"
        if stale == 1:
            slots = str(step.block.valid)
        if step.read == step.block.valid:
            text = tr("Slots {slots} hold no token and are masked out.", slots=slots)
        else:
            text = tr("Slots {slots} hold stale data, and it is read.", slots=slots)
        parts.append(text)
    m, alpha = fixed(step.m), fixed(step.factor, 3)
    if math.isnan(step.m):
        parts.append(tr("A NaN among them makes every number NaN."))
    elif not step.block.first:
        parts.append(
            tr(
                "The largest score becomes m = {m}; there is nothing to rescale yet.",
                m=m,
            )
        )
    elif step.factor == 1:
        parts.append(
            tr(
                "No score is above m = {m}: α = 1, the earlier sums stay as they are.",
                m=m,
            )
        )
    elif view.rescale:
        parts.append(
            tr(
                "The new maximum {m} scales the earlier sums by α = {alpha}.",
                m=m,
                alpha=alpha,
            )
        )
    else:
        parts.append(
            tr(
                "The new maximum {m} asks for α = {alpha}, but the earlier sums are "
                "left as they were.",
                m=m,
                alpha=alpha,
            )
        )
    return " ".join(parts).replace(" = ", f"{NO_BREAK}={NO_BREAK}")


def _broken(view: View) -> str:
    if not view.rescale and not view.mask:
        what = tr("Without rescaling and without the mask")
    else:
        what = tr("Without the mask") if view.rescale else tr("Without rescaling")
    if view.error < 1e-6:
        return escape(tr("{what} this output happens to stay right.", what=what))
    text = tr("{what} the output is wrong: max|diff|", what=what)
    return f"{escape(text)} <b>{escape(error_text(view.error))}</b>"


def _legend() -> str:
    items = [
        ("v1", tr("valid slot")),
        ("v2", tr("slot without a token: its old content")),
        ("v3", tr("changed at this step")),
        ("v4", tr("negative component")),
        ("v5", tr("positive component")),
    ]
    rows = "".join(
        f'<li><span class="sw {kind}" aria-hidden="true"></span>{escape(text)}</li>'
        for kind, text in items
    )
    return f'<ul class="legend">{rows}</ul>'
