"""A pool and its sequences at one moment, read from any object with the interface.

Reading never fails and never changes what it reads: a student's class may hold anything
in `ref` and `block_table`, and the picture has to show what is there.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]

#: A table entry that is no whole number.
NOT_A_BLOCK = -1


@dataclass(frozen=True, slots=True)
class Table:
    """Who holds which blocks: the block table of a sequence, or what a cache keeps.

    Attributes
    ----------
    name : str
        For people.
    blocks : ndarray of int32, shape (n,)
        Physical ids in logical order, also impossible ones; `NOT_A_BLOCK` stands for
        an entry that is no whole number.
    length : int
        Tokens; 0 for a cache.
    live : bool
        False once the sequence was freed.
    cache : bool
        Holds blocks for later, not tokens.
    """

    name: str
    blocks: IntArray
    length: int
    live: bool = True
    cache: bool = False


@dataclass(frozen=True, slots=True)
class Books:
    """What the pool says about itself; None where it says nothing readable."""

    used: int | None
    free: int | None
    peak: int | None


@dataclass(frozen=True, slots=True)
class State:
    """Everything a picture shows of one moment.

    Attributes
    ----------
    block_size : int
        Tokens per block.
    ref : ndarray of int32, shape (num_blocks,)
        Reference counts.
    tables : tuple of Table
        In the order in which the holders were first seen; an index into it stays
        valid for the whole history.
    books : Books
    """

    block_size: int
    ref: IntArray
    tables: tuple[Table, ...]
    books: Books

    def same_as(self, other: State) -> bool:
        """Whether nothing changed between two states of one pool."""
        return (
            np.array_equal(self.ref, other.ref)
            and len(self.tables) == len(other.tables)
            and all(a is b for a, b in zip(self.tables, other.tables, strict=True))
        )


class Reader:
    """Reads one pool again and again; what has not changed is shared, not copied.

    Parameters
    ----------
    pool : object
        Has `ref`, one count per block; `block_size` or `k` tell the slots in a block.

    Raises
    ------
    TypeError
        When `pool.ref` is not a list or array of counts: there is no pool to show.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        ref = _counts(_get(pool, "ref"))
        if ref is None:
            raise TypeError(
                "the pool needs `ref`, one reference count per block, got "
                f"{_get(pool, 'ref')!r}"
            )
        self._ref = ref
        self._block_size = _block_size(pool)
        self._raw: dict[int, list[Any]] = {}

    def read(
        self,
        holders: list[Any],
        previous: tuple[Table, ...] = (),
        actor: int | None = None,
    ) -> State:
        """Return the state now.

        Parameters
        ----------
        holders : list of object
            Sequences (`block_table`) and caches (`held_blocks()`).
        previous : tuple of Table
            Those of the state before, for the same holders in the same order.
        actor : int, optional
            Who has just acted. Other sequences that were freed are not looked at.
        """
        ref = _counts(_get(self._pool, "ref"))
        if ref is not None:
            # A picture has room for one size of pool: a list that grew is cut.
            ref = np.pad(ref, (0, max(0, len(self._ref) - len(ref))))[: len(self._ref)]
            if not np.array_equal(ref, self._ref):
                self._ref = ref
        tables = list(previous)
        for i, holder in enumerate(holders):
            if i >= len(tables):
                tables.append(self._table(i, holder, None))
            elif tables[i].live or i == actor:
                tables[i] = self._table(i, holder, tables[i])
        books = Books(*(_whole(_get(self._pool, n)) for n in ("used", "free", "peak")))
        return State(self._block_size, self._ref, tuple(tables), books)

    def _table(self, i: int, holder: Any, old: Table | None) -> Table:
        cache = is_cache(holder)
        raw = _entries(holder, cache)
        length = 0 if cache else _length(holder)
        if old is None:
            name = _name(holder, i)
            self._raw[i] = raw
            return Table(name, _block_ids(raw), length, cache=cache)
        blocks = old.blocks
        if not _same(raw, self._raw[i]):
            self._raw[i] = raw
            ids = _block_ids(raw)
            blocks = blocks if np.array_equal(ids, blocks) else ids
        if blocks is old.blocks and length == old.length:
            return old
        return Table(old.name, blocks, length, cache=cache)


def is_sequence(thing: object) -> bool:
    """Whether it has a block table."""
    return _get(thing, "block_table") is not None


def is_cache(thing: object) -> bool:
    """Whether it keeps references of its own, without tokens."""
    return callable(_get(thing, "held_blocks")) and not is_sequence(thing)


def _get(thing: object, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # a property of an unfinished class may raise anything
        return None


def _whole(value: object) -> int | None:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _counts(ref: object) -> IntArray | None:
    if ref is None:
        return None
    try:
        counts = np.array(ref)
    except Exception:
        return None
    if counts.ndim != 1 or counts.dtype.kind not in "iufb" or not len(counts):
        return None
    return counts.astype(np.int32, copy=False)


def _block_size(pool: object) -> int:
    size = _whole(_get(pool, "block_size"))
    if size is None:
        shape = _get(_get(pool, "k"), "shape")
        size = shape[2] if isinstance(shape, tuple) and len(shape) > 2 else 16
    return max(1, int(size))


def _entries(holder: Any, cache: bool) -> list[Any]:
    try:
        table: Iterable[Any] = holder.held_blocks() if cache else holder.block_table
        # tolist(): comparing lists of numpy numbers is ten times slower.
        return table.tolist() if isinstance(table, np.ndarray) else list(table)
    except Exception:
        return []


def _block_ids(raw: list[Any]) -> IntArray:
    try:
        ids = np.asarray(raw)
        if ids.ndim == 1 and ids.dtype.kind in "iu" and (abs(ids) < 2**31).all():
            return ids.astype(np.int32)
    except (ValueError, OverflowError):  # a ragged list, an id beyond 64 bits
        pass
    whole = [_whole(entry) for entry in raw]
    fits = [i is not None and abs(i) < 2**31 for i in whole]
    return np.array(
        [i if ok else NOT_A_BLOCK for i, ok in zip(whole, fits, strict=True)], np.int32
    )


def _length(sequence: Any) -> int:
    try:
        return len(sequence)
    except Exception:
        return max(0, _whole(_get(sequence, "length")) or 0)


def _same(one: list[Any], other: list[Any]) -> bool:
    try:
        return one == other
    except ValueError:  # arrays among the entries
        return False


def _name(holder: Any, i: int) -> str:
    name = _get(holder, "seq_id")
    if name is not None:
        return str(name)
    return f"seq{i}" if is_sequence(holder) else type(holder).__name__
