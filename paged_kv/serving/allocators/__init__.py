"""Four ways to give requests memory for their KV cache, behind one interface.

Three reserve a contiguous chunk for the whole request (`reserving`); the fourth takes
blocks as tokens come (`paged`).
"""

from paged_kv.serving.allocators.base import Allocator, Span, Usage
from paged_kv.serving.allocators.paged import BlockCounter, PagedAllocator
from paged_kv.serving.allocators.reserving import (
    MaxReservation,
    OracleReservation,
    Pow2Reservation,
    ReservingAllocator,
)

__all__ = [
    "Allocator",
    "BlockCounter",
    "MaxReservation",
    "OracleReservation",
    "PagedAllocator",
    "Pow2Reservation",
    "ReservingAllocator",
    "Span",
    "Usage",
]
