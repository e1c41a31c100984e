"""The steps around one step, as a line with stops."""

from __future__ import annotations

from html import escape
from itertools import groupby

import numpy as np

from paged_kv.messages import tr
from paged_kv.widgets.history import History, Step
from paged_kv.widgets.words import block_list

STOPS = 11


def window(total: int, index: int) -> range:
    """Return the steps that the line shows: `index` in the middle where it can be."""
    first = max(0, min(index - STOPS // 2, total - STOPS))
    return range(first, min(total, first + STOPS))


def timeline(history: History, index: int) -> str:
    """Return the line of steps around `index`, in words and as stops."""
    shown = window(len(history), index)
    verbs = [_verb(history.step(k)) for k in shown]
    spans, start = [], 1
    for verb, group in groupby(verbs):
        stop = start + len(list(group))
        # Too long for its place: the call alone; the stops show the copies.
        fits = len(verb) <= 9 * (stop - start)
        text = escape(verb if fits else verb.partition(" ")[0])
        if verb:
            # Each stop says it again, where the style sheet does not write it.
            place = f"grid-column:{start}/{stop}"
            spans.append(f'<span style="{place}" data-t="{text}"></span>')
        start = stop
    stops = "".join(
        _stop(history, k, index, verb) for k, verb in zip(shown, verbs, strict=True)
    )
    cut = " cut" if shown[0] > 0 else ""
    cut += " cutr" if shown[-1] < len(history) - 1 else ""
    return (
        f'<div class="tl" style="--stops:{len(shown)}">'
        f'<div class="ph" aria-hidden="true">{"".join(spans)}</div>'
        f'<ol class="stops{cut}" aria-label="{escape(tr("Timeline"))}" '
        f'start="{shown[0]}" style="--k:{index - shown[0]}">{stops}</ol></div>'
    )


def _verb(step: Step) -> str:
    if step.event.kind == "start":
        return ""
    if step.event.error:
        failed = tr("refused") if step.event.out_of_blocks else tr("failed")
        return f"{step.event.kind} {failed}"
    return f"append + {tr('copy-on-write')}" if step.copied else step.event.kind


def _stop(history: History, k: int, index: int, verb: str) -> str:
    state = ' class="on" aria-current="step"' if k == index else ""
    if k < index:
        state = ' class="done"'
    one, two = _object(history, k)
    said = f'<span class="v">{escape(verb)} </span>' if verb else ""
    return (
        f'<li{state} data-k="{k}">{said}<span>{escape(one)}</span> '
        f"<span>{escape(two)}</span></li>"
    )


def _object(history: History, k: int) -> tuple[str, str]:
    """Return the two short lines below a stop: who, and what."""
    step = history.step(k)
    event = step.event
    if event.kind == "start":
        return tr("start"), ""
    who = event.who(history.names) or tr("pool")
    if event.child is not None:
        return who, f"→{history.names[event.child]}"
    if step.copied:
        return who, f"{step.copied[0]}→{step.copied[1]}"
    if event.error:
        return who, "✕"
    if event.count > 1 or event.kind == "append":
        return who, f"×{event.count}"
    if event.actor is None:
        ids = step.blocks
        if isinstance(ids, slice):
            ids = np.arange(ids.start or 0, ids.stop, dtype=np.uint32)
        return who, block_list(ids)
    return who, ""
