"""Runs a student's code so that it cannot hang, flood or end the notebook.

What it does not stop: `os._exit`, a C call that never returns (off the main thread or
on Windows), writing to a file descriptor. `paged-kv grade` uses processes for those.
"""

from __future__ import annotations

import io
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractContextManager,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
)
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

#: Seconds of processor time that one case may take. Processor time, so that a busy
#: machine fails nobody; four times as long on the clock, for code that only waits.
SECONDS = 5.0
PATIENCE = 4
TICK = 0.05

#: Characters of printed text that are kept, and after which printing is stopped.
KEPT = 2_000
ENDLESS = 1_000_000


class TimeLimit(BaseException):
    """The student's code ran too long; not an Exception, so that `except` misses it."""


class OutputLimit(BaseException):
    """The student's code printed without end."""


T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What a run left behind: a value or an error, and the beginning of its printing.

    `value` is None when there is an error.
    """

    value: T | None
    error: BaseException | None
    printed: str


def run_guarded(action: Callable[[], T]) -> Outcome[T]:
    """Call `action` and return what happened; never raises.

    Standard output and error are captured, warnings are ignored, the time is limited,
    and numpy's error state is put back.
    An interrupt by the user ends the run like any other error.
    """
    printed = CappedText()
    value: T | None = None
    error: BaseException | None = None
    try:
        with (
            redirect_stdout(printed),
            redirect_stderr(printed),
            warnings.catch_warnings(),
            np.errstate(),
            _time_limit(SECONDS),
        ):
            warnings.simplefilter("ignore")
            value = action()
    except BaseException as caught:  # SystemExit and KeyboardInterrupt among them
        error = caught
    return Outcome(None if error else value, error, printed.kept)


class CappedText(io.TextIOBase):
    """A text stream that keeps the beginning of what is written to it."""

    def __init__(self) -> None:
        self.kept = ""
        self._written = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Keep what fits; raise OutputLimit after `ENDLESS` characters."""
        self.kept += text[: KEPT - len(self.kept)]
        self._written += len(text)
        if self._written > ENDLESS:
            raise OutputLimit
        return len(text)


def _time_limit(seconds: float) -> AbstractContextManager[None]:
    start_cpu, start = time.process_time(), time.monotonic()

    def is_over() -> bool:
        cpu, clock = time.process_time() - start_cpu, time.monotonic() - start
        return cpu > seconds or clock > PATIENCE * seconds

    on_main_thread = threading.current_thread() is threading.main_thread()
    if on_main_thread and hasattr(signal, "setitimer"):
        return _alarm(is_over)
    return _watchdog(is_over)


@contextmanager
def _alarm(is_over: Callable[[], bool]) -> Iterator[None]:
    """Raise TimeLimit from a signal: on the main thread of Unix."""

    def ring(*_: object) -> None:
        if is_over():
            raise TimeLimit  # at every tick again: a bare `except:` swallows one

    def stop() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
    try:
        yield
    finally:
        _do_surely(stop)


@contextmanager
def _watchdog(is_over: Callable[[], bool]) -> Iterator[None]:
    """Raise TimeLimit from another thread: off the main thread, and on Windows."""
    try:
        import ctypes

        raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
        watched = ctypes.c_ulong(threading.get_ident())
        limit = ctypes.py_object(TimeLimit)
    except (ImportError, AttributeError):  # a browser Python: no limit there
        yield
        return
    lock, done = threading.Lock(), threading.Event()

    def watch() -> None:
        while not done.wait(TICK):
            with lock:
                if is_over() and not done.is_set():
                    raise_in_thread(watched, limit)

    def stop() -> None:
        with lock:
            done.set()
            raise_in_thread(watched, None)  # takes back one that is on its way

    thread = threading.Thread(target=watch, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # a Python without threads
        yield
        return
    try:
        yield
    finally:
        _do_surely(stop)
        thread.join()


def _do_surely(action: Callable[[], None]) -> None:
    """Do `action` to its end, even if the time runs out in the middle of it."""
    while True:
        try:
            action()
        except TimeLimit:
            continue
        return
