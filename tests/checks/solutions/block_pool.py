"""A right solution of 09.1; the bank of mistakes changes its text."""

import numpy as np


class BlockPool:
    def __init__(
        self,
        num_blocks,
        n_layers,
        n_kv_heads,
        head_dim,
        block_size=16,
        dtype=np.float32,
    ):
        self.num_blocks = num_blocks
        self.block_size = block_size
        shape = (n_layers, num_blocks, block_size, n_kv_heads, head_dim)
        self.k = np.empty(shape, dtype)
        self.v = np.empty(shape, dtype)
        self.ref = np.zeros(num_blocks, np.int32)
        self.peak = 0
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def free(self):
        return len(self._free)

    @property
    def used(self):
        return self.num_blocks - len(self._free)

    def allocate(self):
        if not self._free:
            raise MemoryError("no free block")
        block = self._free.pop()
        self.ref[block] = 1
        self.peak = max(self.peak, self.used)
        return block

    def release(self, block):
        if self.ref[block] == 0:
            raise ValueError(f"block {block} is already free")
        self.ref[block] -= 1
        if self.ref[block] == 0:
            self._free.append(block)

    def bytes_per_block(self):
        return (self.k.nbytes + self.v.nbytes) // self.num_blocks


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
        shape = (pool.k.shape[0], *pool.k.shape[3:])
        if k.shape != shape or v.shape != shape:
            raise ValueError(f"expected {shape}, got {k.shape} and {v.shape}")
        slot = self.length % pool.block_size
        if slot == 0:
            self.block_table.append(pool.allocate())
        block = self.block_table[-1]
        pool.k[:, block, slot] = k
        pool.v[:, block, slot] = v
        self.length += 1
        return block

    def free(self):
        for block in reversed(self.block_table):
            self.pool.release(block)
        self.block_table = []
        self.length = 0
