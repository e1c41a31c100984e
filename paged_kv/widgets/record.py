"""Follow a pool and its sequences, and write down what each operation does.

The objects keep working as before: while they are followed, their class is a subclass
with the same name whose public methods call the original and then look at the result.
Nothing is added to the objects themselves, so that classes with ``__slots__``, copies
and ``type(self)(…)`` behave as they did.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from paged_kv.widgets.history import Event, History
from paged_kv.widgets.snapshot import Reader, State, is_cache, is_sequence

#: Subclass made here → the recording it reports to, and the class it stands for.
_followed: WeakKeyDictionary[type, tuple[Recording, type]] = WeakKeyDictionary()

_APPENDS = ("append", "extend", "reserve")
_ERROR_LENGTH = 200


def record(pool: Any, *holders: Any) -> Recording:
    """Record everything that happens to a pool from now on.

    Parameters
    ----------
    pool : object
        A `BlockPool`, yours or ours: `ref` must hold one count per block.
    *holders : object
        Sequences, and caches with `held_blocks()`. Forks are followed by themselves.

    Returns
    -------
    Recording
        A `History` that grows; ``with record(…) as history:`` stops it at the end of
        the block. An object is followed by one recording only, the newest.

    Raises
    ------
    TypeError
        When the pool has no counts, or something else is not a sequence or a cache.

    Examples
    --------
    >>> import numpy as np
    >>> from paged_kv import BlockPool, Sequence
    >>> pool = BlockPool(4, n_layers=1, n_kv_heads=1, head_dim=1)
    >>> seq = Sequence(pool, "req0")
    >>> with record(pool, seq) as history:
    ...     for _ in range(20):
    ...         _ = seq.append([[0.0]], [[0.0]])
    ...     seq.free()
    >>> [history.step(i).event.kind for i in range(len(history))]
    ['start', 'append', 'free']
    """
    for thing in (pool, *holders):
        if entry := _followed.get(type(thing)):
            entry[0].stop()
    return Recording(pool, *holders)


class Recording(History):
    """A history that still grows; see `record`."""

    def __init__(self, pool: Any, *holders: Any) -> None:
        self._reader = Reader(pool)
        self._holders: list[Any] = []
        self._index: dict[int, int] = {}
        self._classes: dict[type, type] = {}
        self._depth = 0
        self._active = True
        self._fold = True
        self._pool = pool
        self._wrap_object(pool)
        for holder in holders:
            self.follow(holder)
        super().__init__(self._reader.read(self._holders))

    def follow(self, holder: Any) -> None:
        """Follow one more sequence or cache from now on.

        Raises
        ------
        TypeError
            When it has neither `block_table` nor `held_blocks()`.
        """
        if not is_sequence(holder) and not is_cache(holder):
            raise TypeError(
                f"cannot follow {type(holder).__name__}: it has neither block_table "
                "nor held_blocks()"
            )
        if id(holder) not in self._index:
            self._wrap_object(holder)
            self._index[id(holder)] = len(self._holders)
            self._holders.append(holder)

    def split(self) -> None:
        """Let the next operation be a step of its own, whatever came before."""
        self._fold = False

    def note(
        self, kind: str, actor: Any = None, error: BaseException | None = None
    ) -> None:
        """Add a step for something that no method of a followed object showed.

        Parameters
        ----------
        kind : str
            Name of the step.
        actor : object, optional
            A followed sequence, or nothing for the pool.
        error : BaseException, optional
            What it raised.
        """
        event = Event(kind, self._index.get(id(actor)))
        after = self._reader.read(self._holders, self._now.tables)
        self._add(_with_error(event, error) if error else event, after)

    def stop(self) -> None:
        """Let all objects be as they were; the history stays."""
        self._active = False
        for thing in (self._pool, *self._holders):
            if entry := _followed.get(type(thing)):
                object.__setattr__(thing, "__class__", entry[1])
        self._holders, self._index = [], {}

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _wrap_object(self, thing: Any) -> None:
        cls = type(thing)
        if cls in _followed:  # made by type(self)(…) of a followed object
            return
        if cls not in self._classes:
            self._classes[cls] = self._subclass(cls)
        # Not thing.__class__ = …: a class may define __setattr__.
        object.__setattr__(thing, "__class__", self._classes[cls])

    def _subclass(self, cls: type) -> type:
        body: dict[str, Any] = {
            "__slots__": (),  # the same layout, or an object could not change its class
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
        }
        for name in dir(cls):
            if not name.startswith("_"):
                function = inspect.getattr_static(cls, name)
                if isinstance(function, types.FunctionType):
                    body[name] = self._wrap(cls, name, function)
        made = types.new_class(
            cls.__name__, (cls,), exec_body=lambda ns: ns.update(body)
        )
        _followed[made] = (self, cls)
        return made

    def _wrap(
        self, cls: type, name: str, function: types.FunctionType
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        def method(thing: Any, /, *args: Any, **kwargs: Any) -> Any:
            # Looked up now: the student may replace a method of her class later.
            original = getattr(cls, name)
            if self._depth or not self._active:  # part of a larger operation
                return original(thing, *args, **kwargs)
            self._depth += 1
            try:
                result = original(thing, *args, **kwargs)
            except Exception as error:
                asked_for = ""
                if name == "admit":  # no sequence was made whose name could be read
                    asked_for = str([*args, kwargs.get("seq_id", "")][0])
                self._note(thing, name, None, error, asked_for)
                raise
            else:
                self._note(thing, name, result, None)
                return result
            finally:
                self._depth -= 1

        return method

    def _note(
        self,
        thing: Any,
        method: str,
        result: object,
        error: Exception | None,
        asked_for: str = "",
    ) -> None:
        """Add a step if the operation changed something or failed."""
        if isinstance(result, tuple) and any(map(is_sequence, result)):
            # A cache's admit returns a sequence and a number: it is what happened to
            # that sequence.
            thing = next(filter(is_sequence, result))
        for seen in (thing, result):
            if seen is not self._pool and is_sequence(seen):
                self.follow(seen)
        actor = self._index.get(id(thing))
        child = self._index.get(id(result)) if is_sequence(result) else None
        now = self._now
        after = self._reader.read(self._holders, now.tables, actor)
        kind, count = method, 1
        if actor is not None:
            table = after.tables[actor]
            if method in _APPENDS:
                length = now.tables[actor].length if actor < len(now.tables) else 0
                kind, count = "append", max(1, table.length - length)
            elif method == "free" and not error and table.live:
                tables = list(after.tables)
                tables[actor] = replace(table, live=False)
                after = replace(after, tables=tuple(tables))
        event = Event(kind, actor, count, child, asked_for=asked_for)
        if error:
            self._add(_with_error(event, error), after)
        elif not after.same_as(now):
            self._add(event, after)

    def _add(self, event: Event, after: State) -> None:
        self.add(event, after, self._fold)
        self._fold = True


def _with_error(event: Event, error: BaseException) -> Event:
    name = type(error).__name__
    try:
        message = f"{name}: {error}".rstrip(": ")[:_ERROR_LENGTH]
    except Exception:  # an exception class of the student may have a broken __str__
        message = name
    full = isinstance(error, MemoryError) or name == "OutOfBlocks"
    return replace(event, error=message, out_of_blocks=full)
