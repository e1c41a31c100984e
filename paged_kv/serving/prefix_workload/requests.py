"""Prompts that begin alike, drawn at random: four typical services."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from paged_kv.caching import Tokens
from paged_kv.spec import whole

VOCABULARY = 32_000


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

    The k-th instruction is asked for 1/k as often as the first.

    Parameters
    ----------
    n, seed, kinds : int
        Requests, the seed of all that is random, and different instructions.
    system, question, answer : int
        Mean tokens of an instruction, a question and an answer.
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
    """Yield `n` questions behind the first 1 … `shots` examples of one of `tasks`.

    Parameters
    ----------
    n, seed, tasks, shots : int
        Requests, the seed, and how many tasks with how many examples there are.
    example, question, answer : int
        Mean tokens of each.
    """
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

    Parameters
    ----------
    n, seed, active : int
        Requests, the seed, and conversations at a time.
    turns : float
        Mean length of a conversation; a new one takes its place.
    system, question, answer : int
        Mean tokens of the instruction that all share, of a question and an answer.
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

    Parameters
    ----------
    n, seed, branching, depth : int
        Requests, the seed, and the shape of a tree.
    question, thought : int
        Mean tokens of each.
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


def _rng(n: int, seed: int) -> np.random.Generator:
    whole("n", n, 1)
    return np.random.default_rng(seed)


def _text(rng: np.random.Generator, mean: int) -> Tokens:
    """Return random tokens, about `mean` of them."""
    return rng.integers(VOCABULARY, size=max(1, rng.poisson(mean)), dtype=np.int64)
