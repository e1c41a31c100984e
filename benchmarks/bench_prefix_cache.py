"""``make bench``: both prefix caches, by the block; a long chat; memory; growth.

Processor time, not the clock on the wall: there is nothing to wait for, and a shared
machine would be measured instead.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc

import numpy as np

from paged_kv import BlockPool
from paged_kv.prefix_cache import PrefixCache
from paged_kv.radix_cache import RadixCache
from paged_kv.serving.prefix_workload import chat, replay

CACHES = (PrefixCache, RadixCache)
BLOCK = 16


def pool_of(num_blocks: int) -> BlockPool:
    """Return a pool with next to no memory for K and V: only the books are timed."""
    return BlockPool(num_blocks, 1, 1, 1, BLOCK, np.float16)


def steps(cache, tokens) -> dict[str, float]:
    """Run one request; return the seconds of each step."""
    now, seconds = time.process_time, {}
    start = now()
    cache.match(tokens)
    seconds["match"], start = now() - start, now()
    seq, _ = cache.admit("r", tokens)
    seconds["admit"], start = now() - start, now()
    cache.publish(seq, tokens)
    seconds["publish"], start = now() - start, now()
    seq.free()
    seconds["free"] = now() - start
    return seconds


def long_prompt(n_tokens: int = 32_768, repeats: int = 9) -> None:
    """A prompt of 32k tokens, once unknown and once cached."""
    blocks = n_tokens // BLOCK
    print(f"\na prompt of {n_tokens} tokens = {blocks} blocks, us per block")
    for make in CACHES:
        times: dict[str, list[dict[str, float]]] = {"cold": [], "hit": []}
        for repeat in range(repeats):
            cache = make(pool_of(blocks + 1))
            tokens = np.random.default_rng(repeat).integers(32_000, size=n_tokens)
            for kind in times:
                times[kind].append(steps(cache, tokens))
        for kind, runs in times.items():
            medians = {
                step: statistics.median(run[step] for run in runs) / blocks * 1e6
                for step in runs[0]
            }
            shown = "  ".join(f"{step} {us:5.2f}" for step, us in medians.items())
            total = sum(medians.values())
            print(f"  {make.__name__:<12} {kind:<5} {shown}  sum {total:5.2f}")


def long_chat(n: int = 100_000) -> None:
    """Replay 10^5 turns of chat in a pool that holds about half of what is said."""
    print(f"\n{n} requests of the chat workload, 4 running, pool of 2048 blocks")
    for make in CACHES:
        cache = make(pool_of(2048))
        start = time.process_time()
        replay(cache, chat(n, active=64), running=4)
        seconds = time.process_time() - start
        tokens = cache.stats.lookup_tokens
        print(
            f"  {make.__name__:<12} {seconds:6.1f} s"
            f"  {seconds / n * 1e6:6.0f} us/request"
            f"  {seconds / (tokens / BLOCK) * 1e6:5.2f} us/block of prompt"
            f"  hit rate {cache.stats.hit_rate:.1%}"
        )


def growth() -> None:
    """Time and memory of one cached block, with 10^3 … 10^5 of them."""
    length = 64 * BLOCK
    print("\ngrowth: prompts of 64 blocks that share nothing, the cache never full")
    for make in CACHES:
        for n_blocks in (1_000, 10_000, 100_000):
            n = n_blocks // 64
            rng = np.random.default_rng(0)
            prompts = rng.integers(32_000, size=(n, length))
            cache = make(pool_of(n * 64 + 64))
            fill, hit = (
                statistics.median(sum(steps(cache, p).values()) for p in prompts) / 64
                for _ in range(2)
            )
            print(
                f"  {make.__name__:<12} {cache.cached:>7} blocks cached: fill "
                f"{fill * 1e6:5.2f}, hit {hit * 1e6:5.2f} us/block, "
                f"{memory(make, prompts[:1000]):5.0f} B/block"
            )


def memory(make, prompts) -> float:
    """Return the bytes that the cache itself keeps for a cached block."""
    pool = pool_of(len(prompts) * 64 + 64)
    tracemalloc.start()
    cache = make(pool)
    # The queue replaces the free list, which a pool without a cache has as well.
    before = tracemalloc.get_traced_memory()[0]
    for i, prompt in enumerate(prompts):
        seq, _ = cache.admit(i, prompt)
        cache.publish(seq, prompt)
        seq.free()
    del seq
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / cache.cached


def eviction() -> None:
    """Admission into a full cache: each request evicts what it needs."""
    print("\neviction: prompts of 64 blocks that share nothing, the cache always full")
    for make in CACHES:
        for n_blocks in (1_000, 10_000, 100_000):
            rng = np.random.default_rng(0)
            n = n_blocks // 64
            cache = make(pool_of(n * 64))
            times = []
            for i in range(n + 300):
                prompt = rng.integers(32_000, size=64 * BLOCK)
                start = time.process_time()
                seq, _ = cache.admit(i, prompt)
                cache.publish(seq, prompt)
                seq.free()
                times.append(time.process_time() - start)
            us = statistics.median(times[n:]) / 64 * 1e6
            print(f"  {make.__name__:<12} {n_blocks:>7} blocks: {us:5.2f} us/block")


if __name__ == "__main__":
    long_prompt()
    growth()
    eviction()
    long_chat()
