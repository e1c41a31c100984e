"""``python -m paged_kv``: redo the lecture's experiments and check their numbers.

Exit status 0 only if every number is the one the lecture gives. Nothing here is an
``assert``, so it holds under ``python -O`` too.
"""

from __future__ import annotations

import argparse
import functools
import io
import sys

import numpy as np

from paged_kv import (
    AttentionState,
    BlockPool,
    KVCacheSpec,
    Sequence,
    dequantize_block_int8,
    gather_kv,
    paged_attention,
    partial_attention,
    quantize_block_int8,
    reference_attention,
)
from paged_kv.messages import LANGUAGES, language, tr, use_language
from paged_kv.spec import MiB

Check = tuple[str, object, object]  # what, got, wanted


def block_pool() -> list[Check]:
    """09.1: 64 sequences, reserved against paged."""
    print(tr("== 09.1 block pool: reservation against paging =="))
    max_len, block_size = 2048, 16
    lengths = np.random.default_rng(7).integers(10, max_len + 1, size=64)
    reserved = len(lengths) * (max_len // block_size)
    pool = BlockPool(reserved, n_layers=1, n_kv_heads=1, head_dim=1)
    sequences = [Sequence(pool, i) for i in range(len(lengths))]
    for seq, length in zip(sequences, lengths, strict=True):
        seq.reserve(int(length))
    tokens, paged = int(lengths.sum()), pool.used
    waste = paged * block_size - tokens
    ratio, waste_ratio = paged / reserved, waste / (paged * block_size)
    print(f"tokens={tokens} seqs={len(lengths)} max_len={max_len}")
    print(f"reserved_blocks={reserved} paged_blocks={paged} ratio={ratio:.3f}")
    print(f"waste_tokens={waste} waste_ratio={waste_ratio:.4%}")
    pool.check(sequences)
    for seq in sequences:
        seq.free()
    return [
        ("tokens", tokens, 70487),
        ("reserved_blocks", reserved, 8192),
        ("paged_blocks", paged, 4436),
        ("waste_tokens", waste, 489),
        ("blocks used after freeing", pool.used, 0),
    ]


def attention() -> list[Check]:
    """09.2: attention over pages against contiguous K and V."""
    print(
        tr("== 09.2 attention over pages: the block table against contiguous K, V ==")
    )
    length, n_heads, n_kv_heads, head_dim = 40, 4, 2, 64
    rng = np.random.default_rng(0)
    shape = (1, length, n_kv_heads, head_dim)
    K, V = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    q = rng.normal(size=(n_heads, head_dim)).astype(np.float32)
    pool = BlockPool(4, 1, n_kv_heads, head_dim)
    seq = Sequence(pool, "seq")
    seq.extend(K, V)
    scale = head_dim**-0.5
    reference = reference_attention(K[0], V[0], q, scale)
    # So short a sequence is scored in one go: take its blocks one by one as well.
    parts = [
        partial_attention(pool, seq, 0, q, scale, b, b + 1)
        for b in range(len(seq.block_table))
    ]
    by_blocks = functools.reduce(AttentionState.merge, parts).out
    paged = paged_attention(pool, seq, 0, q, scale)
    diff = max(float(np.abs(out - reference).max()) for out in (paged, by_blocks))
    print(f"L={length} blocks={seq.block_table} max|diff|={diff:.1e}")
    return [
        ("blocks", seq.block_table, [0, 1, 2]),
        ("max|diff| <= 1e-5", diff <= 1e-5, True),
    ]


def prefix_sharing() -> list[Check]:
    """09.3: one prompt, ten forks, copy-on-write."""
    print(tr("== 09.3 prefix sharing: fork and copy-on-write =="))
    prompt, forks, new_tokens = 500, 10, 3
    pool = BlockPool(64, n_layers=1, n_kv_heads=1, head_dim=1)
    rng = np.random.default_rng(1)
    K, V = rng.normal(size=(2, 1, prompt, 1, 1)).astype(np.float32)
    base = Sequence(pool, "system prompt")
    base.extend(K, V)
    after_prompt = (
        len(base.block_table),
        pool.used,
        int(pool.ref[base.block_table[-1]]),
    )
    print(
        f"system prompt: {prompt} tokens -> {after_prompt[0]} blocks, "
        f"used={after_prompt[1]}, ref[last]={after_prompt[2]}"
    )
    requests = [base.fork(f"req{i}") for i in range(forks)]
    for seq in requests:
        for _ in range(new_tokens):
            seq.append(*rng.normal(size=(2, 1, 1, 1)))
    tables = [list(seq.block_table) for seq in requests[:2]]
    for seq, table in zip(requests, tables, strict=False):
        ends = ", ".join(map(str, table[:2])), ", ".join(map(str, table[-2:]))
        print(f"{seq.seq_id}: [{ends[0]}, …, {ends[1]}]")
    shared = len(set(requests[0].block_table) & set(requests[1].block_table))
    print(f"shared physical blocks (req0 ∩ req1): {shared}")
    used = pool.used
    unshared = sum(-(-len(seq) // pool.block_size) for seq in requests)
    saved = unshared - used
    saved_mib = saved * KVCacheSpec.preset("llama-3-8b").bytes_per_block() / MiB
    print(
        f"total blocks used: {used} vs no-sharing {unshared}, "
        f"saved {saved} blocks = {saved_mib:.0f} {tr('MiB')}"
    )
    pool.check([base, *requests])
    base.free()
    after_base = pool.used
    print(f"after base.free(): pool.used={after_base}")
    intact = all(
        np.array_equal(gather_kv(pool, s, 0)[0][:prompt], K[0]) for s in requests
    )
    for seq in requests:
        seq.free()
    if pool.used == 0:
        print("pool empty after freeing all forks")
    return [
        ("blocks of the prompt, used, ref[last]", after_prompt, (32, 32, 1)),
        ("tables of req0 and req1", tables, [[*range(31), 32], [*range(31), 33]]),
        ("shared blocks", shared, 31),
        ("used blocks", used, 42),
        ("blocks without sharing", unshared, 320),
        ("saved MiB", saved_mib, 556),
        ("used after base.free()", after_base, 41),
        ("forks still read the prompt", intact, True),
        ("used after all frees", pool.used, 0),
    ]


def int8() -> list[Check]:
    """Section 6: the error of int8 blocks."""
    print(tr("== int8: a quantised block =="))
    block = np.random.default_rng(3).normal(scale=2.0, size=(16, 8, 128))
    block = block.astype(np.float32)
    codes, scale = quantize_block_int8(block)
    error = float(np.abs(dequantize_block_int8(codes, scale) - block).max())
    print(f"int8: scale shape={scale.shape}, max|err|={error:.4f}")
    bound = float(np.abs(block).max()) / 254
    return [
        ("scale shape", scale.shape, (1, 8, 1)),
        ("max|err|", f"{error:.4f}", "0.0318"),
        ("max|err| <= amax / 254", error <= bound * (1 + 1e-6), True),
    ]


def main(argv: list[str] | None = None) -> int:
    """Run all experiments; return 0 if every number holds, else 1."""
    parser = argparse.ArgumentParser(prog="python -m paged_kv", description=__doc__)
    parser.add_argument("--lang", choices=LANGUAGES, default=language())
    use_language(parser.parse_args(argv).lang)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a Windows console may be cp1251
        sys.stdout.reconfigure(encoding="utf-8")
    checks = [*block_pool(), *attention(), *prefix_sharing(), *int8()]
    wrong = [check for check in checks if check[1] != check[2]]
    for what, got, wanted in wrong:
        print(
            tr(
                "FAILED: {what} = {got}, expected {wanted}",
                what=what,
                got=got,
                wanted=wanted,
            )
        )
    if not wrong:
        print("OK")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
