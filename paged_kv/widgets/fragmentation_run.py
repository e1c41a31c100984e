"""The same requests through several allocators, with every step kept for view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paged_kv.serving.allocators import (
    Allocator,
    MaxReservation,
    OracleReservation,
    PagedAllocator,
    Pow2Reservation,
    ReservingAllocator,
    Span,
    Usage,
)
from paged_kv.serving.cost import CostModel
from paged_kv.serving.simulator import Result, simulate
from paged_kv.serving.workload import Lengths, Workload, poisson_workload

#: Requests short enough for a map in which each slot can be seen.
SHORT = Lengths("short", 20, 36, cv_prompt=1.0, cv_output=0.8)
# One second per iteration: time is counted in steps.
_CLOCK = CostModel(weight_bytes=1, kv_bytes_per_token=0, bandwidth=1)


class Refusal(NamedTuple):
    """A request that was not admitted: slots it needs, free slots, largest free piece.

    In blocks any free slots are as good as others: `largest` is `free` there.
    """

    request: int
    needed: int
    free: int
    largest: int

    @property
    def is_external(self) -> bool:
        """Whether there were slots enough, only not in one piece."""
        return self.largest < self.needed <= self.free


class Moment(NamedTuple):
    """One system after one step."""

    spans: tuple[Span, ...]
    usage: Usage
    running: int
    waiting: int
    preemptions: int
    refusal: Refusal | None

    @property
    def rounding(self) -> int:
        """Slots of the chunks that nobody asked for."""
        given = sum(span.slots for span in self.spans)
        return given - sum(self.usage[:3])


@dataclass(frozen=True)
class Run:
    """One system from the first step to the last.

    Attributes
    ----------
    name : str
    num_slots : int
    block_size, max_len : int
        The one that does not apply is 0.
    moments : list of Moment
        One per step: the first before anything happens, the last when all is done.
    result : Result
    """

    name: str
    num_slots: int
    block_size: int
    max_len: int
    moments: list[Moment]
    result: Result

    def at(self, step: int) -> Moment:
        """Return the state after `step`, also after the last one."""
        return self.moments[min(step, len(self.moments) - 1)]


class _Recorder(Allocator):
    """Passes everything on, one iteration at a time, and keeps what it sees."""

    def __init__(self, inner: ReservingAllocator | PagedAllocator) -> None:
        super().__init__(inner.num_slots)
        self.inner, self.name = inner, inner.name
        self.seen: list[tuple[tuple[Span, ...], Refusal | None]] = []
        self._refusal: Refusal | None = None

    def __len__(self) -> int:
        return len(self.inner)

    def can_ever_fit(self, prompt: int, output: int) -> bool:
        return self.inner.can_ever_fit(prompt, output)

    def admit(self, request: int, length: int, remaining: int) -> bool:
        admitted = self.inner.admit(request, length, remaining)
        if not admitted:
            self._refusal = self._refused(request, length, remaining)
        self.tokens = self.inner.tokens
        return admitted

    def release(self, request: int) -> None:
        self.inner.release(request)
        self.tokens = self.inner.tokens

    def room(self, at_most: int) -> int:
        return self.inner.room(min(at_most, 1))

    def advance(self, steps: int) -> tuple[int, int, int]:
        sums = self.inner.advance(steps)
        self.iteration, self.tokens = self.inner.iteration, self.inner.tokens
        self.seen.append((tuple(self.inner.spans()), self._refusal))
        self._refusal = None
        return sums

    def usage(self) -> Usage:
        return self.inner.usage()

    def _refused(self, request: int, length: int, remaining: int) -> Refusal:
        inner = self.inner
        if isinstance(inner, PagedAllocator):
            size = inner.block_size
            free = inner.books.free * size
            return Refusal(request, inner.blocks_for(length + 1) * size, free, free)
        buddy = inner.buddy
        needed = buddy.chunk_size(inner.reserve(length, remaining))
        return Refusal(request, needed, buddy.free, buddy.largest)


def run_all(
    workload: Workload, num_slots: int, max_len: int, block_size: int, oracle: bool
) -> list[Run]:
    """Serve the requests with every system.

    Arrival counts steps: in one step every running request gets a token.

    Raises
    ------
    ValueError
        For requests that some system can never hold.
    """
    systems: list[ReservingAllocator | PagedAllocator] = [
        MaxReservation(num_slots, max_len),
        Pow2Reservation(num_slots, max_len),
    ]
    if oracle:
        systems.append(OracleReservation(num_slots, max_len))
    systems.append(PagedAllocator(num_slots, block_size))
    arrival = np.floor(workload.arrival)
    steps = Workload(arrival, workload.prompt, workload.output, workload.name)
    return [_run(steps, system) for system in systems]


def small_workload(seed: int = 0) -> Workload:
    """Return 48 short requests that come faster than any system serves them."""
    return poisson_workload(SHORT, rate=0.7, n=48, seed=seed, max_len=256)


def _run(workload: Workload, system: ReservingAllocator | PagedAllocator) -> Run:
    recorder = _Recorder(system)
    # So many samples are one after every iteration.
    every = 1_000_000 + int(workload.arrival[-1])
    result = simulate(workload, recorder, _CLOCK, samples=every)
    empty = Moment((), Usage(0, 0, 0, system.num_slots), 0, 0, 0, None)
    moments = [empty] * (int(result.seconds) + 2)
    for sample, (spans, refusal) in zip(result.samples, recorder.seen, strict=True):
        moments[int(sample.seconds)] = Moment(
            spans,
            sample.usage,
            sample.running,
            sample.waiting,
            sample.preemptions,
            refusal,
        )
    if isinstance(system, PagedAllocator):
        sizes = (system.block_size, 0)
    else:
        sizes = (0, system.max_len)
    return Run(system.name, system.num_slots, *sizes, moments, result)


def external_steps(runs: Sequence[Run]) -> list[int]:
    """Return the steps at which some system's free slots were in too small pieces."""
    last = max(len(run.moments) for run in runs)
    refusals = {step: [run.at(step).refusal for run in runs] for step in range(1, last)}
    return [
        step
        for step, found in refusals.items()
        if any(refusal is not None and refusal.is_external for refusal in found)
    ]
