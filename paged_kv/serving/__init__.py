"""Serving many requests at once: four ways to give them memory, and what each costs.

`workload` draws or reads requests, `allocators` gives them memory, `cost` says how long
an iteration takes, `simulator` puts the three together. `sharing` counts the blocks
that one request saves when its answers share their beginnings; `paper` holds the
experiment of the PagedAttention paper, to compare with.
"""

from paged_kv.serving.allocators import (
    Allocator,
    BlockCounter,
    MaxReservation,
    OracleReservation,
    PagedAllocator,
    Pow2Reservation,
    Usage,
)
from paged_kv.serving.buddy import BuddyAllocator
from paged_kv.serving.cost import CostModel
from paged_kv.serving.report import Table, number, size, summary, system_name
from paged_kv.serving.sharing import Sharing, beam_search, parallel_sampling
from paged_kv.serving.simulator import Result, Sample, simulate
from paged_kv.serving.workload import (
    ALPACA,
    SHAREGPT,
    Lengths,
    TraceError,
    Workload,
    poisson_workload,
    read_trace,
)

__all__ = [
    "ALPACA",
    "SHAREGPT",
    "Allocator",
    "BlockCounter",
    "BuddyAllocator",
    "CostModel",
    "Lengths",
    "MaxReservation",
    "OracleReservation",
    "PagedAllocator",
    "Pow2Reservation",
    "Result",
    "Sample",
    "Sharing",
    "Table",
    "TraceError",
    "Usage",
    "Workload",
    "beam_search",
    "number",
    "parallel_sampling",
    "poisson_workload",
    "read_trace",
    "simulate",
    "size",
    "summary",
    "system_name",
]
