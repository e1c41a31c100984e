"""The block tables: a row for each sequence, a column for each logical block."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from paged_kv.messages import tr, trn
from paged_kv.widgets.blocks import block_class, id_ranges, owner_class, slots
from paged_kv.widgets.facts import Facts, rising_runs, slots_filled
from paged_kv.widgets.snapshot import IntArray, Table

MAX_ROWS = 12
# Width of the columns between name and last block, in chips of one block.
_ROOM = 12
_FOLD_ROOM = 4  # a folded run takes as much as so many chips
_FOLD_FROM = 4  # and is worth it from so many blocks on


@dataclass(frozen=True)
class Row:
    """One sequence or cache: `body` comes before the block that takes tokens next."""

    index: int
    table: Table
    body: IntArray
    rest: IntArray


def block_tables(facts: Facts, steady: bool) -> str:
    """Return the section with all block tables.

    `steady` leaves room for the sequences that a later step will bring.
    """
    rows = [_row(facts, i, table) for i, table in facts.live]
    shown, left_out = _choose(facts, rows)
    columns = _columns(facts, shown)
    parts = []
    everybody = len(facts.moment.names) <= MAX_ROWS
    by_index = {row.index: row for row in shown}
    for i in range(len(facts.moment.names)) if everybody else sorted(by_index):
        if i in by_index:
            parts.append(_table_row(facts, by_index[i], columns))
        elif i < len(facts.moment.after.tables):
            parts.append(_gone_row(facts, i, len(columns)))
        elif steady:
            blank = "<td></td>" * (len(columns) + 3)
            parts.append(f'<tr class="pad" aria-hidden="true">{blank}</tr>')
    if not facts.moment.names:
        parts.append(_note_row(tr("no sequences yet"), len(columns)))
    if left_out:
        parts.append(_rest_row(left_out, len(columns)))
    hint = tr("column: logical block · number in the cell: physical block")
    return (
        f'<table class="bt"><caption><b>{escape(tr("Block tables"))}</b> '
        f"<span>{escape(hint)}</span></caption>{_head(columns, shown)}"
        f"<tbody>{''.join(parts)}</tbody></table>"
    )


def _row(facts: Facts, index: int, table: Table) -> Row:
    last = len(table.blocks)
    if not table.cache:
        last = min(last, max(1, -(-table.length // facts.block_size))) - 1
    last = max(0, last)
    return Row(index, table, table.blocks[:last], table.blocks[last:])


def _choose(facts: Facts, rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows to show and those left out, those of this step first."""
    if len(rows) <= MAX_ROWS:
        return rows, []
    event = facts.moment.event
    ours = [row for row in rows if row.index in (event.actor, event.child)]
    others = [row for row in rows if row.index not in (event.actor, event.child)]
    shown = {row.index for row in [*ours, *others][: MAX_ROWS - 1]}
    return (
        [row for row in rows if row.index in shown],
        [row for row in rows if row.index not in shown],
    )


def _columns(facts: Facts, rows: list[Row]) -> list[tuple[int, int]]:
    """Return columns (first, last logical block), long even runs folded into one."""
    width = max((len(row.body) for row in rows), default=0)
    if width <= _ROOM:  # the empty column takes what is left of the width
        return [(i, i) for i in range(width)] + [(width, width - 1)]
    cuts = np.zeros(width + 1, bool)
    for row in rows:
        body = row.body
        look = _looks(facts, body)
        if len(body):
            cuts[1 : len(body)] |= (np.diff(body) != 1) | (np.diff(look) != 0)
            cuts[len(body)] = True
    starts = [0, *np.flatnonzero(cuts[1:width]) + 1, width]
    runs = [(int(a), int(b) - 1) for a, b in pairwise(starts)]
    if sum(map(_room, runs)) > _ROOM:  # too many pieces: the first three and the rest
        runs = [(0, 0), (1, 1), (2, 2), (3, width - 1)]
    columns: list[tuple[int, int]] = []
    spare = _ROOM - sum(map(_room, runs))
    for first, last in runs:
        if last - first + 1 < _FOLD_FROM:
            columns += [(i, i) for i in range(first, last + 1)]
        elif last - first > 8 and spare >= 5:  # both ends of a long run in full
            columns += [(i, i) for i in range(first, first + 3)]
            columns += [(first + 3, last - 2), (last - 1, last - 1), (last, last)]
            spare -= 5
        else:
            columns.append((first, last))
    return columns


def _looks(facts: Facts, ids: IntArray) -> NDArray[np.int64]:
    """Return equal numbers for blocks that look the same; impossible ids are −1."""
    inside = (ids >= 0) & (ids < facts.num_blocks)
    return np.where(inside, facts.looks[np.where(inside, ids, 0)], -1)


