"""Continuous batching: many requests, one pool, one pass over the weights per step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from paged_kv.attention import paged_attention
from paged_kv.audit import HasBlockTable
from paged_kv.model import adapter
from paged_kv.model.cache import Attention, Part, Timed, attend_to, positions
from paged_kv.model.llama import Array, Llama
from paged_kv.model.requests import Answer, Request
from paged_kv.model.sampling import pick
from paged_kv.model.scheduler import Cache, Scheduler, SharedPrefix
from paged_kv.model.steps import Chunk, Step
from paged_kv.pool import BlockPool, OutOfBlocks
from paged_kv.sequence import Sequence as PagedSequence
from paged_kv.spec import whole


class Engine:
    """Serves requests from one pool.

    Parameters
    ----------
    model : Llama
    num_blocks, block_size : int
        Of the pool.
    pool_type, sequence_type : type
        `BlockPool` and `Sequence`, the module's or a student's. `pool_type` is called
        with num_blocks, n_layers, n_kv_heads, head_dim and block_size.
    attention : callable
        `paged_attention`, the module's or a student's; used for decoding.
    cache_type : type, optional
        `PrefixCache` or `RadixCache`; needs the module's own pool and sequence.
    max_batch, token_budget, watermark : int
        See `Scheduler`.
    clock : callable
        Returns seconds.

    Attributes
    ----------
    pool : BlockPool
    cache : PrefixCache, RadixCache or None
    steps : list of Step

    Raises
    ------
    ValueError
        For classes that do not go together, or sizes out of range.

    Examples
    --------
    >>> engine = Engine(model, num_blocks=64)
    >>> request = engine.submit(prompt, max_tokens=20)
    >>> engine.run()
    >>> request.answers[0].tokens
    """

    def __init__(
        self,
        model: Llama,
        num_blocks: int = 256,
        block_size: int = 16,
        *,
        pool_type: Callable[..., Any] = BlockPool,
        sequence_type: Any = PagedSequence,
        attention: Attention = paged_attention,
        cache_type: Callable[[BlockPool], Cache] | None = None,
        max_batch: int = 16,
        token_budget: int = 256,
        watermark: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        max_batch = whole("max_batch", max_batch, 1)
        if whole("token_budget", token_budget, 1) <= max_batch:
            raise ValueError(
                f"token_budget {token_budget} must be above max_batch {max_batch}: "
                "else a full batch of decodes would hold up every prompt"
            )
        c = model.config
        pool = pool_type(num_blocks, c.n_layers, c.n_kv_heads, c.head_dim, block_size)
        adapter.require_interface(pool, sequence_type)
        own_sequence = issubclass(sequence_type, PagedSequence)
        if own_sequence and not isinstance(pool, BlockPool):
            raise ValueError(
                "the module's Sequence needs the module's BlockPool: give "
                "sequence_type as well"
            )
        if cache_type is not None and sequence_type is not PagedSequence:
            raise ValueError("a prefix cache makes the module's own sequences")
        self.model = model
        self.pool = pool
        self.cache = cache_type(pool) if cache_type is not None else None
        self.steps: list[Step] = []
        self._attention = attention
        self._clock = clock
        self._scheduler = Scheduler(
            pool,
            sequence_type,
            self.cache,
            max_batch,
            token_budget,
            whole("watermark", watermark, 0),
        )
        self._submitted = 0

    @property
    def running(self) -> Sequence[Answer]:
        """Answers that have blocks, in order of arrival."""
        return tuple(self._scheduler.running)

    @property
    def waiting(self) -> Sequence[Answer]:
        """Answers that have none yet, or lost them, in order of arrival."""
        return tuple(self._scheduler.waiting)

    @property
    def preemptions(self) -> int:
        """How often a running answer had to give its blocks back."""
        return self._scheduler.preemptions

    def submit(self, prompt: Sequence[int], **options: Any) -> Request:
        """Queue a prompt.

        Parameters
        ----------
        prompt : sequence of int
        **options
            Of `Request`: max_tokens, temperature, seed, n, stop.

        Raises
        ------
        NeverFits
            When even the empty pool could not hold it.
        ValueError
            For a prompt that is empty, has unknown ids or goes beyond the context, for
            ``n`` above `max_batch`, or above 1 with sequences that cannot fork.
        """
        request = Request(prompt, **options)
        request.check(self.model.config)
        if request.n > 1 and not hasattr(self._scheduler.sequence_type, "fork"):
            raise ValueError(f"n = {request.n} answers need a Sequence with `fork`")
        request.number = self._submitted
        self._scheduler.add(request)
        self._submitted += 1
        request.submitted_at = self._clock()
        return request

    def share(self, prompt: Sequence[int]) -> None:
        """Compute a common beginning once; later requests with it are forked off.

        It stays until `close`. A prefix cache needs no such call.

        Raises
        ------
        OutOfBlocks
            When the pool cannot take it.
        ValueError
            With a prefix cache, while requests run or wait, for sequences that cannot
            fork, or a prompt as in `submit`.
        """
        scheduler = self._scheduler
        if self.cache is not None:
            raise ValueError("the cache shares prefixes by itself")
        if scheduler.running or scheduler.waiting:
            raise ValueError("share a prefix before requests are submitted")
        if not hasattr(scheduler.sequence_type, "fork"):
            raise ValueError("a shared prefix needs a Sequence with `fork`")
        request = Request(prompt, max_tokens=1)
        request.check(self.model.config)
        tokens = list(request.prompt)
        seq = scheduler.sequence_type(self.pool, f"prefix{len(scheduler.prefixes)}")
        if (needed := adapter.blocks_needed(self.pool, seq, len(tokens))) > (
            free := self.pool.free
        ):
            raise OutOfBlocks(f"the prefix needs {needed} blocks, {free} are free")
        try:
            adapter.reserve(self.pool, seq, len(tokens))
            for start in range(0, len(tokens), scheduler.token_budget):
                chunk = tokens[start : start + scheduler.token_budget]
                self._forward([Part(seq, start, len(chunk))], chunk)
        except BaseException:
            seq.free()
            raise
        scheduler.prefixes.append(SharedPrefix(tokens, seq))

    def step(self) -> list[tuple[Answer, int]]:
        """Compute one batch; return each answer that grew, with its new token.

        Raises
        ------
        OutOfBlocks
            When requests wait, none runs, and somebody outside holds the blocks.
        """
        scheduler = self._scheduler
        before = scheduler.preemptions
        batch = scheduler.schedule()
        if not batch:
            if scheduler.waiting:
                raise OutOfBlocks(
                    f"{scheduler.waiting[0]!r} does not fit into {self.pool.free} free "
                    "blocks, and no answer runs that could give some back"
                )
            return []
        parts = [Part(chunk.seq, chunk.answer.computed, chunk.n) for chunk in batch]
        tokens = [
            token
            for chunk, (_, start, n) in zip(batch, parts, strict=True)
            for token in chunk.answer.known(start, start + n)
        ]
        start = self._clock()
        hidden, in_attention = self._forward(parts, tokens)
        # One row of logits for each answer whose last known token was computed.
        ends = [part.start + part.n for part in parts]
        ready = [i for i, c in enumerate(batch) if ends[i] == len(c.answer)]
        last = np.cumsum([chunk.n for chunk in batch]) - 1
        logits = self.model.logits(hidden[last[ready]]) if ready else hidden[:0]
        seconds = self._clock() - start
        # No answer has changed up to here: what was interrupted is computed again.
        rows = dict(zip(ready, logits, strict=True))
        grown: list[tuple[Answer, int]] = []
        for i, chunk in enumerate(batch):
            if i in rows:
                grown += self._grow(chunk, rows[i])
            else:
                chunk.answer.computed = ends[i]
            if not chunk.is_decode and chunk.answer.seq is not None:
                scheduler.publish(chunk.answer)
        decodes = sum(chunk.is_decode for chunk in batch)
        self.steps.append(
            Step(
                prefill=len(tokens) - decodes,
                decode=decodes,
                running=len(scheduler.running),
                waiting=len(scheduler.waiting),
                used=adapter.sizes(self.pool).num_blocks - self.pool.free,
                preemptions=scheduler.preemptions - before,
                seconds=seconds,
                attention_seconds=in_attention,
            )
        )
        return grown

    def stream(self) -> Iterator[tuple[Answer, int]]:
        """Step until nothing is left to do; yield every token as it comes."""
        while self._scheduler.running or self._scheduler.waiting:
            yield from self.step()

    def run(self) -> None:
        """Step until nothing is left to do."""
        for _ in self.stream():
            pass

    def close(self) -> None:
        """Give up all requests and shared prefixes, and free their blocks."""
        scheduler = self._scheduler
        for answer in reversed(list(scheduler.running)):
            scheduler.drop(answer)
        scheduler.waiting.clear()
        while scheduler.prefixes:
            scheduler.prefixes.pop().seq.free()

    def check(self) -> None:
        """Audit the pool, and the cache if there is one; see `BlockPool.check`.

        A student's pool is audited as well: its counts against the block tables.

        Raises
        ------
        PoolCorrupted
            When the books are wrong.
        """
        scheduler = self._scheduler
        sequences: list[HasBlockTable] = [
            a.seq for a in scheduler.running if a.seq is not None
        ]
        sequences += [prefix.seq for prefix in scheduler.prefixes]
        holders = () if self.cache is None else (self.cache,)
        adapter.check(self.pool, sequences, holders)
        if self.cache is not None:
            self.cache.check()

    def _forward(self, parts: list[Part], tokens: list[int]) -> tuple[Array, float]:
        """Return hidden rows, and the seconds spent in the pool."""
        attend = Timed(attend_to(self.pool, parts, self._attention), self._clock)
        hidden = self.model.forward(np.array(tokens), positions(parts), attend)
        return hidden, attend.seconds

    def _grow(self, chunk: Chunk, logits: Array) -> list[tuple[Answer, int]]:
        """Give an answer, and siblings that wait for its prompt, their next token."""
        answers = [chunk.answer, *chunk.answer.siblings]
        tokens = [pick(logits, a.request.temperature, a.rng) for a in answers]
        now = self._clock()
        self._scheduler.fork(chunk.answer, chunk.seq)
        grown = [
            (answer, token)
            for answer, token in zip(answers, tokens, strict=True)
            if answer.add(token, now)
        ]
        with ExitStack() as stack:  # a student's `free` that fails stops no other
            for answer in reversed(answers):
                if answer.finish_reason:
                    stack.callback(self._scheduler.release, answer)
        return grown
