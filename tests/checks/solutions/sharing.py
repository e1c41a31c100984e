"""A right solution of 09.3; the bank of mistakes changes its text."""

import numpy as np

from paged_kv import BlockPool, KVCacheSpec


class Sequence:
    def __init__(self, pool, seq_id):
        self.pool = pool
        self.seq_id = seq_id
        self.block_table = []
        self.length = 0

    def __len__(self):
        return self.length

    def append(self, k, v):
        pool = self.pool
        shape = (pool.n_layers, pool.n_kv_heads, pool.head_dim)
        if k.shape != shape or v.shape != shape:
            raise ValueError(f"expected {shape}, got {k.shape} and {v.shape}")
        slot = self.length % pool.block_size
        if slot == 0:
            self.block_table.append(pool.allocate())
        elif pool.ref[self.block_table[-1]] > 1:
            self._copy_last_block()
        block = self.block_table[-1]
        pool.k[:, block, slot] = k
        pool.v[:, block, slot] = v
        self.length += 1
        return block

    def _copy_last_block(self):
        pool = self.pool
        old = self.block_table[-1]
        new = pool.allocate()
        pool.k[:, new] = pool.k[:, old]
        pool.v[:, new] = pool.v[:, old]
        self.block_table[-1] = new
        pool.release(old)

    def fork(self, new_id):
        child = Sequence(self.pool, new_id)
        child.block_table = list(self.block_table)
        child.length = self.length
        for block in self.block_table:
            self.pool.ref[block] += 1
        return child

    def free(self):
        for block in reversed(self.block_table):
            self.pool.release(block)
        self.block_table = []
        self.length = 0


def prefix_sharing(Sequence, prompt=500, forks=10, answer=3):
    spec = KVCacheSpec.preset("llama-3-8b")
    pool = BlockPool(64, 1, 1, 1)
    token = np.zeros((1, 1, 1))
    base = Sequence(pool, "base")
    for _ in range(prompt):
        base.append(token, token)
    requests = [base.fork(f"req{i}") for i in range(forks)]
    for request in requests:
        for _ in range(answer):
            request.append(token, token)
    shared = len(set(requests[0].block_table) & set(requests[1].block_table))
    used = pool.used
    unshared = forks * spec.blocks_for(prompt + answer)
    base.free()
    used_after_base_free = pool.used
    for request in requests:
        request.free()
    return {
        "shared": shared,
        "used": used,
        "unshared": unshared,
        "saved_blocks": unshared - used,
        "saved_mib": (unshared - used) * spec.bytes_per_block() / 2**20,
        "used_after_base_free": used_after_base_free,
        "used_after_all_free": pool.used,
    }
