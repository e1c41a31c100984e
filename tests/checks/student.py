"""A student's cell: a right solution, changed in places, run as a notebook runs it."""

import itertools
import linecache
from dataclasses import dataclass
from pathlib import Path

SOLUTIONS = Path(__file__).parent / "solutions"
ASKED = {
    "09.1": ("BlockPool", "Sequence"),
    "09.2": ("paged_attention", "reference_attention"),
    "09.3": ("Sequence", "prefix_sharing"),
}
FILES = {"09.1": "block_pool", "09.2": "attention", "09.3": "sharing"}
_cells = itertools.count(1)


@dataclass(frozen=True)
class Mistake:
    """A small change that makes the right solution wrong.

    Attributes
    ----------
    name
        What the student did.
    code
        The diagnosis that must come out.
    says
        Something that the English message must say.
    changes
        (old, new) pieces of the solution's text.
    state
        "wrong", or "raised" when the mistake ends in an exception.
    """

    name: str
    code: str
    says: str
    changes: tuple[tuple[str, str], ...]
    state: str = "wrong"


def mistake(name, code, says, *changes, state="wrong"):
    """Return a Mistake; `changes` alternate old and new text."""
    pairs = tuple(zip(changes[::2], changes[1::2], strict=True))
    return Mistake(name, code, says, pairs, state)


def right_source(exercise):
    """Return the text of a right solution."""
    return (SOLUTIONS / f"{FILES[exercise]}.py").read_text()


def changed_source(exercise, changes):
    """Return the right solution with pieces of text replaced."""
    source = right_source(exercise)
    for old, new in changes:
        assert old in source, f"the solution does not contain {old!r}"
        source = source.replace(old, new)
    return source


def run_cell(source, **names):
    """Run `source` like a notebook cell and return its namespace."""
    file = f"<cell {next(_cells)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    namespace = {"__name__": "__main__", **names}
    exec(compile(source, file, "exec"), namespace)
    return namespace


def answer(exercise, source):
    """Return the objects that `check` takes."""
    namespace = run_cell(source)
    return tuple(namespace[name] for name in ASKED[exercise])
