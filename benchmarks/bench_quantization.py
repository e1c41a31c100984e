"""``make bench``: quantisers, attention over codes, memory of 4096 tokens."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from timing import medians, report

from paged_kv import BlockPool, Sequence, paged_attention
from paged_kv.quantization import (
    Codebook,
    Fp8E4M3,
    GroupedInt,
    Hadamard,
    QuantizedBlockPool,
    Quantizer,
    RandomRotation,
    SymmetricInt,
)

RNG = np.random.default_rng(0)
LENGTH, N_HEADS, N_KV_HEADS, HEAD_DIM = 4096, 32, 8, 128

# Quantiser of K, of V, and the tokens in a block.
SCHEMES: dict[str, tuple[Quantizer, Quantizer, int]] = {
    "int8/head": (SymmetricInt(8), SymmetricInt(8), 16),
    "int8/token": (SymmetricInt(8, "token"), SymmetricInt(8, "token"), 16),
    "fp8": (Fp8E4M3(), Fp8E4M3(), 16),
    "int4/head": (SymmetricInt(4), SymmetricInt(4), 16),
    "Hadamard int4": (
        Hadamard(SymmetricInt(4, "token")),
        Hadamard(SymmetricInt(4, "token")),
        16,
    ),
    "KIVI-4": (GroupedInt(4, "channel"), GroupedInt(4, "token"), 32),
    "KIVI-2": (GroupedInt(2, "channel"), GroupedInt(2, "token"), 32),
    "rotated L-M 3": (RandomRotation(Codebook(3)), RandomRotation(Codebook(3)), 16),
}


def throughput() -> None:
    """GB/s of float32 that go in (quantise) and come out (dequantise)."""
    for name, (quantizer, _, block_size) in SCHEMES.items():
        blocks = RNG.normal(size=(512 // block_size, block_size, N_KV_HEADS, HEAD_DIM))
        blocks = blocks.astype(np.float32)
        codes, params = quantizer.quantize(blocks)
        seconds = medians(
            {
                "quantise": lambda q=quantizer, b=blocks: q.quantize(b),
                "dequantise": lambda q=quantizer, c=codes, p=params: q.dequantize(c, p),
                "copy": blocks.copy,
            },
            repeats=9,
        )
        rates = {step: blocks.nbytes / s / 1e9 for step, s in seconds.items()}
        print(
            f"{name:14}", *(f"{step} {rate:5.2f} GB/s" for step, rate in rates.items())
        )


def attention() -> None:
    """One query over 4096 tokens: the int8 pool against the float32 one."""
    shape = (2, 1, LENGTH, N_KV_HEADS, HEAD_DIM)
    K, V = RNG.normal(size=shape).astype(np.float32)
    q = RNG.normal(size=(N_HEADS, HEAD_DIM)).astype(np.float32)
    pools: dict[str, BlockPool] = {
        "float32": BlockPool(LENGTH // 16, 1, N_KV_HEADS, HEAD_DIM),
        "float16": BlockPool(LENGTH // 16, 1, N_KV_HEADS, HEAD_DIM, dtype=np.float16),
    }
    for name in ("int8/head", "KIVI-2"):
        k, v, size = SCHEMES[name]
        pools[name] = QuantizedBlockPool(
            LENGTH // size, 1, N_KV_HEADS, HEAD_DIM, size, k_quantizer=k, v_quantizer=v
        )
    calls = {}
    for name, pool in pools.items():
        seq = Sequence(pool, name)
        seq.extend(K, V)
        calls[name] = lambda p=pool, s=seq: paged_attention(p, s, 0, q, HEAD_DIM**-0.5)
        read = pool.bytes_per_block() * len(seq.block_table)
        error = np.abs(calls[name]() - calls["float32"]()).max()
        print(f"{name:10} reads {read / 2**20:6.2f} MiB, off by {error:.4f} at most")
    report(f"paged_attention of one query, L={LENGTH}, one layer", medians(calls))


def memory() -> None:
    """Resident memory that 4096 tokens of a 4-layer model add, each in a fresh Python.

    A quarter or so of an 8B model's 32 layers, to stay small; linear in layers.
    """
    for name in ("float32", "float16", *SCHEMES):
        subprocess.run([sys.executable, __file__, name], check=True)


def resident_memory(name: str) -> None:
    """Fill a pool block by block and print what that added to this process."""
    n_layers = 4
    sizes = (n_layers, N_KV_HEADS, HEAD_DIM)
    if name in SCHEMES:
        k, v, size = SCHEMES[name]

        def make(blocks: int) -> BlockPool:
            return QuantizedBlockPool(
                blocks, *sizes, size, np.float16, k_quantizer=k, v_quantizer=v
            )
    else:
        size = 16

        def make(blocks: int) -> BlockPool:
            return BlockPool(blocks, *sizes, size, dtype=name)

    tokens = RNG.normal(size=(2, n_layers, size, N_KV_HEADS, HEAD_DIM))
    Sequence(make(1), "warm-up").extend(*tokens)  # libraries and scratch memory
    before = _resident()
    pool = make(LENGTH // size)
    seq = Sequence(pool, "seq")
    for _ in range(LENGTH // size):
        seq.extend(*tokens)
    added = _resident() - before
    told = pool.num_blocks * pool.bytes_per_block()
    print(f"{name:14} resident {added / 2**20:6.1f} MiB, told {told / 2**20:6.1f} MiB")


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return pages * 4096


if __name__ == "__main__":
    if len(sys.argv) > 1:
        resident_memory(sys.argv[1])
    else:
        throughput()
        attention()
        if sys.platform == "linux":
            memory()
