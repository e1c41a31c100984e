"""The lines of code that a case runs on a student's objects, kept to be shown.

A case is a script: what it runs and what the report shows are the same text, so a
student can paste the lines into a cell and see for herself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.checks.show import show
from paged_kv.messages import tr

Array = NDArray[Any]
FILE = "<check>"  # where the lines seem to come from, in tracebacks


class Wrong(Exception):
    """A mistake was seen.

    Parameters
    ----------
    code : str
        Stable id of the mistake.
    cause : str
        What is wrong and why, in words for a student.
    expected, got : str
        Shown one under the other. Text and not values: a student's `__repr__` must
        run within the limits of the case.
    where : str
        The place, e.g. "block 3, slot 1".
    lesson : str
        Where this mistake is taught, when that is not where its case is.
    """

    def __init__(
        self,
        code: str,
        cause: str,
        expected: str = "",
        got: str = "",
        where: str = "",
        lesson: str = "",
    ) -> None:
        super().__init__(code)
        self.code = code
        self.cause = cause
        self.expected = expected
        self.got = got
        self.where = where
        self.lesson = lesson


class Script:
    """A namespace in which lines run, and the lines.

    Parameters
    ----------
    names : mapping
        What the lines can use: the student's objects and the module's.

    Attributes
    ----------
    lines : list of str
        What was run, in order.
    arrays : list of ndarray
        Copies of all that `kv()` has given to the student's code.
    tokens : dict of str to list of (k, v)
        What each sequence should hold, by its name in the script.
    """

    def __init__(self, names: Mapping[str, object]) -> None:
        self.names: dict[str, Any] = {"np": np, **names}
        self.lines: list[str] = []
        self.arrays: list[Array] = []
        self.tokens: dict[str, list[tuple[Array, Array]]] = {}
        self.unfinished = ""  # a line that was begun; the culprit after an exception
        self._handed_out: list[Array] = []

    def restart(self) -> None:
        """Forget what was run: the next lines stand on their own."""
        self.lines.clear()
        self.arrays.clear()
        self.tokens.clear()
        self._handed_out.clear()

    def do(self, line: str, note: str = "") -> Any:
        """Run a line, remember it, and return the value of an expression.

        `note` is a comment to be shown behind it.
        """
        self.lines.append(f"{line}  # {note}" if note else line)
        value = self.ask(line)
        self._expect_inputs_unchanged()
        return value

    def ask(self, line: str) -> Any:
        """Run a line that need not be shown: it only looks."""
        code, is_expression = _compiled(line)
        self.unfinished = line
        value = None
        if is_expression:
            value = eval(code, self.names)
        else:
            exec(code, self.names)
        self.unfinished = ""
        return value

    def value(self, line: str) -> Any:
        """Look at an attribute, which must not be a method."""
        value = self.ask(line)
        if callable(value):
            raise Wrong(
                "method-in-place-of-value",
                tr(
                    "`{line}` is a method here, and it must be a value that is read "
                    "without brackets: put @property above it.",
                    line=line,
                ),
                tr("a value"),
                tr("a method"),
            )
        return value

    def attempt(self, line: str, note: str = "") -> tuple[Any, Exception | None]:
        """Run a line that may fail; return its value and its error."""
        try:
            return self.do(line, note), None
        except (NotImplementedError, Wrong):
            raise
        except Exception as error:
            return None, error

    def expect(
        self, line: str, expected: object, code: str, cause: str, where: str = ""
    ) -> None:
        """Raise Wrong when the value of `line` differs from `expected`."""
        got = self.value(line)
        if not _equal(got, expected):
            raise Wrong(code, cause, f"{line} == {show(expected)}", show(got), where)

    def use_random_tokens(self, *shape: int, seed: int = 9) -> None:
        """Define `kv()`: K or V of one token, other numbers at each call."""
        self.do(f"rng = np.random.default_rng({seed})")
        self.do(f"kv = lambda: rng.standard_normal({shape}, dtype=np.float32)")
        make = self.names["kv"]

        def kv() -> Array:
            array: Array = make()
            self._handed_out.append(array)
            self.arrays.append(array.copy())
            return array

        self.names["kv"] = kv

    def shown_lines(self) -> list[str]:
        """Return the lines, with a loop in place of repetitions."""
        folded: list[tuple[str, int]] = []
        for line in self.lines:
            if folded and folded[-1][0] == line:
                folded[-1] = line, folded[-1][1] + 1
            else:
                folded.append((line, 1))
        return [
            line if n == 1 else f"for _ in range({n}): {line}" for line, n in folded
        ]

    def _expect_inputs_unchanged(self) -> None:
        recent = self.arrays[len(self.arrays) - len(self._handed_out) :]
        for given, original in zip(self._handed_out, recent, strict=True):
            if not np.array_equal(given, original):
                raise Wrong(
                    "input-modified",
                    tr(
                        "Your code changes an array that was passed to it, and the "
                        "caller still needs that array. Work on a copy: write `x = x * "
                        "2` in place of `x *= 2`."
                    ),
                    show(original),
                    show(given),
                )
        self._handed_out.clear()


@lru_cache(maxsize=1024)
def _compiled(line: str) -> tuple[CodeType, bool]:
    try:
        return compile(line, FILE, "eval"), True
    except SyntaxError:
        return compile(line, FILE, "exec"), False


def _equal(got: object, expected: object) -> bool:
    try:
        if isinstance(expected, list):
            return [*got] == expected  # type: ignore[misc]
        return bool(got == expected)
    except (TypeError, ValueError):  # not iterable; an array where a number should be
        return False
