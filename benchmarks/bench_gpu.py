"""``make bench``: decode over pages in torch, against SDPA over contiguous K and V.

On a CUDA device the Triton kernel as well. Times are those of the fastest runs.
"""

from __future__ import annotations

import torch
from timing import report

from paged_kv.gpu import paged_attention_decode, usable_backends
from paged_kv.gpu.measure import copy_bandwidth, decode_problem, fastest

N_HEADS, N_KV_HEADS, HEAD_DIM = 32, 8, 128
SCALE = HEAD_DIM**-0.5
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
    sdpa = torch.nn.functional.scaled_dot_product_attention
    options = {"scale": SCALE, "enable_gqa": True}
    # All query heads of a KV head as rows of one product: SDPA reads K and V once.
    grouped = p.q.view(num_seqs, N_KV_HEADS, -1, HEAD_DIM)
    runs = {
        "SDPA, contiguous": lambda: sdpa(p.q[:, :, None], p.K, p.V, **options),
        "SDPA, contiguous, heads grouped": lambda: sdpa(grouped, p.K, p.V, scale=SCALE),
    }
    for backend in usable_backends() if CUDA else ("torch",):
        runs[f"paged, {backend}"] = lambda backend=backend: paged_attention_decode(
            *p.paged, SCALE, backend=backend
        )
    tolerance = {"atol": 2e-2, "rtol": 2e-2} if dtype != torch.float32 else {}
    for run in runs.values():
        out = run().reshape(num_seqs, N_HEADS, HEAD_DIM).float()
        torch.testing.assert_close(
            out, runs["paged, torch"](), **tolerance or {"atol": 1e-5, "rtol": 1e-4}
        )
    seconds = fastest(runs, budget=2)
    report(f"decode, {num_seqs} x {length} tokens, {dtype}", seconds)
    for name, value in seconds.items():
        rate = p.kv_bytes / value
        print(f"  {name:<34} {rate / 1e9:8.1f} GB/s {rate / bandwidth:8.0%} of a copy")


if __name__ == "__main__":
    rate = copy_bandwidth(DEVICE)
    print(f"\n{DEVICE}: copying moves {rate / 1e9:.1f} GB/s (read and written)")
    for dtype in DTYPES:
        for num_seqs, length in SIZES:
            decode(num_seqs, length, dtype, rate)
