"""``make bench``: the real model: loading, prefill, decode by batch, products."""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
from timing import medians, report

from paged_kv import BlockPool, Sequence
from paged_kv.model import WeightsNotFound, load
from paged_kv.model.generation import extend
from paged_kv.model.llama import matmul
from paged_kv.model.measure import decode_time

RNG = np.random.default_rng(0)


def prefill(model) -> None:
    """Prompts of several lengths, in chunks, into a paged pool."""
    c = model.config
    print("\nprefill")
    for n in (64, 256, 1024):
        tokens = RNG.integers(0, c.vocab_size, n).tolist()
        pool = BlockPool(n // 16, c.n_layers, c.n_kv_heads, c.head_dim)
        seconds = []
        for _ in range(3):
            seq = Sequence(pool, "prompt")
            start = time.perf_counter()
            extend(model, pool, seq, tokens)
            seconds.append(time.perf_counter() - start)
            seq.free()
        print(f"  {n:5} tokens   {n / min(seconds):7.0f} tokens/s")


def decode(model) -> None:
    """Tokens per second by batch and context, and attention's share of a step."""
    for context in (32, 512):
        print(f"\ndecode, context {context}")
        for batch in (1, 2, 4, 8, 16):
            step = decode_time(model, batch, context, steps=6)
            rate, share = batch / step.total, step.attention / step.total
            print(f"  batch {batch:2}   {rate:7.0f} tokens/s   attention {share:4.0%}")


def products(model) -> None:
    """All matrices of three layers: the ways to multiply few rows."""
    names = ("q", "k", "v", "o", "gate", "up", "down")
    matrices = [model.weights[f"{i}.{name}"] for i in range(3) for name in names]
    for n in (1, 2, 4, 5, 8, 9, 16):
        rows = {
            W.shape[1]: RNG.normal(size=(n, W.shape[1])).astype(np.float32)
            for W in matrices
        }
        ways = {
            "matmul": lambda rows=rows: [matmul(rows[W.shape[1]], W) for W in matrices],
            "x @ W.T": lambda rows=rows: [rows[W.shape[1]] @ W.T for W in matrices],
            "row by row": lambda rows=rows: [
                W @ row for W in matrices for row in rows[W.shape[1]]
            ],
        }
        report(f"products of three layers, {n} rows", medians(ways))


def main() -> int:
    start = time.perf_counter()
    try:
        model, _ = load("smollm2-135m")
    except WeightsNotFound as error:
        print(f"the model: skipped, {error}")
        return 0
    seconds = time.perf_counter() - start
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"load   {seconds:.1f} s, at most {kilobytes / 1024:.0f} MiB resident")
    prefill(model)
    decode(model)
    products(model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
