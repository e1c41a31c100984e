"""Small recorded runs that several tests look at."""

import random

from paged_kv import BlockAllocator, BlockPool, Sequence
from paged_kv.widgets import record


class Books(BlockAllocator):
    """A pool without storage, so that large ones cost nothing."""

    def copy_block(self, source, target):
        pass


def shared_prompt(forks=10, prompt=500, answer=3, num_blocks=64):
    """Return the run of exercise 09.3: forks of a prompt, answers, and the frees."""
    pool = Books(num_blocks)
    base = Sequence(pool, "sys")
    with record(pool, base) as history:
        base.reserve(prompt)
        requests = [base.fork(f"req{i}") for i in range(forks)]
        for request in requests:
            for _ in range(answer):
                request.reserve(1)
        base.free()
        for request in requests:
            request.free()
    return history


def mixed(num_blocks, sequences, rng, operations=200, block_size=16, prompt=100):
    """Return a run of random forks, appends and frees that never overfills."""
    pool = Books(num_blocks, block_size)
    base = Sequence(pool, "sys")
    live, made = [base], 0
    with record(pool, base) as history:
        base.reserve(prompt)
        for _ in range(operations):
            choice, seq = rng.random(), live[rng.randrange(len(live))]
            n = rng.randint(1, 3 * block_size)
            if choice < 0.15 and len(live) < sequences:
                live.append(seq.fork(f"req{made}"))
                made += 1
            elif choice < 0.25 and len(live) > 1:
                live.remove(seq)
                seq.free()
            elif seq.blocks_needed(n) <= pool.free:
                seq.reserve(n)
    return history


def filled(num_blocks, sequences):
    """Return a run that ends with a well mixed pool, three quarters full."""
    rng = random.Random(1)
    pool = Books(num_blocks)
    live = [Sequence(pool, "sys")]
    with record(pool, *live) as history:
        live[0].reserve(2 * num_blocks)
        while pool.used < 0.75 * num_blocks:
            seq = rng.choice(live)
            if len(live) < sequences:
                live.append(seq.fork(f"req{len(live)}"))
            seq.reserve(rng.randint(1, 40))
    return history


def small_pool(block_size=4, num_blocks=8):
    """Return our pool with storage for one number per token."""
    return BlockPool(num_blocks, 1, 1, 1, block_size=block_size)
