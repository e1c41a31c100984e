"""Public traces: the lines of a file, and the CSV of who asked when, for how much."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from paged_kv.serving.workload import Workload

TOO_LONG = 1 << 24  # tokens that no prompt or answer of a trace can have


class TraceError(ValueError):
    """A trace file cannot be read; the message names the line and what is wrong."""


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text in UTF-8, with or without a byte order mark.

    Raises
    ------
    TraceError
        For bytes that are no text, with the line number.
    OSError
        When the file cannot be read.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                at = f"{path.name} line {number}"
                raise TraceError(f"{at}: not UTF-8: {error}") from error
            yield text


# Names that public traces give to the three columns, in lower case. Azure's 2023 and
# 2024 LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens.
_COLUMNS = {
    "arrival": ("timestamp", "arrival", "arrival_time", "arrived_at", "time"),
    "prompt": ("contexttokens", "input_tokens", "prompt_tokens", "num_prefill_tokens"),
    "output": (
        "generatedtokens",
        "output_tokens",
        "response_tokens",
        "num_decode_tokens",
    ),
}


def read_trace(path: str | Path, *, name: str = "") -> Workload:
    """Read a trace in CSV: arrival, tokens of the prompt, tokens of the answer.

    Parameters
    ----------
    path : str or Path
        UTF-8 text with a header. Columns are found by name, in any order and case
        (``TIMESTAMP, ContextTokens, GeneratedTokens`` as in Azure's public traces, or
        ``arrival, input_tokens, output_tokens``); others are left out. An arrival is
        a number of seconds or a date with time; the first request comes at 0.
    name : str
        For people; the file's name when not given.

    Raises
    ------
    TraceError
        For a missing column or a bad row, with the line number; also for a file
        without requests, and for a request earlier than the one before it.
    OSError
        When the file cannot be read.
    """
    path = Path(path)
    reader = csv.reader(text_lines(path), strict=True)
    try:
        header = [h.strip().lower() for h in next(reader, [])]
        index = {what: _find_column(header, what, path) for what in _COLUMNS}
        rows = [
            _parse_row(row, index, len(header), f"{path.name} line {reader.line_num}")
            for row in reader
            if row
        ]
    except csv.Error as error:
        at = f"{path.name} line {reader.line_num}"
        raise TraceError(f"{at}: not CSV: {error}") from error
    if not rows:
        raise TraceError(f"{path.name}: no requests below the header")
    for previous, (at, seconds, _, _) in pairwise(rows):
        if seconds < previous[1]:
            raise TraceError(f"{at}: arrives before {previous[0]}; sort the file")
    arrival = np.array([row[1] for row in rows]) - rows[0][1]
    prompt, output = (np.array([row[i] for row in rows], np.int64) for i in (2, 3))
    return Workload(arrival, prompt, output, name or path.stem)


def _find_column(header: list[str], what: str, path: Path) -> int:
    names = _COLUMNS[what]
    found = [i for i, column in enumerate(header) if column in names]
    if len(found) != 1:
        raise TraceError(
            f"{path.name} line 1: {len(found)} columns for {what}, needs one of "
            f"{', '.join(names)}; the header has {', '.join(header) or 'nothing'}"
        )
    return found[0]


_Row = tuple[str, float, int, int]


def _parse_row(row: list[str], index: dict[str, int], width: int, at: str) -> _Row:
    if len(row) != width:
        raise TraceError(f"{at}: {len(row)} fields, the header has {width}")
    seconds = _seconds(row[index["arrival"]], at)
    prompt = _tokens("prompt", row[index["prompt"]], at)
    return at, seconds, prompt, _tokens("output", row[index["output"]], at)


def _tokens(what: str, text: str, at: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value < TOO_LONG:
        raise TraceError(
            f"{at}: {what} must be a whole number >= 1 and < {TOO_LONG}, "
            f"got {text[:40]!r}"
        )
    return value


def _seconds(text: str, at: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(text.strip())
        except ValueError:
            raise TraceError(
                f"{at}: arrival must be seconds or a date with time, got {text!r}"
            ) from None
        # A trace without a zone is read as UTC: only differences matter here.
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(seconds):
        raise TraceError(f"{at}: arrival must be finite, got {text!r}")
    return seconds
