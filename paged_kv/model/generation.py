"""One prompt, one answer, token by token: what an engine does, without the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.attention import paged_attention
from paged_kv.model import adapter
from paged_kv.model.adapter import AnyPool, AnySequence
from paged_kv.model.cache import Attention, Part, attend_to, positions
from paged_kv.model.llama import Llama
from paged_kv.model.requests import Request
from paged_kv.model.sampling import pick
from paged_kv.pool import OutOfBlocks
from paged_kv.sequence import Sequence as PagedSequence

CHUNK = 256  # prompt tokens computed at once


def generate(
    model: Llama,
    prompt: Sequence[int],
    pool: AnyPool,
    *,
    max_tokens: int = 64,
    temperature: float = 0.0,
    seed: int = 0,
    stop: Sequence[int] = (),
    sequence_type: Any = PagedSequence,
    attention: Attention = paged_attention,
) -> Iterator[int]:
    """Stream the tokens that continue a prompt.

    K and V of the prompt go into the pool in chunks (prefill), those of each generated
    token as it is fed back (decode). The blocks are freed at the end, also when the
    caller stops early and closes the iterator.

    Parameters
    ----------
    prompt : sequence of int
        Token ids, at least one.
    pool : BlockPool
        The module's, or a student's; `sequence_type` and `attention` as well.
    max_tokens : int
        Most tokens to generate.
    temperature : float
        0 always takes the best token.
    seed : int
        Of the draws.
    stop : sequence of int
        Ids that end the answer; they are not part of it.

    Yields
    ------
    int
        The next token's id.

    Raises
    ------
    OutOfBlocks
        When the pool cannot take the prompt, or, later, the next token.
    ValueError
        For an empty prompt, unknown ids, or more tokens than the model's context.
    """
    request = Request(prompt, max_tokens, temperature, seed, stop=stop)
    request.check(model.config)
    adapter.require_interface(pool, sequence_type)
    return _stream(model, request, pool, sequence_type, attention)


def _stream(
    model: Llama, request: Request, pool: AnyPool, sequence_type: Any, attention: Any
) -> Iterator[int]:
    rng = np.random.default_rng(request.seed)
    seq = sequence_type(pool, "generate")
    new = list(request.prompt)
    try:
        for _ in range(request.max_tokens):
            logits = extend(model, pool, seq, new, attention)
            token = pick(logits, request.temperature, rng)
            if token in request.stop:
                return
            yield token
            new = [token]
    finally:
        seq.free()


def extend(
    model: Llama,
    pool: AnyPool,
    seq: AnySequence,
    tokens: Sequence[int],
    attention: Attention = paged_attention,
    start: int | None = None,
) -> NDArray[Any]:
    """Append tokens to a sequence, in chunks; return the logits after the last one.

    Parameters
    ----------
    pool, seq, attention
        The module's, or a student's.
    tokens : sequence of int
        At least one.
    start : int, optional
        Position of the first of the tokens, ``len(seq)`` by default. After a call that
        was interrupted the sequence is longer than what was computed: call again with
        the same `start`, and at least the same tokens.

    Returns
    -------
    ndarray of float32, shape (vocab_size,)

    Raises
    ------
    OutOfBlocks
        When the pool cannot take them all; nothing is changed then.
    """
    start = len(seq) if start is None else start
    missing = start + len(tokens) - len(seq)
    if (needed := adapter.blocks_needed(pool, seq, missing)) > pool.free:
        raise OutOfBlocks(
            f"{len(tokens)} tokens after {start} need {needed} blocks, "
            f"{pool.free} free of {adapter.sizes(pool).num_blocks}"
        )
    adapter.reserve(pool, seq, missing)
    for first in range(0, len(tokens), CHUNK):
        chunk = tokens[first : first + CHUNK]
        parts = [Part(seq, start + first, len(chunk))]
        attend = attend_to(pool, parts, attention)
        hidden = model.forward(np.array(chunk), positions(parts), attend)
    logits: NDArray[Any] = model.logits(hidden[-1:])[0]
    return logits
