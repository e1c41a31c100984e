"""Requests of a public trace that says which prompts begin alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from paged_kv.serving.prefix_workload.requests import PrefixRequest
from paged_kv.serving.trace import TOO_LONG, TraceError, text_lines

HASHED_BLOCK = 512  # tokens that one hash id of a trace stands for
TOO_LARGE = 1 << 40  # a hash id below it, times its block's tokens, is a token id


def read_prefix_trace(path: str | Path) -> Iterator[PrefixRequest]:
    """Yield the requests of a trace in JSON lines that hides texts behind hash ids.

    Parameters
    ----------
    path : str or Path
        A JSON object in each line: ``timestamp`` (ms), ``input_length``,
        ``output_length`` (tokens) and ``hash_ids``, one for every 512 tokens of the
        prompt: equal ids mean an equal prefix up to there.

    Yields
    ------
    PrefixRequest
        Tokens stand for what the ids hide: the t-th token of id h is 512 · h + t, and
        those of an answer occur nowhere else.

    Raises
    ------
    TraceError
        For a line that is not such an object; the message has its number and what is
        wrong with it.
    OSError
        When the file cannot be read.

    Notes
    -----
    The format of Mooncake's traces (Qin et al., FAST'25).
    """
    path = Path(path)
    unheard = 1 << 62  # larger than any token of a hash id
    before = 0
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        at = f"{path.name} line {number}"
        row = _parse(line.strip(), at)
        if row["timestamp"] < before:
            raise TraceError(f"{at}: timestamp {row['timestamp']} after {before}")
        before = row["timestamp"]
        ids = np.array(row["hash_ids"], np.int64)[:, None] * HASHED_BLOCK
        prompt = (ids + np.arange(HASHED_BLOCK)).ravel()[: row["input_length"]]
        answer = np.arange(unheard, unheard + row["output_length"])
        unheard += row["output_length"]
        yield PrefixRequest(prompt, answer, at)


def _parse(line: str, at: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:  # its own line number would confuse
        what = f"{error.msg} at character {error.pos + 1}"
        raise TraceError(f"{at}: not JSON: {what}") from error
    except (ValueError, RecursionError) as error:  # thousands of digits or brackets
        raise TraceError(f"{at}: not JSON that can be read: {error}") from error
    if not isinstance(row, dict):
        raise TraceError(f"{at}: must be an object {{…}}, got {line[:40]!r}")
    for key, least in (("timestamp", 0), ("input_length", 1), ("output_length", 0)):
        most = TOO_LARGE if key == "timestamp" else TOO_LONG
        if not _is_whole(row.get(key), least, most):
            raise TraceError(
                f"{at}: {key} must be a whole number >= {least} and < {most}, "
                f"got {row.get(key)!r}"
            )
    ids, needed = row.get("hash_ids"), -(-row["input_length"] // HASHED_BLOCK)
    if not isinstance(ids, list) or not all(_is_whole(h, 0, TOO_LARGE) for h in ids):
        raise TraceError(
            f"{at}: hash_ids must be a list of whole numbers >= 0 and < {TOO_LARGE}"
        )
    if len(ids) != needed:
        raise TraceError(
            f"{at}: {row['input_length']} tokens need {needed} hash_ids of "
            f"{HASHED_BLOCK} tokens, got {len(ids)}"
        )
    return row


def _is_whole(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value < most
