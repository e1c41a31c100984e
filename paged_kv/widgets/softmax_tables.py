"""The tables of the online-softmax stepper: scores and weights, state, sums."""

from __future__ import annotations

import math
from html import escape

import numpy as np
from numpy.typing import NDArray

from paged_kv.messages import tr
from paged_kv.serving.report import number
from paged_kv.widgets.softmax_trace import Reading, Trace

#: Components of the output that are shown; the differences count all of them.
COMPONENTS = 8
_CHART, _LABEL = 156, 16  # pixels: height of the scores, of a line of text


class View:
    """A run at one of its stops: a block, or the output after the last one.

    Parameters
    ----------
    reading : Reading
    index : int
        Block in logical order; ``len(reading.blocks)`` is the output.
    rescale, mask : bool
        As in `Reading.trace`.
    """

    def __init__(
        self, reading: Reading, index: int, rescale: bool = True, mask: bool = True
    ) -> None:
        self.reading, self.index = reading, index
        self.rescale, self.mask = rescale, mask
        self.right = reading.trace()
        self.trace = reading.trace(rescale, mask)
        self.error = reading.error(self.trace)
        self.at_output = index == len(reading.blocks)
        self.step = self.trace.steps[min(index, len(self.trace.steps) - 1)]
        self.right_step = self.right.steps[min(index, len(self.right.steps) - 1)]
        self.top, self.pixels = _scale(reading)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self.rescale and self.mask

    def y(self, score: float) -> float:
        """Return the distance of a score from the top of the chart, in pixels."""
        inside = min(max((self.top - score) * self.pixels, 0), _CHART)
        return round(inside, 1)


