"""Finds the line of the student's code that an exception came from."""

from __future__ import annotations

import builtins
import linecache
import sysconfig
import traceback
from pathlib import Path
from types import CodeType, FrameType

from paged_kv.checks.script import FILE
from paged_kv.checks.show import clean
from paged_kv.messages import tr

_NOT_HERS = (
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    "<frozen ",
    "<__array_function__",
    FILE,
)


def student_code(error: BaseException) -> tuple[CodeType, int] | None:
    """Return the innermost code of the student on the traceback, and its line."""
    found = _student_frame(error)
    return (found[0].f_code, found[1]) if found else None


def _student_frame(error: BaseException) -> tuple[FrameType, int] | None:
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not frame.f_code.co_filename.startswith(_NOT_HERS):
            found = frame, line
    return found


def replaced_builtins(error: BaseException) -> list[str]:
    """Return the built-in names, such as list, that mean something else there."""
    found = _student_frame(error)
    if found is None:
        return []
    frame, _ = found
    return [
        name
        for name in frame.f_code.co_names
        if name in frame.f_globals and hasattr(builtins, name)
    ]


def student_line(error: BaseException) -> str:
    """Return where the student's code failed, e.g. "append, line 12: …", or ""."""
    found = student_code(error)
    if found is None:
        return ""
    code, line = found
    source = clean(linecache.getline(code.co_filename, line).strip(), 120)
    place = tr("{function}, line {line}", function=code.co_qualname, line=line)
    return f"{place}: {source}" if source else place
