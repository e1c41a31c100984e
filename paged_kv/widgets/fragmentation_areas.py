"""Where the slots were over time, as stacked areas."""

from __future__ import annotations

from html import escape

from paged_kv.messages import tr
from paged_kv.widgets.fragmentation_run import Moment, Run

_WIDTH, _HEIGHT, _FOOT = 256, 84, 14
#: Steps of a curve that are drawn at most; more could not be told apart.
_POINTS = 128
# Lines of each pattern, in a square of 6 × 6.
_LINES = {"r": "M0 6L6 0", "i": "M0 6L6 0M0 0L6 6", "o": "M2 3h1.6"}


def areas(run: Run, step: int, last: int) -> str:
    """Return the picture, with a line at `step`; all systems have the same axis."""
    stride = max(1, -(-last // _POINTS))
    steps = range(0, len(run.moments), stride)
    levels = [_levels(run.moments[k]) for k in steps]
    below = [0] * len(levels)
    parts = []
    for kind, layer in zip("trio", zip(*levels, strict=True), strict=True):
        above = [b + n for b, n in zip(below, layer, strict=True)]
        if any(layer):
            path = _path(run, steps, below, above, last)
            parts.append(f'<path class="{kind}" d="{path}"/>')
            if kind in _LINES:  # the second channel, over the colour
                parts.append(f'<path class="hatch {kind}" d="{path}"/>')
        below = above
    x = _x(step, last)
    done = _x(min(len(run.moments) - 1, last), last)
    frame = f'<path class="fr" d="M0 0H{_WIDTH}V{_HEIGHT}H0z"/>'
    if done < _WIDTH:
        parts.append(f'<path class="end" d="M{done} 0V{_HEIGHT}"/>')
    return (
        f'<svg class="areas" viewBox="0 0 {_WIDTH} {_HEIGHT + _FOOT}" '
        f'aria-hidden="true"><defs>{_patterns()}</defs>{frame}{"".join(parts)}'
        f'<path class="cur" d="M{x} -3V{_HEIGHT + 3}"/>'
        f'<text x="0" y="{_HEIGHT + 12}">0</text>'
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 12}" class="m">'
        f"{escape(tr('step'))}</text>"
        f'<text x="{_WIDTH}" y="{_HEIGHT + 12}" class="e">{last}</text></svg>'
    )


def _patterns() -> str:
    # Every picture brings the same ones: whichever a page takes is right.
    return "".join(
        f'<pattern id="pkv-areas-{kind}" width="6" height="6" '
        f'patternUnits="userSpaceOnUse"><path d="{lines}"/></pattern>'
        for kind, lines in _LINES.items()
    )


def _levels(moment: Moment) -> tuple[int, int, int, int]:
    return (*moment.usage[:3], moment.rounding)


def _x(step: int, last: int) -> float:
    return round(_WIDTH * step / max(last, 1), 1)


def _path(run: Run, steps: range, below: list[int], above: list[int], last: int) -> str:
    """Return the outline between two curves, there along the upper, back the lower."""

    def points(levels: list[int]) -> list[str]:
        scale = _HEIGHT / run.num_slots
        return [
            f"{_x(step, last):g} {_HEIGHT - level * scale:.1f}"
            for step, level in zip(steps, levels, strict=True)
        ]

    return f"M{'L'.join([*points(above), *reversed(points(below))])}z"