def fixed(value: float, digits: int = 2) -> str:
    """Return a number with exactly `digits` decimals and a real minus sign."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return number(round(value, digits) + 0.0, digits).replace("-", "−")


def factor_text(value: float) -> str:
    """Return a factor with three decimals; 0 and 1 as they are."""
    return number(value) if value in (0, 1) else fixed(value, 3)


def error_text(value: float) -> str:
    """Return an error for people; what is only rounding has no digits to compare."""
    return f"< {number(1e-6, 6)}" if value < 1e-6 else f"= {fixed(value)}"


def _scale(reading: Reading) -> tuple[float, float]:
    """Return the score at the top of the chart and pixels per unit of score."""
    scores = np.concatenate([block.scores for block in reading.blocks])
    # Stale slots may hold anything: what lies far away is cut off.
    valid = scores[: reading.length]
    low, high = min(float(valid.min()), 0.0), max(float(valid.max()), 0.0)
    reach = max(high - low, 1e-3)
    stale = scores[reading.length :]
    stale = stale[np.isfinite(stale)]
    if len(stale):
        low = max(min(low, float(stale.min())), low - reach)
        high = min(max(high, float(stale.max())), high + reach)
    room = (high - low) * _LABEL / (_CHART - 2 * _LABEL)
    top, bottom = high + room, low - room
    return top, _CHART / (top - bottom) if top > bottom else 1.0


def chart(view: View) -> str:
    """Return scores and weights of the block, as bars in the cells of a table."""
    step, size = view.step, view.reading.block_size
    valid, hidden = step.block.valid, size - step.read
    m, before = step.m, step.m_before
    top = int(np.argmax(step.block.scores[: step.read]))
    slots = "".join(f'<th scope="col">{j}</th>' for j in range(size))
    tokens = "".join(f"<td>{step.block.first + j}</td>" for j in range(valid))
    if valid < size:
        words = tr("no token: masked out") if hidden else tr("no token: stale data")
        tokens += f'<td colspan="{size - valid}" class="none">{escape(words)}</td>'
    scores = "".join(_score(view, j, j == top and m > before) for j in range(size))
    weights = "".join(_weight(view, j) for j in range(size))
    lines = f"--z:{view.y(0)}px"
    lines += f";--m:{view.y(m)}px" if math.isfinite(m) else ";--m:-9px"
    if math.isfinite(before) and before != m:
        lines += f";--m0:{view.y(before)}px"
    total = fixed(float(step.weights.sum()))
    calm = " calm" if view.at_output else ""
    many = " many" if size > 16 else ""
    caption = tr("scores of the query with the keys in this block")
    block = tr("Block {block}", block=step.block.physical)
    return (
        f'<table class="chart{calm}{many}"><caption><b>{escape(block)}</b> '
        f'{escape(caption)}</caption><colgroup><col class="names"><col span="{size}">'
        '<col class="ends"></colgroup><thead><tr><th scope="row">'
        f"{escape(tr('slot'))}</th>{slots}<td></td></tr></thead><tbody>"
        f'<tr class="tk"><th scope="row">{escape(tr("token"))}</th>{tokens}<td></td>'
        f'</tr><tr class="sr" style="{lines}"><th scope="row">{escape(tr("score"))}'
        f'<br><small>s = q·k · scale</small></th>{scores}<td class="tail">'
        f'{_line_labels(view)}</td></tr><tr class="wr"><th scope="row">'
        f"{escape(tr('weight'))}<br><small>w = exp(s − m)</small></th>{weights}"
        f'<td class="tail"><b>Σ = {total}</b></td></tr></tbody></table>'
    )


def _score(view: View, j: int, is_new_top: bool) -> str:
    step = view.step
    score = float(step.block.scores[j])
    masked = j >= step.read
    kinds = ["s"]
    if masked:
        kinds.append("mk")
    elif j >= step.block.valid:
        kinds.append("stale")
    if is_new_top and not view.at_output:
        kinds.append("top")
    text = "−∞" if masked else fixed(score, 1)
    zero = end = view.y(0)
    bar = ""
    if math.isfinite(score):
        end = view.y(score)
        top, height = min(zero, end), round(abs(end - zero), 1)
        bar = f'<i style="--t:{top}px;--h:{height}px"></i>'
    if masked and j == step.read:  # one hatched field behind all of them
        bar = f'<u style="--n:{len(step.weights) - j}"></u>{bar}'
    label = round(end - 15 if score > 0 else end + 1, 1)
    classes = " ".join(kinds)
    return f'<td class="{classes}">{bar}<b style="--t:{label}px">{text}</b></td>'


def _weight(view: View, j: int) -> str:
    step = view.step
    weight = float(step.weights[j])
    kind = "wt mk" if j >= step.read else "wt stale" if j >= step.block.valid else "wt"
    text = "0" if j >= step.read else fixed(weight)
    share = min(weight, 1.0) if math.isfinite(weight) else 0.0
    return f'<td class="{kind}" style="--p:{share:.3f}"><i></i><b>{text}</b></td>'


def _line_labels(view: View) -> str:
    m, before = view.step.m, view.step.m_before
    if not math.isfinite(m):
        return f'<b class="ml" style="--t:{view.y(0)}px">m = {fixed(m)}</b>'
    at = view.y(m)
    text = f'<b class="ml" style="--t:{at}px">m = {fixed(m)}</b>'
    if math.isfinite(before) and before != m:
        old = max(view.y(before), at + _LABEL)
        was = escape(tr("m was {m}", m=fixed(before)))
        text += f' <span class="ml" style="--t:{old}px">{was}</span>'
    return text


def state(view: View) -> str:
    """Return the running state after the block, and how each number came about."""
    step, right = view.step, view.right_step
    m, before = fixed(step.m), fixed(step.m_before)
    top = fixed(float(step.block.scores[: step.read].max()))
    total = fixed(float(step.weights.sum()))
    alpha = factor_text(step.alpha)
    applied = f"exp({before} − {m})".replace("− −", "+ ")
    hot = not view.at_output
    rows = [
        ("m", tr("running maximum"), f"max({before}, {top})", m,
         fixed(right.m), hot and step.m != step.m_before),
        ("α", tr("rescale factor"), applied, alpha, factor_text(right.alpha), hot),
        ("l", tr("running denominator"), f"{alpha} · {fixed(step.l_before)} + {total}",
         fixed(step.l), fixed(right.l), hot),
        ("acc", tr("accumulated output"), f"{alpha} · acc + Σ w·v", "↓", "↓", hot),
    ]  # fmt: skip
    cells = "".join(_state_row(*row) for row in rows)
    return (
        f'<table class="run"><caption><b>{escape(tr("Running state"))}</b> '
        f"{escape(tr('after this block'))}</caption><tbody>{cells}</tbody></table>"
    )


def _state_row(
    sign: str, words: str, formula: str, value: str, right: str, hot: bool
) -> str:
    note = ""
    if value != right:
        note = f' <small class="rt">{escape(tr("right: {value}", value=right))}</small>'
    mark = ' class="new"' if hot else ""
    return (
        f'<tr><th scope="row"{" class=long" if len(sign) > 1 else ""}>{sign}</th><td>'
        f"<span>{escape(words)}</span> <code>{escape(formula)}</code>{note}</td>"
        f'<td class="val"><span{mark}>{value}</span></td></tr>'
    )


def sums(view: View) -> str:
    """Return how the accumulated output grew, or in the end the output itself."""
    step, trace, reading = view.step, view.trace, view.reading
    alpha = factor_text(step.alpha)
    if view.at_output:
        caption = tr("Output")
        rows = [
            ("acc", "", step.acc, ""),
            (tr("output"), f"acc ÷ l = acc ÷ {fixed(step.l)}", trace.out, "res"),
            (tr("all tokens at once"), "softmax(q·K) · V", reading.truth, ""),
            (tr("difference"), f"max|diff| {error_text(view.error)}",
             trace.out - reading.truth, "dif"),
        ]  # fmt: skip
    else:
        caption = tr("Accumulated output")
        rows = [
            (tr("α · earlier acc"), f"α = {alpha}", step.scaled, ""),
            (tr("+ this block"), "Σ w·v", step.added, ""),
            ("= acc", "", step.acc, "res"),
        ]
        if not view.is_whole:
            rows.append((tr("right acc"), "", view.right_step.acc, "dif"))
    shown = min(COMPONENTS, len(trace.out))
    if shown < len(trace.out):
        note = tr("the first {n} of {total} components", n=shown, total=len(trace.out))
    else:
        note = tr("head size {n}, one cell per component", n=shown)
    largest = _largest(view.right, trace)
    heads = "".join(f'<th scope="col">{c}</th>' for c in range(shown))
    lines = "".join(_sum_row(*row, largest, shown) for row in rows)
    return (
        f'<table class="ht"><caption><b>{escape(caption)}</b> {escape(note)}</caption>'
        f'<colgroup><col class="hh"><col span="{shown}"></colgroup><thead><tr>'
        f'<th scope="row">{escape(tr("component"))}</th>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def _largest(*traces: Trace) -> float:
    values = [np.abs(step.acc).max() for trace in traces for step in trace.steps]
    return max((float(v) for v in values if np.isfinite(v)), default=0.0) or 1.0


def _sum_row(
    words: str,
    small: str,
    values: NDArray[np.float32],
    kind: str,
    largest: float,
    shown: int,
) -> str:
    cells = ""
    for value in map(float, values[:shown]):
        sign = "neg" if value < 0 else "pos"
        weight = min(1.0, abs(value) / largest) if math.isfinite(value) else 0.0
        cells += f'<td class="{sign}" style="--v:{weight:.2f}">{fixed(value)}</td>'
    more = f" <small>{escape(small)}</small>" if small else ""
    row = f' class="{kind}"' if kind else ""
    return f'<tr{row}><th scope="row">{escape(words)}{more}</th>{cells}</tr>'
