"""The block pool: a fixed number of equal blocks, reference counts, a free list.

`BlockAllocator` keeps the books, `BlockPool` adds the memory. The split lets the same
books stand over other storages (torch tensors, quantised codes) or over none at all
(a simulator).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from paged_kv.spec import whole


class OutOfBlocks(MemoryError):
    """The pool has fewer free blocks than an operation needs."""


class DoubleFree(ValueError):
    """A reference was dropped from a block that has none."""


class PoolCorrupted(RuntimeError):
    """An invariant of the pool does not hold; raised only by `check`."""


class HasBlockTable(Protocol):
    """What `check` reads of a sequence."""

    block_table: list[int]

    def __len__(self) -> int: ...


class HoldsBlocks(Protocol):
    """What `check` reads of a holder: a cache that keeps references of its own."""

    def held_blocks(self) -> Iterable[int]:
        """Yield a block id for each reference held."""


class BlockAllocator:
    """Who owns which block. No memory, only the books.

    Parameters
    ----------
    num_blocks : int
        Blocks in the pool, ids 0 … num_blocks − 1.
    block_size : int
        Tokens per block.

    Attributes
    ----------
    ref : ndarray of int32, shape (num_blocks,)
        References to each block: how many tables and caches list it.
    peak : int
        The most blocks that were in use at one time.
    """

    def __init__(self, num_blocks: int, block_size: int = 16) -> None:
        self.num_blocks = whole("num_blocks", num_blocks, 1)
        self.block_size = whole("block_size", block_size, 1)
        self.ref: NDArray[np.int32] = np.zeros(self.num_blocks, dtype=np.int32)
        self.peak = 0
        # A stack with block 0 on top: O(1) both ways, and the block freed last, which
        # may still be warm in the processor's cache, is handed out first.
        self._free_list = list(range(self.num_blocks - 1, -1, -1))

    @property
    def free(self) -> int:
        """Number of blocks that nobody references."""
        return len(self._free_list)

    @property
    def used(self) -> int:
        """Number of blocks that somebody references."""
        return self.num_blocks - len(self._free_list)

    def allocate(self) -> int:
        """Hand out one block with a reference count of 1.

        Raises
        ------
        OutOfBlocks
            When no block is free.
        """
        free_list = self._free_list
        if not free_list:
            raise OutOfBlocks(self._shortage(1))
        block = free_list.pop()
        self.ref[block] = 1
        used = self.num_blocks - len(free_list)
        if used > self.peak:
            self.peak = used
        return block

    def allocate_many(self, n: int) -> list[int]:
        """Hand out `n` blocks, or none at all.

        Raises
        ------
        OutOfBlocks
            When fewer than `n` blocks are free; none is taken then.
        """
        n = whole("n", n, 0)
        free_list = self._free_list
        if n > len(free_list):
            raise OutOfBlocks(self._shortage(n))
        blocks = [free_list.pop() for _ in range(n)]
        self.ref[blocks] = 1
        self.peak = max(self.peak, self.used)
        return blocks

    def retain(self, blocks: Iterable[int]) -> None:
        """Add one reference to each of `blocks`, all of them in use.

        Raises
        ------
        ValueError
            When a block is free or outside the pool; no count changes then.
        """
        ids = [self._block_id(block) for block in blocks]
        for block in ids:
            if not self.ref[block]:
                raise ValueError(f"block {block} is free: allocate it, do not share it")
        np.add.at(self.ref, ids, 1)

    def release(self, block: int) -> None:
        """Drop one reference; at zero the block becomes free.

        Raises
        ------
        DoubleFree
            When the block has no reference left.
        ValueError
            When the id is outside the pool.
        """
        block = self._block_id(block)
        count = self.ref.item(block)
        if count == 1:
            self.ref[block] = 0
            self._free_list.append(block)
        elif count > 1:
            self.ref[block] = count - 1
        else:
            raise DoubleFree(f"block {block} is already free")

    def release_many(self, blocks: Iterable[int]) -> None:
        """Drop one reference from each of `blocks`, in order, or from none.

        Raises
        ------
        DoubleFree
            When a block is listed more often than it has references.
        ValueError
            When an id is outside the pool.
        """
        ids = [self._block_id(block) for block in blocks]
        counts = self.ref[ids].tolist()
        if min(counts, default=1) > 0 and len(set(ids)) == len(ids):
            self.ref[ids] -= 1
            last = [b for b, count in zip(ids, counts, strict=True) if count == 1]
            self._free_list.extend(last)
            return
        for block, times in Counter(ids).items():
            if times > (count := self.ref.item(block)):
                raise DoubleFree(
                    f"block {block} is released {times} times, has {count} references"
                )
        for block in ids:
            self.release(block)

    def check(
        self,
        sequences: Iterable[HasBlockTable] = (),
        holders: Iterable[HoldsBlocks] = (),
    ) -> None:
        """Audit the books against everybody who holds blocks.

        Parameters
        ----------
        sequences : iterable of Sequence
            All sequences that use this pool; freed ones may be among them.
        holders : iterable
            Caches with references of their own; each has `held_blocks()`.

        Raises
        ------
        PoolCorrupted
            When a count differs from the number of tables and holders that list the
            block, a block is free with references or neither free nor referenced, or
            a table does not have ceil(len / block_size) entries.
        """
        listed: Counter[int] = Counter()
        for seq in sequences:
            table, length = list(seq.block_table), len(seq)
            needed = -(-length // self.block_size)
            if len(table) != needed:
                name = getattr(seq, "seq_id", seq)
                raise PoolCorrupted(
                    f"sequence {name!r} of {length} tokens lists {len(table)} blocks, "
                    f"needs {needed}"
                )
            listed.update(table)
        for holder in holders:
            listed.update(holder.held_blocks())
        if outside := [b for b in listed if not 0 <= b < self.num_blocks]:
            raise PoolCorrupted(f"blocks outside 0…{self.num_blocks - 1}: {outside}")
        free = Counter(self._free_list)
        for block, count in enumerate(self.ref.tolist()):
            if count != listed[block]:
                raise PoolCorrupted(
                    f"block {block}: count {count}, listed {listed[block]} times"
                )
            if free[block] != (count == 0):
                raise PoolCorrupted(
                    f"block {block}: count {count}, "
                    f"{free[block]} times in the free list"
                )
        if self.peak < self.used:
            raise PoolCorrupted(f"peak {self.peak} is below used {self.used}")

    def _block_id(self, block: int) -> int:
        """Return `block` as an int; a negative id must not wrap to the pool's end."""
        number = operator.index(block)
        if not 0 <= number < self.num_blocks:
            raise ValueError(f"block {number} is outside 0…{self.num_blocks - 1}")
        return number

    def _shortage(self, n: int) -> str:
        return (
            f"needs {n} block{'s' * (n != 1)}, {self.free} free of {self.num_blocks}; "
            "free a sequence or make the pool larger"
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_blocks={self.num_blocks}, "
            f"block_size={self.block_size}, used={self.used}, free={self.free}, "
            f"peak={self.peak})"
        )


