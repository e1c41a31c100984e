"""Paged attention on torch tensors, on any device, and as a Triton kernel.

Read in this order: `pool`, `batch`, `pages`, `decode`, `kernels`; then `prefill`,
`cascade`, `mla`. Importing this package imports torch; Triton is imported by the first
call that needs it (`interpreter.import_triton`).
"""

from paged_kv.gpu.accesses import record_accesses
from paged_kv.gpu.batch import batch_tables
from paged_kv.gpu.cascade import cascade_decode, common_blocks
from paged_kv.gpu.decode import paged_attention_decode, usable_backends
from paged_kv.gpu.interpreter import import_triton
from paged_kv.gpu.mla import paged_mla_decode
from paged_kv.gpu.pages import merge_states
from paged_kv.gpu.pool import TorchBlockPool
from paged_kv.gpu.prefill import paged_prefill

__all__ = [
    "TorchBlockPool",
    "batch_tables",
    "cascade_decode",
    "common_blocks",
    "import_triton",
    "merge_states",
    "paged_attention_decode",
    "paged_mla_decode",
    "paged_prefill",
    "record_accesses",
    "usable_backends",
]
