"""Continuous batching, first come first served, over any of the four allocators.

Nothing happens token by token. While the batch stays the same, the state of the cache
and the time are polynomials in the number of iterations, so the simulator moves in one
go to the next event: a request ends, one arrives that may be admitted, or the blocks
run out. Its time grows with the number of requests, not of tokens.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from paged_kv.serving.allocators import Allocator, Usage
from paged_kv.serving.cost import CostModel
from paged_kv.serving.workload import Workload
from paged_kv.spec import whole


class Sample(NamedTuple):
    """The state at one moment: seconds, requests, and slots as in `Usage`."""

    seconds: float
    running: int
    waiting: int
    preemptions: int
    usage: Usage


@dataclass
class _Sums:
    """Sums over iterations: how many, and requests and slots after each."""

    iterations: int = 0
    running: int = 0
    tokens: int = 0
    reservation: int = 0
    internal: int = 0

    def add(self, steps: int, running: int, sums: tuple[int, int, int]) -> None:
        self.iterations += steps
        self.running += steps * running
        self.tokens += sums[0]
        self.reservation += sums[1]
        self.internal += sums[2]


@dataclass(frozen=True, eq=False)
class Result:
    """What a simulation showed.

    Attributes
    ----------
    system : str
        Name of the allocator.
    workload : Workload
    finish : ndarray of float64, shape (n,)
        Seconds at which each request had its last token.
    seconds : float
        When the last request ended.
    iterations, preemptions : int
    mean_batch : float
        Running requests, mean over iterations.
    shares : dict of str to float
        Mean share of the slots, by the fields of `Usage`; they add up to 1. Over the
        iterations during which a request had to wait for memory (free slots are no
        waste while nobody wants them), or over all when none had to.
    samples : list of Sample
        Time series, at about equal distances.
    """

    system: str
    workload: Workload
    finish: NDArray[np.float64]
    seconds: float
    iterations: int
    preemptions: int
    mean_batch: float
    shares: dict[str, float]
    samples: list[Sample] = field(repr=False)

    @property
    def normalised_latency(self) -> float:
        """Mean over requests of seconds from arrival to end, per token of answer.

        The paper's measure (SOSP'23, section 6.1, after Orca).
        """
        latency = self.finish - self.workload.arrival
        return float(np.mean(latency / self.workload.output))

    @property
    def tokens_per_second(self) -> float:
        """Tokens of answers per second, over the whole run."""
        return float(self.workload.output.sum() / self.seconds)


def simulate(
    workload: Workload,
    allocator: Allocator,
    cost: CostModel,
    *,
    max_batch: int = 256,
    samples: int = 500,
) -> Result:
    """Serve all requests of a workload.

    Before each iteration: if the running requests lack memory to grow, the one admitted
    last is preempted (it gives back everything, and later computes its tokens again);
    then waiting requests are admitted in order until one does not fit. A preempted one
    waits before all others. Deterministic.

    Parameters
    ----------
    workload : Workload
        What to serve.
    allocator : Allocator
        A fresh one; it is used up.
    cost : CostModel
        Time of an iteration.
    max_batch : int
        Most requests that run together.
    samples : int
        About how many moments of the time series to keep.

    Returns
    -------
    Result

    Raises
    ------
    ValueError
        When a request could never fit, even alone, or the allocator is in use.
    """
    max_batch, samples = whole("max_batch", max_batch, 1), whole("samples", samples, 1)
    if len(allocator) or allocator.iteration:
        raise ValueError("the allocator was used before; give every run a fresh one")
    _refuse_impossible(workload, allocator)
    run = _Run(workload, allocator, cost, max_batch, samples)
    run.to_the_end()
    return run.result()


def _refuse_impossible(workload: Workload, allocator: Allocator) -> None:
    # Longer requests need no less memory, so distinct pairs are few enough to ask.
    pairs = np.unique(np.stack([workload.prompt, workload.output]), axis=1)
    for prompt, output in pairs.T.tolist():
        if not allocator.can_ever_fit(prompt, output):
            raise ValueError(
                f"a request of {prompt} + {output} tokens never fits into the "
                f"{allocator.num_slots} slots of {allocator.name}; "
                "leave such requests out (Workload.no_longer_than)"
            )


class _Run:
    """The state of one simulation."""

    def __init__(
        self,
        workload: Workload,
        allocator: Allocator,
        cost: CostModel,
        max_batch: int,
        samples: int,
    ) -> None:
        self.workload, self.allocator, self.cost = workload, allocator, cost
        self.max_batch = max_batch
        # Lists: reading one element of an array at a time is slow.
        self.arrival = workload.arrival.tolist()
        self.length = workload.prompt.tolist()  # tokens to store when (re)admitted
        self.remaining = workload.output.tolist()
        self.finish = np.zeros(len(workload))
        self.seconds = 0.0
        self.next = 0  # the first request that was never admitted
        self.preempted: deque[int] = deque()
        self.running: dict[int, int] = {}  # request: iteration of its end; in order
        self.ends: list[tuple[int, int]] = []  # heap of (iteration, request)
        self.preemptions = 0
        self.all, self.contended = _Sums(), _Sums()
        self.samples: list[Sample] = []
        self.sample_every = self.arrival[-1] / samples
        self.next_sample = 0.0

    def to_the_end(self) -> None:
        total = len(self.arrival)
        progress = _progress_bar(total)
        while self.running or self.preempted or self.next < total:
            self._preempt()
            prompt_tokens = self._admit()
            if not self.running:
                self.seconds = self.arrival[self.next]
                continue
            self._advance(prompt_tokens)
            self._finish_requests()
            progress(self.next)

    def _preempt(self) -> None:
        while self.running and not self.allocator.room(1):
            request, end = self.running.popitem()
            self.allocator.release(request)
            left = end - self.allocator.iteration
            self.length[request] += self.remaining[request] - left
            self.remaining[request] = left
            self.preempted.appendleft(request)
            self.preemptions += 1

    def _waiting(self) -> int | None:
        """Return the request that is first in the queue now."""
        if self.preempted:
            return self.preempted[0]
        if self.next < len(self.arrival) and self.arrival[self.next] <= self.seconds:
            return self.next
        return None

    def _admit(self) -> int:
        """Admit what fits, and return the tokens that need prefill."""
        prompt_tokens = 0
        while len(self.running) < self.max_batch:
            request = self._waiting()
            if request is None:
                break
            length, remaining = self.length[request], self.remaining[request]
            if not self.allocator.admit(request, length, remaining):
                break
            if self.preempted:
                self.preempted.popleft()
            else:
                self.next += 1
            end = self.allocator.iteration + remaining
            self.running[request] = end
            heappush(self.ends, (end, request))
            prompt_tokens += length
        return prompt_tokens

    def _advance(self, prompt_tokens: int) -> None:
        """Run iterations until something happens."""
        allocator, n = self.allocator, len(self.running)
        while self.running.get(self.ends[0][1]) != self.ends[0][0]:
            heappop(self.ends)  # an end that a preemption has put off
        steps = allocator.room(self.ends[0][0] - allocator.iteration)
        # Iteration j takes first + j · slope, the first one the prefill besides.
        slope = n * self.cost.kv_bytes_per_token / self.cost.bandwidth
        first = self.cost.seconds(n, allocator.tokens)
        prefill = self.cost.prefill_per_token * prompt_tokens
        waiting = self._waiting() is not None
        if not waiting and self.next < len(self.arrival) and n < self.max_batch:
            gap = self.arrival[self.next] - self.seconds - prefill
            steps = min(steps, _iterations_to_cover(gap, first, slope))
        sums = allocator.advance(steps)
        self.all.add(steps, n, sums)
        if waiting:
            self.contended.add(steps, n, sums)
        self.seconds += prefill + steps * (first + slope * (steps + 1) / 2)
        if self.seconds >= self.next_sample:
            self._sample()

    def _finish_requests(self) -> None:
        now = self.allocator.iteration
        while self.ends and self.ends[0][0] == now:
            end, request = heappop(self.ends)
            if self.running.get(request) == end:
                del self.running[request]
                self.allocator.release(request)
                self.finish[request] = self.seconds

    def _sample(self) -> None:
        arrived = int(np.searchsorted(self.workload.arrival, self.seconds, "right"))
        waiting = max(0, arrived - self.next) + len(self.preempted)
        self.samples.append(
            Sample(
                self.seconds,
                len(self.running),
                waiting,
                self.preemptions,
                self.allocator.usage(),
            )
        )
        self.next_sample = self.seconds + self.sample_every

    def result(self) -> Result:
        sums, slots = self.contended, self.allocator.num_slots
        if not sums.iterations:
            sums = self.all
        whole_cache = sums.iterations * slots
        shares = {
            "tokens": sums.tokens / whole_cache,
            "reservation": sums.reservation / whole_cache,
            "internal": sums.internal / whole_cache,
        }
        shares["other"] = 1 - sum(shares.values())
        return Result(
            self.allocator.name,
            self.workload,
            self.finish,
            self.seconds,
            self.all.iterations,
            self.preemptions,
            self.all.running / self.all.iterations,
            shares,
            self.samples,
        )


def _iterations_to_cover(gap: float, first: float, slope: float) -> int:
    """Fewest iterations, at least 1, that take `gap` seconds or more.

    Iteration j (from 1) takes ``first + j · slope``, so s of them take
    ``s · (first + slope · (s + 1) / 2)``.
    """
    if gap <= 0:
        return 1
    linear = first + slope / 2
    # The root of slope/2 · s² + linear · s = gap, in a form without cancellation.
    root = 2 * gap / (linear + math.sqrt(linear * linear + 2 * slope * gap))
    steps = max(1, math.ceil(root))
    # Rounding may be off by one; times must agree with the sum to the last bit.
    while steps > 1 and (steps - 1) * (first + slope * steps / 2) >= gap:
        steps -= 1
    while steps * (first + slope * (steps + 1) / 2) < gap:
        steps += 1
    return steps


def _progress_bar(total: int, width: int = 40) -> Callable[[int], None]:
    """Return what draws the progress on a terminal; elsewhere it does nothing."""
    if not sys.stderr.isatty():
        return lambda done: None
    shown = -1

    def draw(done: int) -> None:
        nonlocal shown
        filled = done * width // total
        if filled != shown:
            shown = filled
            bar = "█" * filled + "·" * (width - filled)
            print(f"\r{bar} {done}/{total}", end="", file=sys.stderr, flush=True)
            if done == total:
                print(file=sys.stderr)

    return draw
