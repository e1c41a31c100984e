"""Serving many requests at once: four ways to give them memory, and what each costs.

`workload` draws requests and `trace` reads them, `allocators` gives them memory, `cost`
says how long an iteration takes, `simulator` puts these together, and `report` shows
what came out. `sharing` counts the blocks that one request saves when its answers share
their beginnings; `prefix_workload` compares prefix caches; `paper` holds the experiment
of the PagedAttention paper, to compare with.
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
from paged_kv.serving.report import Table, number, percent, size, summary, system_name
from paged_kv.serving.sharing import Sharing, beam_search, parallel_sampling
from paged_kv.serving.simulator import Result, Sample, simulate
from paged_kv.serving.trace import TraceError, read_trace
from paged_kv.serving.workload import (
    ALPACA,
    SHAREGPT,
    Lengths,
    Workload,
    poisson_workload,
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
    "percent",
    "poisson_workload",
    "read_trace",
    "simulate",
    "size",
    "summary",
    "system_name",
]
