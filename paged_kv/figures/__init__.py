"""Matplotlib figures of the notebooks, labelled in the language in use.

Each function returns a closed figure: as the last line of a cell, or through
``display``, it shows once. The background is opaque, so that dark themes show it too.
"""

from paged_kv.figures.blocks import (
    block_size_sweep,
    latency_by_rate,
    run_over_time,
)
from paged_kv.figures.exercises import (
    block_size_tradeoff,
    blocks_by_forks,
    token_weights,
)
from paged_kv.figures.memory import (
    chunk_map,
    memory_shares,
    reserved_and_used,
    throughput_by_batch,
)
from paged_kv.figures.sharing import bytes_by_batch, saved_by_sharing

__all__ = [
    "block_size_sweep",
    "block_size_tradeoff",
    "blocks_by_forks",
    "bytes_by_batch",
    "chunk_map",
    "latency_by_rate",
    "memory_shares",
    "reserved_and_used",
    "run_over_time",
    "saved_by_sharing",
    "throughput_by_batch",
    "token_weights",
]