def _room(run: tuple[int, int]) -> int:
    length = run[1] - run[0] + 1
    return length if length < _FOLD_FROM else _FOLD_ROOM


def _head(columns: list[tuple[int, int]], rows: list[Row]) -> str:
    cols = "".join('<col class="c1">' if a == z else "<col>" for a, z in columns)
    cells = "".join(_column_head(a, z) for a, z in columns)
    ends = {len(row.body) for row in rows if not row.table.cache}
    # Equal lengths: the column has a number like the others.
    last = str(ends.pop()) if len(ends) == 1 else escape(tr("last block"))
    return (
        f'<colgroup><col class="cn"><col class="cl">{cols}<col class="ce"></colgroup>'
        f'<thead><tr><th scope="col">{escape(tr("sequence"))}</th>'
        f'<th scope="col" class="len">{escape(tr("tokens"))}</th>{cells}'
        f'<th scope="col" class="last">{last}</th></tr></thead>'
    )


def _column_head(first: int, last: int) -> str:
    if last < first:
        return "<td></td>"
    text = f"{first}" if first == last else f"{first} … {last}"
    return f'<th scope="col">{text}</th>'


def _name(facts: Facts, index: int, table: Table) -> str:
    event = facts.moment.event
    hot = " hot" if index == event.child else ""
    return (
        f'<th scope="row"><span class="nm {owner_class(index)}{hot}" '
        f'data-b="{id_ranges(table.blocks)}" tabindex="0" '
        f'title="{escape(table.name)}">{escape(table.name)}</span></th>'
    )


def _table_row(facts: Facts, row: Row, columns: list[tuple[int, int]]) -> str:
    table = row.table
    length = escape(tr("cache")) if table.cache else str(table.length)
    cells = "".join(_cell(facts, row.body[a : z + 1]) for a, z in columns)
    return (
        f"<tr>{_name(facts, row.index, table)}"
        f'<td class="len">{length}</td>{cells}{_last_cell(facts, row)}</tr>'
    )


def _cell(facts: Facts, ids: IntArray) -> str:
    if not len(ids):
        return "<td></td>"
    first, last = int(ids[0]), int(ids[-1])
    classes = block_class(facts, first)
    if len(ids) == 1:
        return f'<td><span class="c {classes}" data-b="{first}">{first}</span></td>'
    even = len(rising_runs(ids)) == 1
    text = f"{first} … {last}" if even else f"{first}, …, {last}"
    looks = _looks(facts, ids)
    if (looks != looks[0]).any():
        classes = "mx"
    blocks = escape(trn("{n} block", "{n} blocks", len(ids)))
    return (
        f'<td><span class="c run {classes}" data-b="{id_ranges(ids)}">{text} '
        f'<span class="cnt">{blocks}</span></span></td>'
    )


def _last_cell(facts: Facts, row: Row) -> str:
    """Return the cell of the block that takes the next tokens, with its slots."""
    if not len(row.rest):
        return '<td class="last"></td>'
    block = int(row.rest[0])
    filled = slots_filled(row.table, facts.block_size)[len(row.body)]
    ghost = ""
    copied = facts.moment.copied
    if copied and row.index == facts.moment.event.actor and copied[1] == block:
        ghost = (
            f'<span class="gh" data-b="{copied[0]}"><span class="v">'
            f"{escape(tr('copied from'))} </span><s>{copied[0]}</s> "
            '<i aria-hidden="true">→</i></span> '
        )
    ahead = ""
    if len(row.rest) > 1:
        words = trn("+{n} reserved", "+{n} reserved", len(row.rest) - 1)
        ahead = f' <span class="cnt">{escape(words)}</span>'
    return (
        f'<td class="last"><div>{ghost}<span class="c end {block_class(facts, block)}" '
        f'data-b="{block}"><b>{block}</b> {slots(int(filled), facts.block_size, "w")} '
        f'<span class="qt">{filled}/{facts.block_size}</span></span>{ahead}</div></td>'
    )


def _gone_row(facts: Facts, index: int, columns: int) -> str:
    name = escape(facts.moment.names[index])
    return (
        f'<tr class="gone"><th scope="row"><span class="nm {owner_class(index)}">{name}'
        f'</span></th><td class="len">–</td><td colspan="{columns + 1}" class="note">'
        f"{escape(tr('freed'))}</td></tr>"
    )


def _rest_row(rows: list[Row], columns: int) -> str:
    blocks = sum(len(row.table.blocks) for row in rows)
    text = trn("… and {n} more sequence", "… and {n} more sequences", len(rows))
    lists = trn("{n} table entry", "{n} table entries", blocks)
    return _note_row(f"{text}, {lists}", columns)


def _note_row(text: str, columns: int) -> str:
    return f'<tr><td colspan="{columns + 3}" class="note">{escape(text)}</td></tr>'
