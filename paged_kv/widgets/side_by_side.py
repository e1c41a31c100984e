"""One run of operations on two pairs of classes, and where they first differ.

Block ids are compared up to renaming: which free block comes next is nobody's business.
What counts is how long the tables are, which of their entries are the same block, how
often each block is counted, and what the slots hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paged_kv.messages import tr
from paged_kv.widgets.history import Moment
from paged_kv.widgets.record import Recording, record
from paged_kv.widgets.snapshot import NOT_A_BLOCK, State, Table

NUM_BLOCKS, BLOCK_SIZE = 8, 4
Operation = tuple[str | int, ...]


@dataclass
class Side:
    """One pair of classes at work.

    Parameters
    ----------
    pool_class, sequence_class : type
    """

    pool_class: Any
    sequence_class: Any
    things: dict[str, Any] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)
    tokens: dict[str, list[float]] = field(default_factory=dict)
    written: int = 0

    def __post_init__(self) -> None:
        self.pool = self.pool_class(NUM_BLOCKS, 2, 1, 1, block_size=BLOCK_SIZE)
        self.recording: Recording = record(self.pool)

    def do(self, operation: Operation) -> None:
        """Do one operation; what it raises becomes a step like everything else.

        Raises
        ------
        NotImplementedError
            From a stub.
        """
        kind, name = str(operation[0]), str(operation[1])
        recording = self.recording
        recording.split()
        before = len(recording)
        actor = self.things.get(name) if kind in ("append", "fork", "free") else None
        error: Exception | None = None
        try:
            self._call(kind, name, operation[2:])
        except NotImplementedError:
            raise
        except Exception as raised:
            error = raised
        if len(recording) == before:  # nothing changed, or nobody saw it fail
            recording.note(kind, actor, error)

    def _call(self, kind: str, name: str, rest: tuple[str | int, ...]) -> None:
        pool, things = self.pool, self.things
        if kind == "allocate":
            things[name] = pool.allocate()
            self.held[name] = 1
        elif kind == "release":
            pool.release(things[name])
            self.held[name] -= 1
        elif kind == "share":
            pool.ref[things[name]] += 1
            self.held[name] += 1
        elif kind == "new":
            things[name] = self.sequence_class(pool, name)
            self.tokens[name] = []
            self.recording.follow(things[name])
        elif kind == "append":
            for _ in range(int(rest[0])):
                self.written += 1
                value = np.full((2, 1, 1), self.written, np.float32)
                things[name].append(value, -value)
                self.tokens[name].append(self.written)
        elif kind == "fork":
            child = str(rest[0])
            things[child] = things[name].fork(child)
            self.tokens[child] = list(self.tokens[name])
        elif kind == "free":
            things[name].free()
            del self.tokens[name]
        else:
            raise ValueError(f"unknown operation {kind!r}")

    @property
    def moment(self) -> Moment:
        """The last step."""
        return self.recording.at(-1)

    def tables(self) -> list[Table]:
        """Return the tables of the live sequences, and single blocks as tables."""
        blocks = [
            Table(name, np.array([_block_id(self.things[name])]), 0, cache=True)
            for name, count in self.held.items()
            if count > 0
        ]
        return [*blocks, *(t for t in self.moment.after.tables if t.live)]

    def damaged(self) -> tuple[str, int, int] | None:
        """Return (sequence, token, block) of the first slot with other contents."""
        for table in self.moment.after.tables:
            for t, value in enumerate(self.tokens.get(table.name, [])):
                if t // BLOCK_SIZE >= len(table.blocks):
                    break
                block = int(table.blocks[t // BLOCK_SIZE])
                if not 0 <= block < NUM_BLOCKS:
                    break
                held = [
                    np.asarray(store)[:, block, t % BLOCK_SIZE].ravel().tolist()
                    for store in (self.pool.k, self.pool.v)
                ]
                if held != [[value, value], [-value, -value]]:
                    return table.name, t, block
        return None


@dataclass(frozen=True)
class Difference:
    """Where two runs part.

    Attributes
    ----------
    text : str
        What was expected and what came.
    ours, theirs : tuple of int
        Blocks to mark on either side.
    """

    text: str
    ours: tuple[int, ...] = ()
    theirs: tuple[int, ...] = ()


def difference(ours: Side, theirs: Side) -> Difference | None:
    """Return how the last step of one side differs from that of the other."""
    for found in _differences(ours, theirs):
        return found
    return None


def _differences(ours: Side, theirs: Side) -> Iterator[Difference]:
    yield from _errors(ours.moment, theirs.moment)
    mine, yours = ours.tables(), theirs.tables()
    yield from _shapes(mine, yours)
    yield from _sharing(mine, yours)
    yield from _counts(mine, yours, ours.moment.after, theirs.moment.after)
    if damaged := theirs.damaged():
        seq, token, block = damaged
        text = tr(
            "Token {token} of {seq} is in block {block}, and the block does not hold "
            "what was appended.",
            token=token,
            seq=seq,
            block=block,
        )
        yield Difference(text, (), (block,))


def _errors(ours: Moment, theirs: Moment) -> Iterator[Difference]:
    expected, got = ours.event, theirs.event
    if got.error and not expected.error:
        yield Difference(tr("Yours raised {error}.", error=got.error))
    elif expected.error and not got.error:
        name = expected.error.partition(":")[0]
        yield Difference(
            tr("Expected the exception {name}, yours raised nothing.", name=name)
        )
    elif expected.out_of_blocks and not got.out_of_blocks:
        yield Difference(
            tr("Expected OutOfBlocks, yours raised {error}.", error=got.error)
        )


def _shapes(ours: list[Table], theirs: list[Table]) -> Iterator[Difference]:
    for mine, yours in zip(ours, theirs, strict=False):
        if yours.cache and not 0 <= yours.blocks[0] < NUM_BLOCKS:
            yield Difference(tr("allocate() did not return the id of a block."))
        if mine.length != yours.length:
            text = tr(
                "Expected length {want} of {seq}, yours is {got}.",
                seq=mine.name,
                want=mine.length,
                got=yours.length,
            )
            yield Difference(text)
        if len(mine.blocks) != len(yours.blocks):
            text = tr(
                "Expected {want} entries in the table of {seq}, yours has {got}.",
                seq=mine.name,
                want=len(mine.blocks),
                got=len(yours.blocks),
            )
            yield Difference(text)


def _sharing(ours: list[Table], theirs: list[Table]) -> Iterator[Difference]:
    """Compare which entries are the same block, by where each was first listed."""
    first_mine: dict[int, tuple[str, int]] = {}
    first_yours: dict[int, tuple[str, int]] = {}
    for mine, yours in zip(ours, theirs, strict=False):
        pairs = zip(mine.blocks.tolist(), yours.blocks.tolist(), strict=False)
        for i, (a, b) in enumerate(pairs):
            here = (mine.name, i)
            want, got = first_mine.setdefault(a, here), first_yours.setdefault(b, here)
            if want == got:
                continue
            values = {"seq": mine.name, "i": i, "block": b}
            if got == here:
                text = tr(
                    "Expected logical block {i} of {seq} to be the block of {other}, "
                    "yours is another one, {block}.",
                    other=want[0],
                    **values,
                )
            elif want == here:
                text = tr(
                    "Expected logical block {i} of {seq} to be a block of its own, "
                    "yours is block {block}, which {other} lists too.",
                    other=got[0],
                    **values,
                )
            else:
                text = tr(
                    "Logical block {i} of {seq} is the block of {other}, not that of "
                    "{owner}.",
                    other=got[0],
                    owner=want[0],
                    **values,
                )
            yield Difference(text, (a,), (b,))


def _counts(
    ours: list[Table], theirs: list[Table], expected: State, got: State
) -> Iterator[Difference]:
    for mine, yours in zip(ours, theirs, strict=False):
        pairs = zip(mine.blocks.tolist(), yours.blocks.tolist(), strict=False)
        for a, b in pairs:
            if not (0 <= a < NUM_BLOCKS and 0 <= b < NUM_BLOCKS):
                continue
            want, count = int(expected.ref[a]), int(got.ref[b])
            if want != count:
                text = tr(
                    "Expected count {want} for block {block}, yours is {count}.",
                    want=want,
                    block=b,
                    count=count,
                )
                yield Difference(text, (a,), (b,))
    want, used = (int(np.count_nonzero(state.ref)) for state in (expected, got))
    if want != used:
        text = tr(
            "Expected {want} blocks in use, yours are {got}.", want=want, got=used
        )
        yield Difference(text)
    for name in ("used", "free", "peak"):
        right, claim = getattr(expected.books, name), getattr(got.books, name)
        if right != claim:
            text = tr(
                "Expected pool.{name} == {want}, yours is {got}.",
                name=name,
                want=right,
                got=claim,
            )
            yield Difference(text)


def _block_id(thing: object) -> np.int32:
    whole = isinstance(thing, int | np.integer) and not isinstance(thing, bool)
    inside = whole and 0 <= thing < NUM_BLOCKS  # type: ignore[operator]
    return np.int32(thing if inside else NOT_A_BLOCK)  # type: ignore[arg-type]
