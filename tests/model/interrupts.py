"""Interrupts at a chosen call: what Ctrl-C or a student's mistake does to a step."""

import itertools
from collections.abc import Callable


def interrupting(function: Callable, at: int, when: str = "before") -> Callable:
    """Return `function`, interrupted just before or after what its call `at` does."""
    calls = itertools.count(1)

    def wrapped(*args, **kwargs):
        is_due = next(calls) == at
        if is_due and when == "before":
            raise KeyboardInterrupt
        result = function(*args, **kwargs)
        if is_due:
            raise KeyboardInterrupt
        return result

    return wrapped
