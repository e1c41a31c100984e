"""What an exercise's check consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from paged_kv.checks.script import Script, Wrong

Text = Callable[[], str]  # looked up when shown: the language may change meanwhile


@dataclass(frozen=True)
class Case:
    """One property of a right solution.

    Attributes
    ----------
    about : callable
        The property in one line, for the list of what was verified.
    lesson : callable
        Where it is taught, e.g. "09.1, Block table".
    run : callable
        Raises Wrong when the property does not hold.
    """

    about: Text
    lesson: Text
    run: Callable[[Script], None]


@dataclass(frozen=True)
class Asked:
    """One object that the student writes: a class with methods, or a function."""

    name: str
    methods: tuple[str, ...] = ()

    @property
    def is_class(self) -> bool:
        """Whether a class is asked for."""
        return bool(self.methods)


@dataclass(frozen=True)
class Exercise:
    """An exercise as the check sees it.

    Attributes
    ----------
    id : str
        "09.1".
    title : callable
        For people.
    asked : tuple of Asked
        What `check` takes, in this order.
    cases : tuple of Case
        From the simplest to the most general: the first that fails is shown.
    hints : callable
        Returns the three hints, the vaguest first.
    not_verified : callable
        What a pass does not prove, one line each.
    given : mapping
        Names that the cases' lines take from the module.
    explain : callable
        Returns the likely mistake behind an exception of the student's code, or None.
    summary : callable
        A sentence for a pass, from the names of the last case's script.
    optional : bool
        Not counted by `progress`.
    """

    id: str
    title: Text
    asked: tuple[Asked, ...]
    cases: tuple[Case, ...]
    hints: Callable[[], tuple[str, str, str]]
    not_verified: Callable[[], tuple[str, ...]]
    given: Mapping[str, object] = field(default_factory=dict)
    explain: Callable[[BaseException, Script], Wrong | None] = lambda *_: None
    summary: Callable[[Script], str] = lambda _: ""
    optional: bool = False
