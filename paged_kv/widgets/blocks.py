"""How one block looks, in the pool and in a table alike."""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from paged_kv.messages import tr
from paged_kv.widgets.facts import FREE, PRIVATE, Facts, rising_runs

#: Owner colours; a further owner repeats a colour with another mark.
COLOURS = 5
_MARKS = 3
#: Owners that a shared block can show as dashes.
DASHES = COLOURS * _MARKS
LOOKS = ("fr", "pr", "sh")


def owner_class(table: int) -> str:
    """Return the classes that carry an owner's colour, and mark beyond five owners."""
    mark = min(table // COLOURS, _MARKS - 1)
    return f"o{table % COLOURS}" + (f" g{mark}" if mark else "")


def block_class(facts: Facts, block: int) -> str:
    """Return the classes of one block: look, owner, touched at this step."""
    if not 0 <= block < facts.num_blocks:
        return "no"
    look = int(facts.look[block])
    classes = LOOKS[look]
    if look == PRIVATE and facts.owner[block] >= 0:
        classes += " " + owner_class(int(facts.owner[block]))
    elif look != FREE and facts.owner[block] < 0:
        classes += " lost"
    if facts.written[block] or facts.freed[block]:
        classes += " hot"
    if block in facts.marked:
        classes += " df"
    return classes


def id_ranges(ids: NDArray[np.integer]) -> str:
    """Return ids for `data-b`: "0-30 32"."""
    runs = rising_runs(ids)
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def slots(filled: int, block_size: int, kind: str = "") -> str:
    """Return the picture of a block's slots, with its text.

    `kind` is a class for the style sheet: "w" one wide row beside the same text, and
    so without text of its own; "whole" a bar without slots.
    """
    rows = 1 if block_size <= 8 or kind == "w" else 2
    if block_size > 32:
        kind, rows = f"{kind} whole", 1
    classes = f"f {kind} {'two' if rows == 2 else ''}".strip()
    text = "" if kind.startswith("w ") or kind == "w" else f"{filled}/{block_size}"
    across = -(-block_size // rows)
    return f'<span class="{classes}" style="--n:{filled};--a:{across}">{text}</span>'


def count_arrow(facts: Facts, block: int) -> str:
    """Return ↑ or ↓ when this step changed the count of a block that was in use."""
    change = int(facts.change[block])
    if change > 0 and facts.ref[block] == change:  # just handed out: marked as written
        return ""
    return "↑" if change > 0 else "↓" if change < 0 else ""


def count_pill(facts: Facts, block: int) -> str:
    """Return the reference count, marked when this step changed it."""
    arrow = count_arrow(facts, block)
    return (
        f'<span class="r{" ch" if arrow else ""}"><span class="v">'
        f"{escape(tr('count'))} </span>{arrow}{int(facts.ref[block])}</span>"
    )
