"""Quantised KV blocks: quantisers, from int8 to two bits, and a pool that uses them.

Read in this order: `integers` (int8, the lecture's functions), `base` (what every
quantiser can do), `groups` (KIVI), `fp8`, `rotation`, `codebook`, then `open_blocks`,
`store` and `pool`. `ladder` measures what each costs and what it breaks.
"""

from paged_kv.quantization.base import Quantizer
from paged_kv.quantization.codebook import Codebook
from paged_kv.quantization.fp8 import Fp8E4M3
from paged_kv.quantization.groups import GroupedInt
from paged_kv.quantization.integers import (
    SymmetricInt,
    dequantize_block_int8,
    quantize_block_int8,
)
from paged_kv.quantization.pool import QuantizedBlockPool
from paged_kv.quantization.rotation import (
    Hadamard,
    RandomRotation,
    hadamard_matrix,
    random_rotation,
)

__all__ = [
    "Codebook",
    "Fp8E4M3",
    "GroupedInt",
    "Hadamard",
    "QuantizedBlockPool",
    "Quantizer",
    "RandomRotation",
    "SymmetricInt",
    "dequantize_block_int8",
    "hadamard_matrix",
    "quantize_block_int8",
    "random_rotation",
]
