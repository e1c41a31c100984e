"""Classes as students write them: other insides than ours, and mistakes."""

import copy
from array import array
from dataclasses import dataclass

import numpy as np


class OutOfBlocks(Exception):
    """Her own, unlike the course's no MemoryError."""


class ListPool:
    """Right, with a list of counts, a list of free ids and no other attributes."""

    def __init__(self, num_blocks, n_layers, n_kv_heads, head_dim, block_size=16):
        shape = (n_layers, num_blocks, block_size, n_kv_heads, head_dim)
        self.k, self.v = np.zeros(shape), np.zeros(shape)
        self.ref = [0] * num_blocks
        self.available = list(range(num_blocks))
        self.peak = 0

    @property
    def used(self):
        return len(self.ref) - len(self.available)

    @property
    def free(self):
        return len(self.available)

    def allocate(self):
        if not self.available:
            raise OutOfBlocks("nothing left")
        block = self.available.pop(0)
        self.ref[block] = 1
        self.peak = max(self.peak, self.used)
        return block

    def release(self, block):
        if self.ref[block] == 0:
            raise ValueError(f"block {block} is free")
        self.ref[block] -= 1
        if self.ref[block] == 0:
            self.available.append(block)


class PlainSequence:
    """Right; `table` is the type of its block table."""

    table = list

    def __init__(self, pool, seq_id):
        self.pool, self.seq_id = pool, seq_id
        self.block_table = self.table()
        self.length = 0

    def __len__(self):
        return self.length

    def append(self, k, v):
        block_size = self.pool.k.shape[2]
        slot = self.length % block_size
        if slot == 0:
            self.block_table.append(self.pool.allocate())
        elif self.pool.ref[self.block_table[-1]] > 1:
            self.copy_tail()
        block = self.block_table[-1]
        self.pool.k[:, block, slot], self.pool.v[:, block, slot] = k, v
        self.length += 1
        return block

    def copy_tail(self):
        own, old = self.pool.allocate(), self.block_table[-1]
        self.pool.k[:, own] = self.pool.k[:, old]
        self.pool.v[:, own] = self.pool.v[:, old]
        self.block_table[-1] = own
        self.pool.release(old)

    def fork(self, new_id):
        child = type(self)(self.pool, new_id)
        child.block_table = self.table(self.block_table)
        child.length = self.length
        for block in self.block_table:
            self.pool.ref[block] += 1
        return child

    def free(self):
        while self.block_table:
            self.pool.release(self.block_table.pop())
        self.length = 0


class ArraySequence(PlainSequence):
    """Its block table is an `array.array`."""

    @staticmethod
    def table(ids=()):
        return array("i", ids)


class SlotsSequence(PlainSequence):
    """No `__dict__` beyond what the parent has, and a guarded `__setattr__`."""

    __slots__ = ()

    def __setattr__(self, name, value):
        if name not in ("pool", "seq_id", "block_table", "length"):
            raise AttributeError(name)
        super().__setattr__(name, value)


@dataclass(slots=True)
class DataSequence:
    """A dataclass with slots: nothing can be added to its instances."""

    pool: object
    seq_id: object
    block_table: list = None
    length: int = 0

    def __post_init__(self):
        self.block_table = self.block_table or []

    __len__ = PlainSequence.__len__
    append = PlainSequence.append
    copy_tail = PlainSequence.copy_tail
    free = PlainSequence.free

    def fork(self, new_id):
        child = DataSequence(self.pool, new_id, list(self.block_table), self.length)
        for block in child.block_table:
            self.pool.ref[block] += 1
        return child


class CopyingSequence(PlainSequence):
    """Forks by `copy.copy`, which takes everything along that sits on the object."""

    def fork(self, new_id):
        child = copy.copy(self)
        child.seq_id, child.block_table = new_id, list(self.block_table)
        for block in child.block_table:
            self.pool.ref[block] += 1
        return child


RIGHT = (PlainSequence, ArraySequence, SlotsSequence, DataSequence, CopyingSequence)


# ---- mistakes


class LeakingSequence(PlainSequence):
    """free() forgets to give the blocks back."""

    def free(self):
        self.block_table, self.length = [], 0


class SharedListSequence(PlainSequence):
    """fork() hands the same list to the child."""

    def fork(self, new_id):
        child = super().fork(new_id)
        child.block_table = self.block_table
        return child


class NoCountSequence(PlainSequence):
    """fork() does not count the new references."""

    def fork(self, new_id):
        child = type(self)(self.pool, new_id)
        child.block_table, child.length = list(self.block_table), self.length
        return child


class NoCopySequence(PlainSequence):
    """append() writes into a block that others read."""

    def copy_tail(self):
        pass


class EmptyCopySequence(PlainSequence):
    """Copy-on-write takes a new block and copies nothing into it."""

    def copy_tail(self):
        old = self.block_table[-1]
        self.block_table[-1] = self.pool.allocate()
        self.pool.release(old)


class EagerSequence(PlainSequence):
    """append() takes a block too early, when the last one has just become full."""

    def append(self, k, v):
        block = super().append(k, v)
        if self.length % self.pool.k.shape[2] == 0:
            self.block_table.append(self.pool.allocate())
        return block


class HalfFailedSequence(PlainSequence):
    """append() counts the token even when there was no block for it."""

    def append(self, k, v):
        try:
            return super().append(k, v)
        except OutOfBlocks:
            self.length += 1
            raise


class StubSequence(PlainSequence):
    """fork() is not written yet."""

    def fork(self, new_id):
        raise NotImplementedError


class EndlessSequence(PlainSequence):
    """fork() never ends."""

    def fork(self, new_id):
        while True:
            pass


class ForgetfulPool(ListPool):
    """release() counts down, and the block never becomes free again."""

    def release(self, block):
        self.ref[block] -= 1


class SilentPool(ListPool):
    """A release too many is accepted."""

    def release(self, block):
        self.ref[block] = max(0, self.ref[block] - 1)
        if self.ref[block] == 0:
            self.available.append(block)


class NonePool(ListPool):
    """allocate() returns nothing."""

    def allocate(self):
        super().allocate()


class BoastfulPool(ListPool):
    """`used` is wrong."""

    used = property(lambda self: 99)


WRONG_SEQUENCES = (
    LeakingSequence,
    SharedListSequence,
    NoCountSequence,
    NoCopySequence,
    EmptyCopySequence,
    EagerSequence,
    HalfFailedSequence,
)
WRONG_POOLS = (ForgetfulPool, SilentPool, NonePool, BoastfulPool)
