"""How many blocks one request saves when its answers share their beginnings.

Real `Sequence` objects fork, grow and are freed; nothing is written, so one element
per slot is storage enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence
from paged_kv.serving.workload import Workload
from paged_kv.spec import whole

Beams = list[Sequence]


class Sharing(NamedTuple):
    """Blocks in use, summed over the iterations of all requests.

    Attributes
    ----------
    used : int
        Physical blocks.
    unshared : int
        What the same block tables would take without sharing.
    """

    used: int
    unshared: int

    @property
    def saved(self) -> float:
        """Share of the blocks that sharing saves."""
        return 1 - self.used / self.unshared


def parallel_sampling(workload: Workload, n: int, *, block_size: int = 16) -> Sharing:
    """Share each prompt among `n` answers of the same length.

    Parameters
    ----------
    workload : Workload
        Lengths of the requests; arrivals are not used.
    n : int
        Answers per request.
    block_size : int
        Tokens per block.

    Notes
    -----
    SOSP'23, section 4.4, figure 8; compare with figure 15a.
    """
    return _measure(workload, n, block_size)


def beam_search(
    workload: Workload, width: int, *, block_size: int = 16, seed: int = 0
) -> Sharing:
    """Share prompts and the common beginnings of `width` beams.

    Which beams survive depends on the model. Here each of the `width` next beams goes
    on from a beam picked at random, all alike: neutral selection, without a parameter.

    Parameters
    ----------
    workload, block_size
        As in `parallel_sampling`.
    width : int
        Beams per request.
    seed : int
        Of the random choice.

    Notes
    -----
    SOSP'23, section 4.4, figure 9; compare with figure 15b.
    """
    rng = np.random.default_rng(seed)

    def select(beams: Beams) -> Beams:
        # A beam's first successor is the beam itself, the others are forks of it.
        survivors: dict[int, Beams] = {}
        for i in rng.integers(width, size=width).tolist():
            line = survivors.setdefault(i, [])
            line.append(beams[i].fork(len(line)) if line else beams[i])
        for i, beam in enumerate(beams):
            if i not in survivors:
                beam.free()
        return [beam for line in survivors.values() for beam in line]

    return _measure(workload, width, block_size, select)


def _measure(
    workload: Workload,
    n: int,
    block_size: int,
    select: Callable[[Beams], Beams] | None = None,
) -> Sharing:
    n = whole("n", n, 1)
    longest = int(workload.total.max())
    # Room for all answers apart, and while beams change for a copy of each tail.
    pool = BlockPool(n * (-(-longest // block_size) + 1), 1, 1, 1, block_size)
    used = unshared = 0
    lengths = zip(workload.prompt.tolist(), workload.output.tolist(), strict=True)
    for prompt, output in lengths:
        base = Sequence(pool, "prompt")
        base.reserve(prompt)
        answers = [base, *(base.fork(i) for i in range(1, n))]
        done = 0
        while done < output:
            # Until the tail is full nothing changes, unless beams are selected.
            empty = -answers[0].length % block_size
            steps = min(output - done, empty or 1) if select is None else 1
            if select is not None:
                answers = select(answers)
            for answer in answers:
                answer.reserve(steps)
            used += steps * pool.used
            unshared += steps * n * len(answers[0].block_table)
            done += steps
        for answer in answers:
            answer.free()
    return Sharing(used, unshared)
