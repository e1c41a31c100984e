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
    return (
        f'{caption}<svg class="roof" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'aria-hidden="true">{_grid(axes)}{_limits(plan, axes)}{_lines(plan, axes)}'
        f"{_markers(plan, axes)}</svg>"
    )


def ticks(top: float, about: int = 5) -> list[float]:
    """Return round numbers from 0 up to `top`, about as many as asked for."""
    step = 10 ** math.floor(math.log10(top / about))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step * about >= top)
    return [i * step for i in range(int(top / step) + 1)]


def _grid(axes: _Axes) -> str:
    parts = []
    for rate in ticks(axes.top):
        y = axes.y(rate)
        parts.append(
            f'<path class="hr" d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4}" class="e">{number(rate)}</text>'
        )
    for batch in ticks(axes.last, 8):
        if batch == int(batch):
            parts.append(
                f'<text x="{axes.x(batch)}" y="{_HEIGHT - 18}" class="m">'
                f"{number(batch)}</text>"
            )
    words = escape(tr("requests decoded together (batch)"))
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 3}" class="m">{words}</text>')
    return "".join(parts)


def _limits(plan: Plan, axes: _Axes) -> str:
    """Return the two bounds, and the part of the plane that memory shuts off."""
    y = axes.y(plan.saturation)
    limit = tr("limit {n}: bandwidth / KV of one request", n=number(plan.saturation))
    parts = [
        f'<path class="lim" d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>'
        f'<text x="{_WIDTH - _RIGHT}" y="{y - 6}" class="e">{escape(limit)}</text>'
    ]
    if plan.weights:
        # Where the weights alone would take up all of the bandwidth.
        knee = plan.weights / plan.kv_per_request
        end = min(axes.last, knee)
        rate = plan.saturation * end / knee
        parts.append(_slope(axes, axes.x(end), axes.y(rate)))
    x = axes.x(plan.paged)
    words = escape(tr("no memory for more"))
    parts.append(
        f'<path class="wall" d="M{x} {y}V{_HEIGHT - _BOTTOM}"/>'
        f'<text x="{x + 6}" y="{_HEIGHT - _BOTTOM - 8}">{words}</text>'
    )
    return "".join(parts)


def _slope(axes: _Axes, x: float, y: float) -> str:
    """Return the line from the origin to a point, with its name along it."""
    x0, y0 = axes.x(0), axes.y(0)
    line = f'<path class="lim" d="M{x0} {y0}L{x} {y}"/>'
    if math.hypot(x - x0, y - y0) < _NAME:
        return line
    angle = round(math.degrees(math.atan2(y - y0, x - x0)), 1)
    middle = f"translate({(x0 + x) / 2:.1f} {(y0 + y) / 2:.1f}) rotate({angle})"
    words = escape(tr("limit by the weights"))
    return f'{line}<text transform="{middle}" y="-6" class="m">{words}</text>'


def _lines(plan: Plan, axes: _Axes) -> str:
    """Return the curve, whole as far as memory reaches and dashed beyond."""

    def path(first: float, last: float, kind: str) -> str:
        points = []
        for i in range(_POINTS + 1):
            batch = first + (last - first) * i / _POINTS
            step = plan.weights + batch * plan.kv_per_request
            rate = plan.bandwidth * batch / step if step else 0.0
            points.append(f"{axes.x(batch)} {axes.y(rate)}")
        return f'<path class="{kind}" d="M{"L".join(points)}"/>'

    fits = path(0, plan.paged, "fit") if plan.paged else ""
    return fits + path(plan.paged, axes.last, "not")


def _markers(plan: Plan, axes: _Axes) -> str:
    points = [
        (plan.reserved, "re", tr("reserved: {n}", n=number(plan.reserved))),
        (plan.batch, "ch", tr("chosen: {n}", n=number(plan.batch))),
        (plan.paged, "pa", tr("paged: {n}", n=number(plan.paged))),
    ]
    parts, below = [], 0.0
    for batch, kind, words in sorted(points, key=lambda point: point[0]):
        if not batch:
            continue
        rate = plan.throughput(batch)
        x, y = axes.x(batch), axes.y(rate)
        # Labels stand below the curve on the right; each below the one before it.
        label = max(y + 22, below + 16) if below else y + 22
        label = label if below and label - y < 60 else y + 22
        below = label
        shape = {
            "re": f'<path class="re" d="M{x - 5} {y - 5}h10v10h-10z"/>',
            "ch": f'<path class="ch" d="M{x} {y - 7}l7 7l-7 7l-7 -7z"/>',
            "pa": f'<circle class="pa" cx="{x}" cy="{y}" r="5.5"/>',
        }[kind]
        text = escape(f"{words} → {number(rate)}")
        parts.append(f'{shape}<text x="{x + 8}" y="{label}" class="lb">{text}</text>')
    return "".join(parts)