class BlockPool(BlockAllocator):
    """Blocks of `block_size` token slots for K and V of every layer, in numpy.

    Parameters
    ----------
    num_blocks, n_layers, n_kv_heads, head_dim, block_size : int
        Sizes, all at least 1.
    dtype : dtype
        Storage type: float16, float32, float64 or ml_dtypes' bfloat16.

    Attributes
    ----------
    k, v : ndarray, shape (n_layers, num_blocks, block_size, n_kv_heads, head_dim)
        Storage. A fresh or reused block holds whatever was there before: nobody may
        read a slot beyond a sequence's length.

    Notes
    -----
    Block table and block pool follow Kwon et al., SOSP'23, section 4.2.
    """

    def __init__(
        self,
        num_blocks: int,
        n_layers: int,
        n_kv_heads: int,
        head_dim: int,
        block_size: int = 16,
        dtype: DTypeLike = np.float32,
    ) -> None:
        super().__init__(num_blocks, block_size)
        self.n_layers = whole("n_layers", n_layers, 1)
        self.n_kv_heads = whole("n_kv_heads", n_kv_heads, 1)
        self.head_dim = whole("head_dim", head_dim, 1)
        self.dtype = np.dtype(dtype)
        if self.dtype.kind != "f" and self.dtype.name != "bfloat16":
            raise ValueError(f"dtype must be a float type, got {self.dtype}")
        shape = (
            self.n_layers,
            self.num_blocks,
            self.block_size,
            self.n_kv_heads,
            self.head_dim,
        )
        self.k = np.empty(shape, self.dtype)  # never zeroed: see Attributes
        self.v = np.empty(shape, self.dtype)

    def bytes_per_block(self) -> int:
        """Bytes of one block, K and V of all layers."""
        elements = self.n_layers * self.block_size * self.n_kv_heads * self.head_dim
        return 2 * elements * self.dtype.itemsize

    def as_kv(
        self, K: ArrayLike, V: ArrayLike, shape: Seq[int]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return `K` and `V` in the pool's dtype, checked before anything is written.

        Parameters
        ----------
        K, V : array_like
            New keys and values; not broadcast.
        shape : sequence of int
            The shape that both must have.

        Raises
        ------
        ValueError
            For another shape, or a value that is not finite in the pool's dtype.
        TypeError
            For something that does not hold real numbers.
        """
        return self._as_stored("K", K, shape), self._as_stored("V", V, shape)

    def write(
        self, layer: int, slots: NDArray[np.int64], K: ArrayLike, V: ArrayLike
    ) -> None:
        """Write one layer's K and V of n tokens into reserved slots.

        Parameters
        ----------
        layer : int
            Layer index, 0 … n_layers − 1.
        slots : ndarray of int64, shape (n,)
            Slot mapping as `Sequence.reserve` returns it: block · block_size + offset.
        K, V : array_like, shape (n, n_kv_heads, head_dim)

        Raises
        ------
        ValueError
            For a layer or a slot outside the pool, a slot in a free or shared block,
            or K and V as in `as_kv`; nothing is written then.
        """
        layer = self.layer_index(layer)
        slots = np.asarray(slots)
        if slots.ndim != 1 or slots.dtype.kind not in "iu":
            raise ValueError(f"slots must be whole numbers (n,), got {slots!r}")
        K, V = self.as_kv(K, V, (len(slots), self.n_kv_heads, self.head_dim))
        if not len(slots):
            return
        if slots.min() < 0 or slots.max() >= self.num_blocks * self.block_size:
            raise ValueError(
                f"slots {slots.min()}…{slots.max()} reach outside "
                f"0…{self.num_blocks * self.block_size - 1}"
            )
        blocks = np.unique(slots // self.block_size)
        if (others := blocks[self.ref[blocks] != 1]).size:
            raise ValueError(
                f"blocks {others.tolist()} have counts {self.ref[others].tolist()}: "
                "only a block with one owner may be written; reserve its slots first"
            )
        for store, rows in ((self.k, K), (self.v, V)):
            store[layer].reshape(-1, self.n_kv_heads, self.head_dim)[slots] = rows

    def write_all_layers(
        self, slots: NDArray[np.int64], K: NDArray[Any], V: NDArray[Any]
    ) -> None:
        """Write all layers of n consecutive tokens; `K`, `V` come from `as_kv`.

        Between the first and the last block boundary whole blocks are written at
        once; `slots` come from `Sequence.reserve`.
        """
        bs = self.block_size
        n = len(slots)
        head = min(n, -int(slots[0]) % bs) if n else 0
        tail = head + (n - head) // bs * bs
        blocks = slots[head:tail:bs] // bs
        for store, rows in ((self.k, K), (self.v, V)):
            by_slot = store.reshape(self.n_layers, -1, self.n_kv_heads, self.head_dim)
            if head:
                by_slot[:, slots[0] : slots[0] + head] = rows[:, :head]
            if len(blocks):
                whole = rows[:, head:tail]
                store[:, blocks] = whole.reshape(
                    self.n_layers, -1, bs, self.n_kv_heads, self.head_dim
                )
            if tail < n:
                by_slot[:, slots[tail] : slots[tail] + n - tail] = rows[:, tail:]

    def read_blocks(
        self, layer: int, blocks: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return K and V of whole blocks, one after the other.

        Parameters
        ----------
        layer : int
        blocks : ndarray of int64, shape (n,)
            Physical ids, in logical order.

        Returns
        -------
        K, V : ndarray, shape (n · block_size, n_kv_heads, head_dim)
            Slots beyond the owner's length hold anything, NaN included.
        """
        layer = self.layer_index(layer)
        rows = (-1, self.n_kv_heads, self.head_dim)
        return self.k[layer, blocks].reshape(rows), self.v[layer, blocks].reshape(rows)

    def copy_block(self, source: int, target: int) -> None:
        """Copy everything that belongs to a block: K and V of all layers."""
        self.k[:, target] = self.k[:, source]
        self.v[:, target] = self.v[:, source]

    def layer_index(self, layer: int) -> int:
        """Return `layer` as an int, or raise ValueError when there is no such layer."""
        number = operator.index(layer)
        if not 0 <= number < self.n_layers:
            raise ValueError(f"layer {number} is outside 0…{self.n_layers - 1}")
        return number

    def _as_stored(self, name: str, array: ArrayLike, shape: Seq[int]) -> NDArray[Any]:
        given = np.asarray(array)
        if given.shape != tuple(shape):
            raise ValueError(f"{name} has shape {given.shape}, expected {tuple(shape)}")
        if given.dtype.kind not in "fiu" and given.dtype.name != "bfloat16":
            raise TypeError(f"{name} must hold real numbers, got dtype {given.dtype}")
        # Too large for the storage type becomes inf here, and is reported as such.
        with np.errstate(over="ignore"):
            stored = given.astype(self.dtype, copy=False)
        if not np.isfinite(stored).all():
            raise ValueError(
                f"{name} has NaN or values too large for {self.dtype}: "
                f"first at index {tuple(np.argwhere(~np.isfinite(stored))[0].tolist())}"
            )
        return stored
