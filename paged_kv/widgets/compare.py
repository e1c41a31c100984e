"""Target beside yours: the first step at which a student's classes go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from html import escape

from paged_kv.messages import tr, trn
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence as PagedSequence
from paged_kv.widgets.facts import Facts
from paged_kv.widgets.page import Picture, page, title
from paged_kv.widgets.render import SHEET, body, plain_state, what
from paged_kv.widgets.side_by_side import (
    NUM_BLOCKS,
    Difference,
    Operation,
    Side,
    difference,
)

Run = tuple[Operation, ...]

_ALL = tuple(f"b{i}" for i in range(NUM_BLOCKS))

#: Runs of each exercise, easy ones first. Every run starts with an empty pool.
RUNS: dict[str, tuple[Run, ...]] = {
    "09.1": (
        (
            ("allocate", "a"),
            ("allocate", "b"),
            ("release", "a"),
            ("release", "a"),
            ("allocate", "c"),
        ),
        (("allocate", "a"), ("share", "a"), ("release", "a"), ("release", "a")),
        (
            *(("allocate", name) for name in _ALL),
            ("allocate", "more"),
            ("release", "b3"),
            ("allocate", "b3"),
        ),
        (
            ("new", "x"),
            ("append", "x", 3),
            ("append", "x", 2),
            ("new", "y"),
            ("append", "y", 9),
            ("free", "x"),
            ("append", "y", 8),
            ("new", "z"),
            ("append", "z", 12),
            ("append", "z", 1),
            ("free", "y"),
            ("append", "z", 1),
            ("free", "z"),
        ),
    ),
    "09.3": (
        (
            ("new", "base"),
            ("append", "base", 6),
            ("fork", "base", "req0"),
            ("append", "req0", 1),
            ("append", "base", 1),
            ("append", "req0", 3),
            ("free", "base"),
            ("append", "req0", 1),
            ("free", "req0"),
        ),
        (
            ("new", "base"),
            ("append", "base", 8),
            ("fork", "base", "req0"),
            ("append", "req0", 1),
            ("append", "base", 1),
        ),
        (
            ("new", "base"),
            ("append", "base", 6),
            ("fork", "base", "req0"),
            ("append", "base", 1),
            ("append", "req0", 1),
            ("free", "req0"),
            ("append", "base", 1),
        ),
        (
            ("new", "base"),
            ("append", "base", 6),
            ("fork", "base", "req0"),
            ("fork", "req0", "req1"),
            ("append", "req1", 2),
            ("append", "base", 1),
            ("append", "req0", 1),
            ("free", "base"),
            ("free", "req1"),
            ("free", "req0"),
        ),
        (
            ("new", "base"),
            ("append", "base", 6),
            ("fork", "base", "req0"),
            *(("allocate", name) for name in _ALL[2:]),
            ("append", "req0", 1),
            ("release", "b5"),
            ("append", "req0", 1),
        ),
    ),
}


def compare(run: str | Iterable[Operation], *classes: type) -> Picture:
    """Do the same on our classes and on the student's, and draw the first difference.

    Parameters
    ----------
    run : str or iterable of Operation
        The exercise, "09.1" or "09.3", or operations of one's own on a pool of 8 blocks
        of 4 slots: ``("allocate", name)``, ``("release", name)``, ``("share", name)``,
        ``("new", seq)``, ``("append", seq, tokens)``, ``("fork", seq, child)``,
        ``("free", seq)``.
    *classes : type
        The student's `BlockPool` and `Sequence`, or `Sequence` alone, which then works
        on our pool.

    Returns
    -------
    Picture
        The first step that differs, expected and got, or one line that says that
        nothing differs or nothing is written yet. Never raises for what the student's
        code does.

    Raises
    ------
    ValueError
        For an unknown exercise or another number of classes.
    """
    # Only here: drawing does not need the checks.
    from paged_kv.checks.runner import TimeLimit, run_guarded

    if isinstance(run, str) and run not in RUNS:
        raise ValueError(f"there are runs for {', '.join(RUNS)}, not for {run!r}")
    if not 1 <= len(classes) <= 2:
        raise ValueError(f"give BlockPool and Sequence or Sequence, got {classes}")
    runs = RUNS[run] if isinstance(run, str) else (tuple(run),)
    pool_class = classes[0] if len(classes) == 2 else BlockPool
    pair = _Pair(pool_class, classes[-1])
    for operations in runs:
        outcome = run_guarded(partial(pair.play, operations))
        if isinstance(outcome.error, NotImplementedError):
            return _line(lambda: tr("Not started: there is a stub on the way."))
        if isinstance(outcome.error, TimeLimit):
            found = Difference(tr("Yours did not finish in time and was stopped."))
            return pair.picture(found)
        if outcome.error is not None:
            text = f"{type(outcome.error).__name__}: {outcome.error}"
            return pair.picture(Difference(tr("Yours raised {error}.", error=text)))
        if outcome.value is not None:
            return pair.picture(outcome.value)
    steps = sum(map(len, runs))
    return _line(
        lambda: trn(
            "In {n} step yours does what ours does.",
            "In {n} steps yours does what ours does.",
            steps,
        )
    )


class _Pair:
    """Our classes and the student's, doing the same."""

    def __init__(self, pool_class: type, sequence_class: type) -> None:
        self._classes = pool_class, sequence_class
        self._done: list[Operation] = []
        self._sides: list[Side] = []

    def play(self, run: Run) -> Difference | None:
        """Do a run on fresh pools, up to the first difference."""
        self._done, self._sides = [], []
        ours, theirs = Side(BlockPool, PagedSequence), Side(*self._classes)
        self._sides = [ours, theirs]
        for operation in run:
            self._done.append(operation)
            ours.do(operation)
            theirs.do(operation)
            if found := difference(ours, theirs):
                return found
        return None

    def picture(self, found: Difference) -> Picture:
        """Return the last step on both sides."""
        for side in self._sides:
            side.recording.stop()
        if not self._sides:  # not even a pool
            return _line(lambda: found.text)
        marks = found.ours, found.theirs
        expected, got = (
            Facts(side.moment, blocks)
            for side, blocks in zip(self._sides, marks, strict=True)
        )
        done = list(self._done)

        def html() -> str:
            lines = "".join(f"<li><code>{escape(_code(op))}</code></li>" for op in done)
            return _page(
                f'<p class="tx found">{escape(found.text)}</p>'
                f'<ol class="lines" aria-label="{escape(tr("What was done"))}">{lines}'
                f'</ol><div class="two">{_panel(tr("Expected"), expected)}'
                f"{_panel(tr('Yours'), got)}</div>"
            )

        def text() -> str:
            parts = [found.text, *map(_code, done)]
            parts += ["", tr("Expected"), *plain_state(expected)]
            return "\n".join([*parts, "", tr("Yours"), *plain_state(got)])

        return Picture(html, text)


def _panel(name: str, facts: Facts) -> str:
    return (
        f'<div role="group" aria-label="{escape(name)}"><p class="who"><b>'
        f"{escape(name)}</b></p>{what(facts)}{body(facts)}</div>"
    )


def _line(text: Callable[[], str]) -> Picture:
    return Picture(lambda: _page(f"<p>{escape(text())}</p>"), text)


def _page(inside: str) -> str:
    name = tr("Target beside yours")
    return page(title(name) + inside, name, SHEET, "compare.css")


def _code(operation: Operation) -> str:
    """Return an operation as the student would write it."""
    kind, name, *rest = operation
    arg = rest[0] if rest else 1
    times = f"  # ×{arg}" if arg != 1 else ""
    return {
        "allocate": f"{name} = pool.allocate()",
        "release": f"pool.release({name})",
        "share": f"pool.ref[{name}] += 1",
        "new": f'{name} = Sequence(pool, "{name}")',
        "append": f"{name}.append(k, v){times}",
        "fork": f'{arg} = {name}.fork("{arg}")',
        "free": f"{name}.free()",
    }[str(kind)]
