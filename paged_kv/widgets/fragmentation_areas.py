"""Where the slots were over time, as stacked areas."""

from __future__ import annotations

from html import escape

from paged_kv.messages import tr
from paged_kv.widgets.fragmentation_run import Moment, Run

#: Classes of tokens, reservation, internal fragmentation and rounding up.
LOOKS = ("tok", "res", "int", "oth")
#: Steps of a curve that are drawn at most; more could not be told apart.
_POINTS = 110


def areas(run: Run, step: int, last: int) -> str:
    """Return the picture, with a line at `step`; all systems have the same axis.

    Not an SVG: its patterns are found by ids, and the first one on a page may be in a
    cell that is not shown.
    """
    stride = -(-last // _POINTS)
    steps = range(0, len(run.moments), max(1, stride))
    levels = [_levels(run.moments[k]) for k in steps]
    below = [0] * len(levels)
    parts = []
    for kind, layer in zip(LOOKS, zip(*levels, strict=True), strict=True):
        above = [b + n for b, n in zip(below, layer, strict=True)]
        if any(layer):
            outline = _outline(run, steps, below, above, last)
            parts.append(f'<i class="{kind}" style="clip-path:polygon({outline})"></i>')
        below = above
    done = _percent(len(run.moments) - 1, last)
    return (
        f'<div class="areas" aria-hidden="true">{"".join(parts)}'
        f'<i class="finish" style="left:{done}%"></i>'
        f'<i class="cursor" style="left:{_percent(step, last)}%"></i></div>'
        '<p class="axis" aria-hidden="true"><i data-t="0"></i>'
        f'<i data-t="{escape(tr("step"))}"></i><i data-t="{last}"></i></p>'
    )


def _levels(moment: Moment) -> tuple[int, int, int, int]:
    return (*moment.usage[:3], moment.rounding)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / max(whole, 1):.4g}"


def _outline(
    run: Run, steps: range, below: list[int], above: list[int], last: int
) -> str:
    """Return the corners between two curves: along the upper, back on the lower."""

    def corners(levels: list[int]) -> list[str]:
        return [
            f"{_percent(step, last)}% {_percent(run.num_slots - level, run.num_slots)}%"
            for step, level in zip(steps, levels, strict=True)
        ]

    return ",".join([*corners(above), *reversed(corners(below))])
