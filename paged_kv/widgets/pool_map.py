"""The physical pool: every block while there is room, a map of runs beyond."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from paged_kv.messages import tr, trn
from paged_kv.widgets.blocks import DASHES, block_class, count_arrow, count_pill, slots
from paged_kv.widgets.facts import FREE, PRIVATE, SHARED, Facts

# Pixels of a letter in a map, and of the whole map: what a field has room for.
_LETTER, _WIDTH = 6.2, 900


@dataclass(frozen=True)
class Density:
    """How the pool is drawn.

    Attributes
    ----------
    name : str
        Class of the table.
    columns : int
        Blocks in a row.
    pitch : int
        Height of a row with its gap, in pixels, as in the style sheet.
    """

    name: str
    columns: int
    pitch: int


#: Largest pool → how it is drawn.
DENSITIES = {
    128: Density("cells", 16, 72),
    384: Density("small", 32, 44),
    1024: Density("map", 64, 22),
    8192: Density("map fine", 128, 17),
}
_FINEST = Density("map fine", 256, 17)


def density(num_blocks: int) -> Density:
    """Return how a pool of that size is drawn."""
    for size, found in DENSITIES.items():
        if num_blocks <= size:
            return Density(found.name, min(found.columns, num_blocks), found.pitch)
    return _FINEST


def pool_map(facts: Facts) -> str:
    """Return the section with all physical blocks."""
    how = density(facts.num_blocks)
    if how.name.startswith("map"):
        cut = _map_cuts(facts)
        heads = [strip.first for strip in _strips(cut, how.columns)]
        rows = _map_rows(facts, how, cut)
        hint = tr("a row has {n} blocks; equal neighbours are one field", n=how.columns)
    else:
        heads = list(range(0, facts.num_blocks, how.columns))
        rows = _cell_rows(facts, how)
        hint = tr("in a cell: number, reference count, filled slots, owners")
    return (
        f'<div class="pool {how.name}">'
        f"<table><caption><b>{escape(tr('Physical blocks'))}</b> "
        f'<span class="hint">{escape(hint)}</span></caption>'
        f'<colgroup><col class="z"><col span="{how.columns}"></colgroup>'
        f"<tbody>{''.join(rows)}</tbody></table>{_arrow(facts, how, heads)}</div>"
    )


def _row_head(facts: Facts, first: int, stop: int) -> str:
    words = tr("blocks {first} to {last}", first="|", last=stop - 1)
    before, after = (escape(part) for part in words.split("|"))
    return (
        f'<th scope="row"><span class="v">{before}</span>{first}'
        f'<span class="v">{after}</span></th>'
    )


def _cell_rows(facts: Facts, how: Density) -> list[str]:
    cell = _cell if how.name == "cells" else _small_cell
    rows = []
    for first in range(0, facts.num_blocks, how.columns):
        stop = min(first + how.columns, facts.num_blocks)
        cells = "".join(cell(facts, block) for block in range(first, stop))
        rows.append(f"<tr>{_row_head(facts, first, stop)}{cells}</tr>")
    return rows


def _open_cell(facts: Facts, block: int) -> str:
    touched = tr("written") if facts.written[block] else ""
    if facts.freed[block]:
        touched = tr("freed now")
    said = f'<span class="v">{escape(touched)}</span> ' if touched else ""
    return (
        f'<td><div class="b {block_class(facts, block)}" data-b="{block}"'
        f"{_tab_stop(block)}><b>{block}</b> {said}"
    )


def _cell(facts: Facts, block: int) -> str:
    start = _open_cell(facts, block)
    if facts.look[block] == FREE:
        pill = count_pill(facts, block) + " " if facts.freed[block] else ""
        return f'{start}{pill}<span class="v">{escape(tr("free"))}</span></div></td>'
    fill = slots(int(facts.fill[block]), facts.block_size)
    return (
        f"{start}{count_pill(facts, block)} {fill} {_owners(facts, block)}</div></td>"
    )


def _owners(facts: Facts, block: int) -> str:
    owners = facts.owners[block]
    names = [escape(facts.moment.names[i]) for i in owners]
    if not owners:
        return f'<span class="ow">{escape(tr("nobody"))}</span>'
    if len(owners) == 1 and facts.look[block] == PRIVATE:
        return f'<span class="ow">{names[0]}</span>'
    if max(owners) >= DASHES:
        words = trn("{n} owner", "{n} owners", len(owners))
        return f'<span class="ow">{escape(words)}</span>'
    dashes = " ".join(f"p{i}" for i in owners)
    return f'<span class="op {dashes}">{", ".join(names)}</span>'


def _small_cell(facts: Facts, block: int) -> str:
    start = _open_cell(facts, block)
    if facts.look[block] == FREE:
        return f'{start}<span class="v">{escape(tr("free"))}</span></div></td>'
    owners = ", ".join(escape(facts.moment.names[i]) for i in facts.owners[block])
    fill = slots(int(facts.fill[block]), facts.block_size, "whole")
    return (
        f"{start}{count_pill(facts, block)} {fill} "
        f'<span class="v">{owners or escape(tr("nobody"))}</span></div></td>'
    )


@dataclass(frozen=True)
class _Strip:
    """Rows of a map that are one field throughout, drawn as one row, or one row."""

    first: int
    stop: int


def _strips(cut: NDArray[np.bool_], columns: int) -> list[_Strip]:
    """Return the rows of a map; `cut[b]` says that block b + 1 looks different."""
    n = len(cut) + 1
    strips: list[_Strip] = []
    even = False
    for first in range(0, n, columns):
        stop = min(first + columns, n)
        if even and not cut[first - 1 : stop - 1].any():
            strips[-1] = _Strip(strips[-1].first, stop)
        else:
            strips.append(_Strip(first, stop))
            even = not cut[first : stop - 1].any()
    return strips


def _map_cuts(facts: Facts) -> NDArray[np.bool_]:
    taken = facts.look != FREE
    keys = np.stack(
        [
            facts.looks,
            np.where(taken, facts.fill, 0),
            np.where(taken, facts.ref, 0),
            np.sign(facts.change),
        ]
    )
    cut: NDArray[np.bool_] = (np.diff(keys, axis=1) != 0).any(axis=0)
    return cut


def _map_rows(facts: Facts, how: Density, cut: NDArray[np.bool_]) -> list[str]:
    """Return rows in which neighbours that look the same are one field."""
    rows = []
    for strip in _strips(cut, how.columns):
        starts = np.flatnonzero(cut[strip.first : strip.stop - 1]) + strip.first + 1
        edges = [strip.first, *starts.tolist(), strip.stop]
        fields = "".join(_field(facts, how, a, z) for a, z in pairwise(edges))
        rows.append(f"<tr>{_row_head(facts, strip.first, strip.stop)}{fields}</tr>")
    return rows


def _field(facts: Facts, how: Density, first: int, stop: int) -> str:
    """Return one run of equal blocks."""
    size = stop - first
    across = min(size, how.columns)
    which = f"{first}" if size == 1 else f"{first}-{stop - 1}"
    classes = block_class(facts, first)
    look, fill = int(facts.look[first]), int(facts.fill[first])
    arrow = count_arrow(facts, first)
    if look == FREE:
        words = tr("free")
    elif facts.owner[first] < 0:
        words = tr("nobody")
    elif look == PRIVATE:
        words = facts.moment.names[facts.owner[first]]
    else:
        words = tr("shared")
    if look == SHARED or arrow:
        words += f" {arrow}{int(facts.ref[first])}"
    style = f"--s:{across}" if across > 1 else ""
    if look != FREE and fill < facts.block_size:
        words += f" {fill}/{facts.block_size}"
        style += f";--n:{fill / facts.block_size:.2g}"
    if size > how.columns:
        words += ", " + trn("{n} block", "{n} blocks", size)
    # Seen where it fits; a reader of the screen gets it everywhere.
    fits = len(words) * _LETTER <= across * _WIDTH / how.columns - 8
    classes += (" ch" if arrow else "") + ("" if fits else " mute")
    rest = (f' style="{style}"' if style else "") + _tab_stop(first)
    # One element a field: a browser's time goes with their number.
    return (
        f'<td class="b {classes}"{_span(across)} data-b="{which}"{rest}>'
        f"{escape(words)}</td>"
    )


def _span(columns: int) -> str:
    return f' colspan="{columns}"' if columns > 1 else ""


def _tab_stop(block: int) -> str:
    return ' tabindex="0"' if block == 0 else ""


def _arrow(facts: Facts, how: Density, heads: list[int]) -> str:
    """Return the arrow of a copy-on-write, through the gaps between rows.

    Heights are in rows: the gap above row r is at r.
    """
    copied = facts.moment.copied
    if not copied or not all(0 <= block < facts.num_blocks for block in copied):
        return ""
    (r1, c1), (r2, c2) = (
        (bisect_right(heads, block) - 1, block % how.columns) for block in copied
    )
    up = r2 < r1
    start = r1 if r2 <= r1 else r1 + 1
    end = r2 + 1 if up else r2
    x1, x2 = c1 + 0.5, c2 + 0.5
    side = c2 if c1 >= c2 else c2 + 1
    path = f"M{x1} {start + (0.1 if start == r1 else -0.1)}V{start}"
    path += f"H{x2}" if start == end else f"H{side}V{end}H{x2}"
    rows = len(heads)
    return (
        '<svg class="cow" width="0" height="0" preserveAspectRatio="none" '
        f'viewBox="0 0 {how.columns} {rows}" style="--h:{rows * how.pitch}px" '
        f'aria-hidden="true"><path d="{path}"/></svg>'
        f'<i class="tip{" up" if up else ""}" aria-hidden="true" '
        f'style="left:calc(var(--th) + (100% - var(--th))*{x2 / how.columns:.4g});'
        f'bottom:{(rows - end) * how.pitch}px"></i>'
    )
