"""A recorded run: what happened, step by step, and the state after each step.

Steps are stored as differences, with a whole state every `CHECKPOINT` steps: a long run
stays small, and any step is reached by applying a few differences.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from paged_kv.widgets.snapshot import Books, IntArray, State, Table

CHECKPOINT = 64


@dataclass(frozen=True, slots=True)
class Event:
    """What was done.

    Attributes
    ----------
    kind : str
        "start", "append" (also extend and reserve), else the method's name: "fork",
        "truncate", "free", "allocate", "release", "evict", …
    actor : int or None
        Index of the table whose holder acted; None for the pool.
    count : int
        Tokens appended, otherwise how often it was done in a row.
    child : int or None
        Index of the table that a fork made.
    error : str
        "OutOfBlocks: needs 1 block …" when it raised, else empty.
    out_of_blocks : bool
        Whether it raised because the pool is full.
    asked_for : str
        Name of the sequence that a refused `admit` would have made.
    """

    kind: str
    actor: int | None = None
    count: int = 1
    child: int | None = None
    error: str = ""
    out_of_blocks: bool = False
    asked_for: str = ""

    def who(self, names: tuple[str, ...]) -> str:
        """Return whose step it is, by the names of all holders; "" for the pool."""
        if self.asked_for:
            return self.asked_for
        return "" if self.actor is None else names[self.actor]


@dataclass(frozen=True, slots=True)
class Step:
    """One event and the difference that it made.

    Attributes
    ----------
    event : Event
    blocks : slice or ndarray
        Blocks whose count changed,
    change : int or ndarray
        and by how much.
    tables : tuple of (int, Table)
        Tables that changed or appeared, as they are now.
    books : Books
    copied : (int, int) or None
        Copy-on-write: source and target block.
    """

    event: Event
    blocks: slice | NDArray[np.unsignedinteger]
    change: int | IntArray
    tables: tuple[tuple[int, Table], ...]
    books: Books
    copied: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Moment:
    """One step of a history, unpacked to be drawn.

    Attributes
    ----------
    index, total : int
        This step is number `index` of the steps 0 … `total` − 1.
    event : Event
    copied : (int, int) or None
        Copy-on-write: source and target block.
    before, after : State
        The same state for a picture that is no step of a run.
    names : tuple of str
        All holders of the whole run, also those that come later.
    widest : int
        The most blocks that the sequences of the run would take without sharing.
    """

    index: int
    total: int
    event: Event
    copied: tuple[int, int] | None
    before: State
    after: State
    names: tuple[str, ...]
    widest: int


class History:
    """The steps of a run, first of them the state in which it started.

    Parameters
    ----------
    start : State
    """

    def __init__(self, start: State) -> None:
        self._steps = [Step(Event("start"), slice(0), 0, (), start.books, None)]
        # checkpoint j is the state before step j · CHECKPOINT
        self._checkpoints = [start]
        self._before = self._now = start  # around the last step
        self._copies: list[int] = []
        self._widest = blocks_alone(start)

    def __len__(self) -> int:
        return len(self._steps)

    def step(self, index: int) -> Step:
        """Return what was done at a step; negative indices count from the end."""
        return self._steps[index]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all holders seen so far, in the order of `State.tables`."""
        return tuple(table.name for table in self._now.tables)

    def next_copy(self, index: int) -> int | None:
        """Return the first step after `index` that copied on write."""
        i = bisect_right(self._copies, index)
        return self._copies[i] if i < len(self._copies) else None

    def at(self, index: int) -> Moment:
        """Return a step with the states before and after it.

        Raises
        ------
        IndexError
            When there is no such step; negative indices count from the end.
        """
        total = len(self._steps)
        if not -total <= index < total:
            raise IndexError(f"step {index} is outside 0…{total - 1}")
        index %= total
        first = index - index % CHECKPOINT
        before = self._apply(self._checkpoints[first // CHECKPOINT], first, index)
        step = self._steps[index]
        after = self._apply(before, index, index + 1)
        return Moment(
            index,
            total,
            step.event,
            step.copied,
            before,
            after,
            self.names,
            self._widest,
        )

    def add(self, event: Event, after: State, fold: bool = True) -> None:
        """Add a step; with `fold` a run of appends of one sequence becomes one step."""
        last = self._steps[-1].event
        copied = _copy_on_write(event, self._now, after)
        same_run = fold and _same_run(last, event, after.same_as(self._now))
        if same_run and not copied:
            del self._steps[-1]
            copied = _copy_on_write(event, self._before, after)
            event = replace(event, count=last.count + event.count)
        else:
            self._before = self._now
            if copied:
                self._copies.append(len(self._steps))
            if len(self._steps) % CHECKPOINT == 0:
                self._checkpoints.append(self._before)
        blocks, change = _ref_difference(self._before.ref, after.ref)
        old = self._before.tables
        tables = tuple(
            (i, table)
            for i, table in enumerate(after.tables)
            if i >= len(old) or table is not old[i]
        )
        self._steps.append(Step(event, blocks, change, tables, after.books, copied))
        self._now = after
        self._widest = max(self._widest, blocks_alone(after))

    def _apply(self, state: State, start: int, stop: int) -> State:
        if start == stop:
            return state
        ref, tables = state.ref.copy(), list(state.tables)
        for step in self._steps[start:stop]:
            ref[step.blocks] += np.int32(step.change)
            for i, table in step.tables:
                tables[i : i + 1] = [table]
        return State(state.block_size, ref, tuple(tables), step.books)


def blocks_alone(state: State) -> int:
    """Return how many blocks the live sequences would take if nobody shared."""
    return sum(
        -(-table.length // state.block_size)
        for table in state.tables
        if table.live and not table.cache
    )


def _same_run(last: Event, event: Event, unchanged: bool) -> bool:
    if (last.kind, last.actor) != (event.kind, event.actor):
        return False
    if event.error:
        same = (last.error, last.asked_for) == (event.error, event.asked_for)
        return unchanged and same
    return event.kind == "append" and not last.error


def _copy_on_write(event: Event, old: State, new: State) -> tuple[int, int] | None:
    """Return (source, target) when an append put another block into the table."""
    if event.kind != "append" or event.actor is None or event.actor >= len(old.tables):
        return None
    was, now = old.tables[event.actor].blocks, new.tables[event.actor].blocks
    if was is now:
        return None
    both = min(len(was), len(now))
    differ = np.flatnonzero(was[:both] != now[:both])
    return (int(was[differ[0]]), int(now[differ[0]])) if len(differ) else None


def _ref_difference(
    old: IntArray, new: IntArray
) -> tuple[slice | NDArray[np.unsignedinteger], int | IntArray]:
    if old is new:
        return slice(0), 0
    where = np.flatnonzero(old != new)
    if not len(where):
        return slice(0), 0
    change = (new - old)[where]
    first, last = int(where[0]), int(where[-1])
    blocks: slice | NDArray[np.unsignedinteger] = slice(first, last + 1)
    if last - first + 1 != len(where):
        blocks = where.astype(np.min_scalar_type(len(old)))
    if (change == change[0]).all():
        return blocks, int(change[0])
    return blocks, change
