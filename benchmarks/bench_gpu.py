"""``make bench``: decode over pages in torch, against SDPA over contiguous K and V.

On a CUDA device the Triton kernel as well. Times are those of the fastest runs.
"""

from __future__ import annotations

import torch
from timing import report

from paged_kv.gpu.measure import (
    copy_bandwidth,
    decode_problem,
    decode_ways,
    fastest,
)
from paged_kv.messages import use_language

N_HEADS, N_KV_HEADS, HEAD_DIM = 32, 8, 128
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
if CUDA:
    SIZES = [(n, length) for length in (4096, 32768) for n in (1, 8, 64)]
    DTYPES = [torch.bfloat16, torch.float16]
else:
    SIZES = [(1, 4096), (1, 16384), (8, 2048)]
    DTYPES = [torch.float32, torch.bfloat16]


def decode(num_seqs: int, length: int, dtype: torch.dtype, bandwidth: float) -> None:
    """Time one decode step of one layer, and tell how fast K and V were read."""
    p = decode_problem(num_seqs, length, N_HEADS, N_KV_HEADS, HEAD_DIM, dtype, DEVICE)
    ways = decode_ways(p)
    close = {"atol": 1e-5, "rtol": 1e-4}
    if dtype != torch.float32:
        close = {"atol": 2e-2, "rtol": 2e-2}
    for way in ways.values():
        torch.testing.assert_close(way().float(), ways["paged, torch"](), **close)
    seconds = fastest(ways, budget=2)
    report(f"decode, {num_seqs} x {length} tokens, {dtype}", seconds)
    for name, value in seconds.items():
        rate = p.kv_bytes / value
        print(f"  {name:<34} {rate / 1e9:8.1f} GB/s {rate / bandwidth:8.0%} of a copy")


if __name__ == "__main__":
    use_language("en")
    rate = copy_bandwidth(DEVICE)
    print(f"\n{DEVICE}: copying moves {rate / 1e9:.1f} GB/s (read and written)")
    for dtype in DTYPES:
        for num_seqs, length in SIZES:
            decode(num_seqs, length, dtype, rate)
