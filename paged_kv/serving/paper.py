"""The experiment of the PagedAttention paper, and what it published.

Kwon et al., Efficient Memory Management for Large Language Model Serving with
PagedAttention, SOSP'23, arXiv 2309.06180.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from paged_kv.serving.allocators import (
    Allocator,
    BlockCounter,
    MaxReservation,
    OracleReservation,
    PagedAllocator,
    Pow2Reservation,
)
from paged_kv.serving.cost import CostModel
from paged_kv.serving.simulator import simulate
from paged_kv.serving.workload import ALPACA, SHAREGPT, Lengths, poisson_workload
from paged_kv.spec import PRESETS, GiB

# Table 1: OPT-13B on one A100 with 40 GB; the paper's "12 GB" for KV are GiB, since
# they make its 15.7K slots.
SPEC = PRESETS["opt-13b"]
NUM_SLOTS = 12 * GiB // SPEC.bytes_per_token()
MAX_LEN = 2048
# NVIDIA's data sheet of the A100 40GB: bytes/s, and FLOP/s of dense fp16.
BANDWIDTH, FLOPS = 1.555e12, 312e12
# Section 6.2 (figures 2 and 13): requests per second.
RATES = {SHAREGPT: 2.0, ALPACA: 30.0}

SYSTEMS = ("Orca (Max)", "Orca (Pow2)", "Orca (Oracle)", "Paged")
#: Figure 2: share of the slots in percent, by the fields of `Usage`; NaN = not given.
FIGURE_2 = {
    "Orca (Max)": (20.4, 13.3, 57.3, 8.9),
    "Orca (Pow2)": (26.8, 17.9, 13.6, 41.6),
    "Orca (Oracle)": (38.2, 25.2, 0.0, 36.6),
    "Paged": (96.3, float("nan"), float("nan"), float("nan")),
}
#: Figure 13: mean number of requests in the batch.
FIGURE_13 = {
    SHAREGPT: dict(zip(SYSTEMS, (7.00, 9.81, 13.62, 30.42), strict=True)),
    ALPACA: dict(zip(SYSTEMS, (7.00, 43.24, 72.75, 132.44), strict=True)),
}
#: Figure 15: memory saved in percent, by answers per request.
FIGURE_15 = {
    "parallel sampling": {2: 6.09, 4: 8.53, 6: 9.79},
    "beam search": {2: 37.56, 4: 53.13, 6: 55.16},
}
#: Section 6.2: rate at equal latency on ShareGPT, paged over the other system.
RATE_RATIOS = {"Orca (Oracle)": (1.7, 2.7), "Orca (Max)": (2.7, 8.0)}
#: Figure 18a: attention over blocks of 16 is slower than over contiguous K and V.
ATTENTION_SLOWDOWN = (0.20, 0.26)
#: The same as tokens that could be read in the time that touching a block takes.
BLOCK_COST = 16 * sum(ATTENTION_SLOWDOWN) / 2


def systems(num_slots: int = NUM_SLOTS, max_len: int = MAX_LEN) -> Iterator[Allocator]:
    """Yield the paper's four systems, fresh: three reserve, the last one pages."""
    yield MaxReservation(num_slots, max_len)
    yield Pow2Reservation(num_slots, max_len)
    yield OracleReservation(num_slots, max_len)
    yield PagedAllocator(num_slots)


def latency_at(rate: float, system: str) -> float:
    """Return seconds per token on ShareGPT at `rate` requests/s for an hour."""
    allocator = next(a for a in systems() if a.name == system)
    if isinstance(allocator, PagedAllocator):
        allocator = BlockCounter(NUM_SLOTS)  # the same counts, quicker
    workload = poisson_workload(SHAREGPT, rate, round(3600 * rate))
    return simulate(workload, allocator, ENGINE).normalised_latency


def highest_rate(system: str, limit: float) -> float:
    """Return the highest rate, in requests/s, with a latency of at most `limit`."""
    low, high = 0.1, 5.0
    for _ in range(10):
        rate = math.sqrt(low * high)
        late = latency_at(rate, system) > limit
        low, high = (low, rate) if late else (rate, high)
    return low


def implied_step(lengths: Lengths) -> float:
    """Seconds per iteration that the paper's own vLLM figures imply.

    By Little's law a batch of B at a rate of r requests/s means that a request stays
    B / r seconds, and it needs one iteration per token of its answer.
    """
    return FIGURE_13[lengths]["Paged"] / RATES[lengths] / lengths.mean_output


def roofline_step(lengths: Lengths) -> float:
    """Seconds per iteration of the same batch by arithmetic and bandwidth alone."""
    batch = FIGURE_13[lengths]["Paged"]
    # Long answers are met more often in the batch, and half-way on average.
    tokens = lengths.mean_prompt + lengths.mean_output * (1 + lengths.cv_output**2) / 2
    prompt_tokens = RATES[lengths] * implied_step(lengths) * lengths.mean_prompt
    return ROOFLINE.seconds(0, round(batch * tokens), round(prompt_tokens))


def _engine_of_2023() -> CostModel:
    # What an iteration took beyond the roofline, in two figures: it gives a part per
    # iteration and a part per request (Python, sampling request by request).
    pairs = [(FIGURE_13[it]["Paged"], it) for it in RATES]
    beyond = [implied_step(it) - roofline_step(it) for _, it in pairs]
    coefficients = np.array([[1.0, batch] for batch, _ in pairs])
    fixed, each = np.linalg.solve(coefficients, beyond).tolist()
    return replace(ROOFLINE, overhead=fixed, overhead_per_request=each)


#: Iterations as fast as bandwidth and arithmetic allow.
ROOFLINE = CostModel.of(SPEC, BANDWIDTH, FLOPS)
#: Iterations as slow as the paper's figures for vLLM imply. vLLM's own batch is
#: therefore no prediction of the simulator; everything else is.
ENGINE = _engine_of_2023()
