"""Who asks when, and for how many tokens: drawn at random, or read from a trace."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from paged_kv.spec import whole

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


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests in order of arrival.

    Attributes
    ----------
    arrival : ndarray of float64, shape (n,)
        Seconds, not decreasing.
    prompt, output : ndarray of int64, shape (n,)
        Tokens of the prompt and of the answer, at least 1 each.
    name : str
        For people.

    Raises
    ------
    ValueError
        When there is no request, the arrays differ in length, or a value is out of
        range; the message names the first bad request.
    """

    arrival: NDArray[np.float64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    name: str = ""

    def __post_init__(self) -> None:
        arrays = {
            name: np.asarray(getattr(self, name))
            for name in ("arrival", "prompt", "output")
        }
        shapes = [array.shape for array in arrays.values()]
        if shapes != [(max(1, arrays["arrival"].size),)] * 3:
            raise ValueError(
                f"arrival, prompt and output must be (n,) with n > 0, got {shapes}"
            )
        for name, array in arrays.items():
            if name != "arrival" and array.dtype.kind not in "iu":
                raise ValueError(f"{name} must hold whole numbers, got {array.dtype}")
            dtype = np.float64 if name == "arrival" else np.int64
            object.__setattr__(self, name, array.astype(dtype))
        in_order = np.diff(self.arrival, prepend=0.0) >= 0
        for name, good, rule in (
            ("arrival", in_order & np.isfinite(self.arrival), "not decreasing from 0"),
            ("prompt", self.prompt >= 1, "at least 1"),
            ("output", self.output >= 1, "at least 1"),
        ):
            if not good.all():
                at = int(np.argmin(good))
                value = getattr(self, name)[at]
                raise ValueError(f"request {at}: {name} must be {rule}, got {value}")

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def total(self) -> NDArray[np.int64]:
        """Tokens of prompt and answer together, shape (n,)."""
        return self.prompt + self.output

    def faster(self, factor: float) -> Workload:
        """Return the same requests, arriving `factor` times as often."""
        if not 0 < factor < math.inf:
            raise ValueError(f"factor must be a number > 0, got {factor!r}")
        return Workload(self.arrival / factor, self.prompt, self.output, self.name)

    def no_longer_than(self, max_len: int) -> Workload:
        """Return the requests of at most `max_len` tokens in all."""
        keep = self.total <= max_len
        return Workload(
            self.arrival[keep], self.prompt[keep], self.output[keep], self.name
        )


@dataclass(frozen=True)
class Lengths:
    """Lognormal lengths of prompts and answers.

    Parameters
    ----------
    name : str
    mean_prompt, mean_output : float
        Mean tokens.
    cv_prompt, cv_output : float
        Coefficient of variation: standard deviation over mean.
    """

    name: str
    mean_prompt: float
    mean_output: float
    cv_prompt: float = 1.5
    cv_output: float = 1.0


# Means: Kwon et al., SOSP'23, figure 11. The paper shows the spread only as a picture;
# the coefficients of variation are ours.
SHAREGPT = Lengths("ShareGPT-like", 161.31, 337.99)
ALPACA = Lengths("Alpaca-like", 19.31, 58.45)


def poisson_workload(
    lengths: Lengths, rate: float, n: int, *, seed: int = 0, max_len: int = 2048
) -> Workload:
    """Draw `n` requests that arrive independently of each other.

    Parameters
    ----------
    lengths : Lengths
        Distribution of the lengths, e.g. `SHAREGPT`.
    rate : float
        Requests per second; ``math.inf`` puts all of them at time 0.
    n : int
        Requests.
    seed : int
        The same seed gives the same requests, at any rate.
    max_len : int
        Longest prompt + answer, in tokens. Longer ones are drawn anew, and the means
        of those that remain are the given ones.

    Raises
    ------
    ValueError
        For a rate that is not positive, or means that do not fit under `max_len`.
    """
    n, max_len = whole("n", n, 1), whole("max_len", max_len, 2)
    if not rate > 0:
        raise ValueError(f"rate must be requests per second > 0, got {rate!r}")
    mu, sigma = _fit(lengths, max_len)
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(size=n)) / rate
    drawn = np.empty((2, 0), np.int64)
    while drawn.shape[1] < n:
        more = rng.lognormal(mu[:, None], sigma[:, None], (2, n))
        more = np.maximum(1, np.rint(more)).astype(np.int64)
        drawn = np.concatenate([drawn, more[:, more.sum(axis=0) <= max_len]], axis=1)
    return Workload(arrival, drawn[0, :n], drawn[1, :n], lengths.name)


def _fit(
    lengths: Lengths, max_len: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mu and sigma, of prompt and output, that give the means below `max_len`.

    The long ones that are left out lower the mean, so the rest must be longer.
    """
    means = np.array([lengths.mean_prompt, lengths.mean_output])
    cvs = np.array([lengths.cv_prompt, lengths.cv_output])
    if not (np.isfinite(means).all() and (means >= 1).all() and (cvs > 0).all()):
        raise ValueError(f"means must be at least 1 and CVs above 0, got {lengths}")
    sigma = np.sqrt(np.log1p(cvs**2))
    mu = np.log(means) - sigma**2 / 2
    normal = NormalDist()
    z = np.array([normal.inv_cdf((i + 0.5) / 400) for i in range(400)])
    for _ in range(50):
        prompt, output = np.exp(mu[:, None] + sigma[:, None] * z)
        kept = prompt[:, None] + output <= max_len
        if not kept.any():
            break
        of_kept = np.array([(kept.T * prompt).sum(), (kept * output).sum()])
        of_kept /= kept.sum()
        if np.allclose(of_kept, means, rtol=1e-3):
            return mu, sigma
        mu += np.log(means / of_kept)
    raise ValueError(
        f"means of {lengths.mean_prompt} + {lengths.mean_output} tokens do not fit "
        f"under max_len = {max_len}"
    )


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
