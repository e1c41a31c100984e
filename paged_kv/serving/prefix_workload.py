"""Prompts that begin alike: four typical services, and a reader for public traces."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from paged_kv.allocator import OutOfBlocks
from paged_kv.caching import NeverFits, Tokens
from paged_kv.prefix_cache import PrefixCache
from paged_kv.radix_cache import RadixCache
from paged_kv.sequence import Sequence
from paged_kv.serving.workload import TOO_LONG, TraceError, text_lines
from paged_kv.spec import whole

T = TypeVar("T")

VOCABULARY = 32_000
HASHED_BLOCK = 512  # tokens that one hash id of a trace stands for
TOO_LARGE = 1 << 40  # a hash id below it, times its block's tokens, is a token id


@dataclass(frozen=True, eq=False)
class PrefixRequest:
    """One request, token by token.

    Attributes
    ----------
    prompt, answer : ndarray of int64
        Token ids; the answer may be empty.
    name : str
        For people, e.g. ``"chat 3, turn 2"``.
    """

    prompt: Tokens
    answer: Tokens
    name: str


def system_prompts(
    n: int,
    *,
    seed: int = 0,
    kinds: int = 4,
    system: int = 512,
    question: int = 64,
    answer: int = 64,
) -> Iterator[PrefixRequest]:
    """Yield `n` single questions below one of `kinds` long instructions.

    Lengths are means in tokens. The k-th instruction is asked for 1/k as often as the
    first.
    """
    rng = _rng(n, seed)
    instructions = [_text(rng, system) for _ in range(kinds)]
    weights = 1 / np.arange(1, kinds + 1)
    for _ in range(n):
        kind = rng.choice(kinds, p=weights / weights.sum())
        prompt = np.concatenate([instructions[kind], _text(rng, question)])
        yield PrefixRequest(prompt, _text(rng, answer), f"instruction {kind}")


def few_shot(
    n: int,
    *,
    seed: int = 0,
    tasks: int = 3,
    shots: int = 8,
    example: int = 80,
    question: int = 40,
    answer: int = 8,
) -> Iterator[PrefixRequest]:
    """Yield `n` questions behind the first 1 … `shots` examples of one of `tasks`."""
    rng = _rng(n, seed)
    examples = [[_text(rng, example) for _ in range(shots)] for _ in range(tasks)]
    for _ in range(n):
        task, shown = int(rng.integers(tasks)), int(rng.integers(1, shots + 1))
        prompt = np.concatenate([*examples[task][:shown], _text(rng, question)])
        yield PrefixRequest(prompt, _text(rng, answer), f"task {task}, {shown} shots")


def chat(
    n: int,
    *,
    seed: int = 0,
    active: int = 16,
    turns: float = 5,
    system: int = 128,
    question: int = 48,
    answer: int = 96,
) -> Iterator[PrefixRequest]:
    """Yield `n` turns of `active` conversations at a time, in random order.

    A prompt is everything said before and a new question: the prompts of a
    conversation grow, and each begins with the one before and its answer.
    `turns` is the mean length of a conversation; a new one takes its place.
    """
    rng = _rng(n, seed)
    instruction = _text(rng, system)
    said = [instruction] * active
    turn, number = [0] * active, list(range(active))
    started = active
    for _ in range(n):
        who = int(rng.integers(active))
        turn[who] += 1
        prompt = np.concatenate([said[who], _text(rng, question)])
        reply = _text(rng, answer)
        yield PrefixRequest(prompt, reply, f"chat {number[who]}, turn {turn[who]}")
        said[who] = np.concatenate([prompt, reply])
        if rng.random() < 1 / turns:
            said[who], turn[who], number[who] = instruction, 0, started
            started += 1


def tree_of_thought(
    n: int,
    *,
    seed: int = 0,
    branching: int = 3,
    depth: int = 3,
    question: int = 96,
    thought: int = 48,
) -> Iterator[PrefixRequest]:
    """Yield `n` requests that continue each line of thought in `branching` ways.

    The thoughts of one problem form a tree, walked level by level: all prompts of a
    level are as long, and a prompt is the path from the question down.
    """
    rng = _rng(n, seed)
    left, problem = n, 0
    while left:
        level = [_text(rng, question)]
        for step in range(depth):
            following = []
            for path in level:
                for _ in range(min(branching, left)):
                    reply = _text(rng, thought)
                    name = f"problem {problem}, step {step + 1}"
                    yield PrefixRequest(path, reply, name)
                    following.append(np.concatenate([path, reply]))
                    left -= 1
            level = following
        problem += 1


#: The four services by name.
PREFIX_WORKLOADS: dict[str, Callable[..., Iterator[PrefixRequest]]] = {
    "system prompts": system_prompts,
    "few-shot": few_shot,
    "chat": chat,
    "tree of thought": tree_of_thought,
}


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


class Served(NamedTuple):
    """One request that went through `replay`.

    Attributes
    ----------
    number : int
        Its place in the order of arrival, from 0.
    n_cached : int
        Tokens of its prompt that were found.
    """

    number: int
    n_cached: int


def replay(
    cache: PrefixCache | RadixCache,
    requests: Iterable[PrefixRequest],
    *,
    running: int = 1,
    waiting: int = 1,
    longest_prefix_first: bool = False,
) -> list[Served]:
    """Send requests through a cache and count tokens; no K and V are written.

    Parameters
    ----------
    cache : PrefixCache or RadixCache
    requests : iterable of PrefixRequest
    running : int
        Requests that hold their blocks at a time. The first to come is the first to
        finish; also sooner, when the next one finds no room.
    waiting : int
        Requests that the scheduler sees and may choose from.
    longest_prefix_first : bool
        Whether it chooses the one with the longest cached prefix. By default it takes
        the one that waits longest.

    Returns
    -------
    list of Served
        In the order served; ``cache.stats`` sums up.

    Raises
    ------
    NeverFits
        For a prompt that the whole pool cannot hold.
    OutOfBlocks
        For a prompt that leaves no room for its answer.
    """
    running, waiting = whole("running", running, 1), whole("waiting", waiting, 1)
    arriving = enumerate(requests)
    queue = list(islice(arriving, waiting))
    active: deque[Sequence] = deque()
    found: list[Served] = []

    def with_room(action: Callable[[], T]) -> T:
        while True:
            try:
                return action()
            except OutOfBlocks as error:
                if isinstance(error, NeverFits) or not active:
                    raise
                active.popleft().free()

    while queue:
        best = 0
        if longest_prefix_first:
            cached = [cache.match(request.prompt)[1] for _, request in queue]
            best = cached.index(max(cached))
        number, request = queue.pop(best)
        queue += islice(arriving, 1)
        while len(active) >= running:
            active.popleft().free()
        seq, n_cached = with_room(partial(cache.admit, request.name, request.prompt))
        cache.publish(seq, request.prompt)
        with_room(partial(seq.reserve, len(request.answer)))
        cache.publish(seq, np.concatenate([request.prompt, request.answer]))
        active.append(seq)
        found.append(Served(number, n_cached))
    while active:
        active.popleft().free()
    return found


def _rng(n: int, seed: int) -> np.random.Generator:
    whole("n", n, 1)
    return np.random.default_rng(seed)


def _text(rng: np.random.Generator, mean: int) -> Tokens:
    """Return random tokens, about `mean` of them."""
    return rng.integers(VOCABULARY, size=max(1, rng.poisson(mean)), dtype=np.int64)


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
