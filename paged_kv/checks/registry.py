"""All exercises that have a check. A new one is a file and a line here."""

from __future__ import annotations

from paged_kv.checks.attention import ATTENTION
from paged_kv.checks.block_pool import BLOCK_POOL
from paged_kv.checks.exercise import Exercise
from paged_kv.checks.int8_blocks import INT8_BLOCKS
from paged_kv.checks.paged_kernel import PAGED_KERNEL
from paged_kv.checks.prefix_index import PREFIX_INDEX
from paged_kv.checks.sharing import SHARING

EXERCISES: dict[str, Exercise] = {
    e.id: e
    for e in (BLOCK_POOL, ATTENTION, SHARING, PREFIX_INDEX, INT8_BLOCKS, PAGED_KERNEL)
}
