"""Throughput against batch as a line: the roofline of decode."""

from __future__ import annotations

import math
from html import escape

from paged_kv.messages import tr
from paged_kv.serving.report import number
from paged_kv.widgets.calculator_plan import Plan

_WIDTH, _HEIGHT = 820, 268
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 26, 36
_POINTS = 96
_BELOW = 27  # pixels from a mark to the lower edge of its label
_STACK = 20  # pixels from one label to the next below
_NAME = 150  # pixels that the name of a line needs


class _Axes:
    """From batch and tokens per second to pixels."""

    def __init__(self, plan: Plan) -> None:
        self.last = max(8, math.ceil(1.3 * max(plan.paged, plan.batch, plan.reserved)))
        self.top = 1.06 * plan.saturation

    def x(self, batch: float) -> float:
        return round(_LEFT + batch / self.last * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, rate: float) -> float:
        height = _HEIGHT - _TOP - _BOTTOM
        return round(_HEIGHT - _BOTTOM - rate / self.top * height, 1)


def curve(plan: Plan) -> str:
    """Return the picture; the table below it has the same numbers."""
    axes = _Axes(plan)
    note = tr("batch × bandwidth / (weights + batch × KV of one request)")
    caption = (
        f'<p class="cap"><b>{escape(tr("Tokens per second by batch"))}</b> '
        f"{escape(note)}</p>"
    )
    draws = (_grid, _limits, _lines, _markers)
    parts = [part for draw in draws for part in draw(plan, axes)]
    words = [part for part in parts if part.startswith("<b ")]
    shapes = "".join(part for part in parts if part not in words)
    # Only the style sheet gives the drawing a size: without its words it says nothing.
    return (
        f'{caption}<div class="roof" aria-hidden="true">'
        f'<svg width="0" height="0" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'aria-hidden="true">{shapes}</svg>{"".join(words)}</div>'
    )


def _text(x: float, y: float, words: str, kind: str = "", turn: float = 0) -> str:
    """Return words that end above `y`: from `x`, or "e" up to it, or "m" around it.

    Around it, "u" and "c" are the first and second line below `y`. Words keep their
    size where the picture shrinks.

    The style sheet writes them, not the SVG: where neither is shown, the table is, and
    not a heap of labels.
    """
    at = f"left:{100 * x / _WIDTH:.2f}%;top:{100 * y / _HEIGHT:.2f}%"
    if turn:
        at += f";rotate:{turn}deg"
    classes = f"t {kind}".strip()
    return f'<b class="{classes}" style="{at}" data-t="{escape(words)}"></b>'


def ticks(top: float, about: int = 5) -> list[float]:
    """Return round numbers from 0 up to `top`, about as many as asked for."""
    step = 10 ** math.floor(math.log10(top / about))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step * about >= top)
    return [i * step for i in range(int(top / step) + 1)]


def _grid(plan: Plan, axes: _Axes) -> list[str]:
    parts, bottom = [], _HEIGHT - _BOTTOM
    for rate in ticks(axes.top):
        y = axes.y(rate)
        parts.append(f'<path class="hr" d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>')
        parts.append(_text(_LEFT - 8, y + 8, number(rate), "e"))
    for batch in ticks(axes.last, 8):
        if batch == int(batch):
            parts.append(_text(axes.x(batch), bottom, number(batch), "u"))
    words = tr("requests decoded together (batch)")
    return [*parts, _text(_WIDTH / 2, bottom, words, "c")]


def _limits(plan: Plan, axes: _Axes) -> list[str]:
    """Return the two bounds, and the part of the plane that memory shuts off."""
    y, right = axes.y(plan.saturation), _WIDTH - _RIGHT
    limit = tr("limit {n}: bandwidth / KV of one request", n=number(plan.saturation))
    parts = [
        f'<path class="lim" d="M{_LEFT} {y}H{right}"/>',
        _text(right, y - 3, limit, "e"),
    ]
    if plan.weights:
        # Where the weights alone would take up all of the bandwidth.
        knee = plan.weights / plan.kv_per_request
        end = min(axes.last, knee)
        parts += _slope(axes, axes.x(end), axes.y(plan.saturation * end / knee))
    x, bottom = axes.x(plan.paged), _HEIGHT - _BOTTOM
    return [
        *parts,
        f'<path class="wall" d="M{x} {y}V{bottom}"/>',
        _text(x + 6, bottom - 3, tr("no memory for more")),
    ]


def _slope(axes: _Axes, x: float, y: float) -> list[str]:
    """Return the line from the origin to a point, with its name along it."""
    x0, y0 = axes.x(0), axes.y(0)
    line = f'<path class="lim" d="M{x0} {y0}L{x} {y}"/>'
    if math.hypot(x - x0, y - y0) < _NAME:
        return [line]
    angle = round(math.degrees(math.atan2(y - y0, x - x0)), 1)
    words = tr("limit by the weights")
    return [line, _text((x0 + x) / 2, (y0 + y) / 2, words, "m", angle)]


def _lines(plan: Plan, axes: _Axes) -> list[str]:
    """Return the curve, whole as far as memory reaches and dashed beyond."""

    def path(first: float, last: float, kind: str) -> str:
        points = []
        for i in range(_POINTS + 1):
            batch = first + (last - first) * i / _POINTS
            step = plan.weights + batch * plan.kv_per_request
            rate = plan.bandwidth * batch / step if step else 0.0
            points.append(f"{axes.x(batch)} {axes.y(rate)}")
        return f'<path class="{kind}" d="M{"L".join(points)}"/>'

    fits = [path(0, plan.paged, "fit")] if plan.paged else []
    return [*fits, path(plan.paged, axes.last, "not")]


def _markers(plan: Plan, axes: _Axes) -> list[str]:
    points = [
        (plan.reserved, "re", tr("reserved: {n}", n=number(plan.reserved))),
        (plan.batch, "ch", tr("chosen: {n}", n=number(plan.batch))),
        (plan.paged, "pa", tr("paged: {n}", n=number(plan.paged))),
    ]
    parts: list[str] = []
    below = 0.0
    for batch, kind, words in sorted(points, key=lambda point: point[0]):
        if not batch:
            continue
        rate = plan.throughput(batch)
        x, y = axes.x(batch), axes.y(rate)
        # Labels stand below the curve on the right; each below the one before it.
        label = y + _BELOW
        if below and below + _STACK - y < 60:
            label = max(label, below + _STACK)
        below = label
        parts += [
            {
                "re": f'<path class="re" d="M{x - 5} {y - 5}h10v10h-10z"/>',
                "ch": f'<path class="ch" d="M{x} {y - 7}l7 7l-7 7l-7 -7z"/>',
                "pa": f'<circle class="pa" cx="{x}" cy="{y}" r="5.5"/>',
            }[kind],
            _text(x + 8, label, f"{words} → {number(rate)}", "lb"),
        ]
    return parts
