"""The KV cache of an LLM engine, small enough to be read: blocks, tables, attention.

Read in this order: `spec`, `allocator`, `pool`, `sequence`, `attention`,
`quantization`. Importing the package imports numpy and nothing heavier.
"""

from paged_kv.allocator import BlockAllocator, DoubleFree, OutOfBlocks
from paged_kv.attention import (
    AttentionState,
    gather_kv,
    paged_attention,
    partial_attention,
    reference_attention,
)
from paged_kv.audit import PoolCorrupted
from paged_kv.pool import BlockPool
from paged_kv.quantization import dequantize_block_int8, quantize_block_int8
from paged_kv.sequence import Sequence
from paged_kv.spec import KVCacheSpec

__all__ = [
    "AttentionState",
    "BlockAllocator",
    "BlockPool",
    "DoubleFree",
    "KVCacheSpec",
    "OutOfBlocks",
    "PoolCorrupted",
    "Sequence",
    "dequantize_block_int8",
    "gather_kv",
    "paged_attention",
    "partial_attention",
    "quantize_block_int8",
    "reference_attention",
]
