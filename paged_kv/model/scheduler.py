"""Who runs, who waits, and who gives blocks back when there are none."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from paged_kv.caching import NeverFits
from paged_kv.model import adapter
from paged_kv.model.adapter import AnyPool, AnySequence
from paged_kv.model.requests import Answer, Request
from paged_kv.model.steps import Chunk
from paged_kv.pool import OutOfBlocks
from paged_kv.prefix_cache import PrefixCache
from paged_kv.radix_cache import RadixCache

Cache = PrefixCache | RadixCache


class SharedPrefix(NamedTuple):
    """A computed beginning of prompts; requests that begin with it are forked off."""

    tokens: list[int]
    seq: AnySequence


class Scheduler:
    """First come, first served, over one pool.

    An answer waits without blocks, or runs with blocks for all its tokens. Every step
    takes the newest token of each decoding answer, then as much of the prompts as the
    token budget leaves (chunked prefill). When a decoding answer needs a block and none
    is free, the answer that came latest gives all of its blocks back and waits again;
    its tokens are kept, and K and V are computed anew (preemption by recompute).

    Parameters
    ----------
    pool, sequence_type
        The module's, or a student's.
    cache : PrefixCache, RadixCache or None
    max_batch : int
        Most answers that run.
    token_budget : int
        Most tokens computed in a step; above `max_batch`, so prompts always advance.
    watermark : int
        Blocks that an admission must leave free when others run, so that they can grow.

    Attributes
    ----------
    waiting : deque of Answer
    running : list of Answer
        Both in the order of arrival; whoever runs came before all who wait.
    preemptions : int
    """

    def __init__(
        self,
        pool: AnyPool,
        sequence_type: Any,
        cache: Cache | None,
        max_batch: int,
        token_budget: int,
        watermark: int,
    ) -> None:
        self.pool = pool
        self.sequence_type = sequence_type
        self.cache = cache
        self.max_batch = max_batch
        self.token_budget = token_budget
        self.watermark = watermark
        self.waiting: deque[Answer] = deque()
        self.running: list[Answer] = []
        self.prefixes: list[SharedPrefix] = []
        self.preemptions = 0

    def add(self, request: Request) -> None:
        """Queue a request, or refuse at once what can never run.

        Raises
        ------
        NeverFits
            When one answer alone needs more blocks than the pool can ever give it.
        ValueError
            For more answers than may run at a time.
        """
        if request.n > self.max_batch:
            raise ValueError(f"n = {request.n} answers, max_batch is {self.max_batch}")
        shape = adapter.sizes(self.pool)
        needed = -(-request.most_cached // shape.block_size)
        held = sum(len(prefix.seq.block_table) for prefix in self.prefixes)
        if prefix := self.prefix_of(request):
            needed -= len(prefix.tokens) // shape.block_size
        if needed > shape.num_blocks - held:
            others = f", shared prefixes hold {held} of them" if held else ""
            raise NeverFits(
                f"a prompt of {len(request.prompt)} tokens and {request.max_tokens} "
                f"more need {needed} blocks, the pool has {shape.num_blocks}{others}: "
                "it can never run"
            )
        self.waiting.append(request.answers[0])

    def schedule(self) -> list[Chunk]:
        """Return what this step computes; its slots are reserved."""
        before = self.preemptions
        prefilling = [answer for answer in self.running if not answer.decoding]
        batch = list(self._decodes())
        budget = self.token_budget - len(batch)
        for answer in prefilling:
            if budget and answer.seq is not None:  # else it was preempted just now
                batch.append(_next_chunk(answer, answer.seq, budget))
                budget -= batch[-1].n
        # Whoever was preempted just now would only be admitted to lose again.
        while self.waiting and budget and self.preemptions == before:
            if (seq := self._admit(self.waiting[0])) is None:
                break
            answer = self.waiting.popleft()
            answer.seq = seq
            self.running.append(answer)
            batch.append(_next_chunk(answer, seq, budget))
            budget -= batch[-1].n
        return batch

    def fork(self, answer: Answer, seq: AnySequence) -> None:
        """Let the siblings of a computed prompt share its blocks and run as well."""
        forks: list[AnySequence] = []
        try:
            for sibling in answer.siblings:
                forks.append(seq.fork(sibling.name))
        except BaseException:
            for fork in forks:
                fork.free()
            raise
        forked, answer.siblings = answer.siblings, []
        for sibling, fork in zip(forked, forks, strict=True):
            sibling.seq, sibling.n_cached = fork, len(fork)
            insort(self.running, sibling, key=_arrival)

    def publish(self, answer: Answer) -> None:
        """Let others find the blocks that are full and written."""
        if self.cache is not None:
            # A cache makes the sequences itself, so they are the module's.
            self.cache.publish(answer.seq, answer.known(0, answer.computed))  # type: ignore[arg-type]

    def release(self, answer: Answer) -> None:
        """Take an answer out of the running ones and free its blocks."""
        self.publish(answer)
        self.drop(answer)

    def drop(self, answer: Answer) -> None:
        """As `release`, without letting anybody find what was computed."""
        self.running.remove(answer)
        seq, answer.seq, answer.computed = answer.seq, None, 0
        if seq is not None:
            seq.free()

    def prefix_of(self, request: Request) -> SharedPrefix | None:
        """Return the longest shared prefix that a prompt goes beyond."""
        prompt = request.prompt
        fitting = [
            prefix
            for prefix in self.prefixes
            if len(prompt) > (n := len(prefix.tokens)) and prompt[:n] == prefix.tokens
        ]
        return max(fitting, key=lambda prefix: len(prefix.tokens), default=None)

    def _decodes(self) -> Iterator[Chunk]:
        """Yield the newest token of each decoding answer, with a slot for it."""
        for answer in [a for a in self.running if a.decoding]:
            while (seq := answer.seq) is not None:  # else it was preempted
                if self._reserve_newest(answer, seq):
                    yield Chunk(answer, seq, 1, True)
                    break
                self._preempt(self.running[-1])

    def _reserve_newest(self, answer: Answer, seq: AnySequence) -> bool:
        """Give a decoding answer its slot, or return False when no block is free."""
        missing = len(answer) - len(seq)  # 0 when the step before was interrupted
        if not self._make_room(adapter.blocks_needed(self.pool, seq, missing)):
            return False
        try:
            adapter.reserve(self.pool, seq, missing)
        except BaseException:
            # A student's append may have done only a part: compute all of it anew.
            # Nobody who came later may run while this answer waits.
            while answer.seq is not None:
                self._preempt(self.running[-1])
            raise
        return True

    def _preempt(self, victim: Answer) -> None:
        victim.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(victim)
        self.release(victim)

    def _make_room(self, needed: int) -> bool:
        """Return whether this many blocks are free, evicting from a radix tree."""
        if isinstance(self.cache, RadixCache):
            return self.cache.make_room(needed)
        return needed <= self.pool.free

    def _admit(self, answer: Answer) -> AnySequence | None:
        """Return blocks for all known tokens of an answer, if there are enough."""
        rows = sum(1 + len(a.siblings) for a in self.running)
        if rows + 1 + len(answer.siblings) > self.max_batch:
            return None
        spare = self.watermark if self.running else 0
        if self.cache is not None:
            return self._admit_cached(answer, self.cache, spare)
        prefix = self.prefix_of(answer.request)
        seq = (
            prefix.seq.fork(answer.name)
            if prefix
            else self.sequence_type(self.pool, answer.name)
        )
        answer.n_cached = answer.computed = len(seq)
        missing = len(answer) - len(seq)
        if adapter.blocks_needed(self.pool, seq, missing) > self.pool.free - spare:
            seq.free()
            answer.computed = 0
            return None
        try:
            adapter.reserve(self.pool, seq, missing)
        except BaseException:
            seq.free()
            raise
        return seq

    def _admit_cached(
        self, answer: Answer, cache: Cache, spare: int
    ) -> AnySequence | None:
        tokens = answer.known(0, len(answer))
        if spare:
            blocks, _ = cache.match(tokens)
            room, own_references = self.pool.free, 0
            if isinstance(cache, RadixCache):
                room, own_references = room + cache.evictable_size, 1
            # Hits that no sequence uses are part of that room, until this one does.
            idle = int((self.pool.ref[blocks] == own_references).sum())
            total = -(-len(tokens) // adapter.sizes(self.pool).block_size)
            if total - len(blocks) + idle > room - spare:
                return None
        try:
            seq, answer.computed = cache.admit(answer.name, tokens)
        except OutOfBlocks:
            return None
        answer.n_cached = answer.computed
        return seq


def _next_chunk(answer: Answer, seq: AnySequence, budget: int) -> Chunk:
    return Chunk(answer, seq, min(len(answer) - answer.computed, budget), False)


def _arrival(answer: Answer) -> tuple[int, int]:
    return answer.request.number, answer.index
