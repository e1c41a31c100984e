"""What the model asks of a pool and its sequences, whoever wrote them.

The module's own classes reserve slots, write one layer at a time and read whole blocks.
A student's class has the interface of the lecture alone: `append` one token of all
layers, `block_table`, `free`, perhaps `fork`. Yet a layer's attention must see the new
token before the next layer's K and V exist: so a token of zeros is appended first (this
takes the block, and copies a shared one), and each layer then writes over the zeros,
where the block table says they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from paged_kv.audit import (
    HasBlockTable,
    HoldsBlocks,
    PoolCorrupted,
    audit,
    listed_by,
)
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence

Array = NDArray[Any]
Slots = NDArray[np.int64]


class AnyPool(Protocol):
    """A `BlockPool`, the module's or a student's."""

    k: Array
    v: Array
    ref: NDArray[np.int32]

    @property
    def free(self) -> int:
        """Number of blocks that nobody references."""


class AnySequence(Protocol):
    """A `Sequence`, the module's or a student's."""

    block_table: list[int]

    def __len__(self) -> int: ...

    def append(self, k: Array, v: Array) -> int:
        """Write one token of all layers; return its block."""

    def fork(self, new_id: object) -> Self:
        """Share all blocks; the first exercise has no such method."""

    def free(self) -> None:
        """Give all blocks back."""


class PoolSizes(NamedTuple):
    """Sizes of a pool, read off its arrays where it does not tell them."""

    n_layers: int
    num_blocks: int
    block_size: int
    n_kv_heads: int
    head_dim: int


def sizes(pool: AnyPool) -> PoolSizes:
    """Return the sizes of a pool; a quantised one has no `k` to read them off."""
    if isinstance(pool, BlockPool):
        return PoolSizes(
            pool.n_layers,
            pool.num_blocks,
            pool.block_size,
            pool.n_kv_heads,
            pool.head_dim,
        )
    return PoolSizes(*pool.k.shape)


def require_interface(pool: AnyPool, sequence_type: Any) -> None:
    """Raise TypeError when a student's classes lack what the model asks of them."""
    if isinstance(pool, BlockPool):
        return
    needs = (
        (type(pool).__name__, pool, ("k", "v", "ref", "free")),
        (sequence_type.__name__, sequence_type, ("append", "free", "__len__")),
    )
    for name, owner, attributes in needs:
        if missing := [a for a in attributes if not hasattr(owner, a)]:
            raise TypeError(f"the model needs {', '.join(missing)} of {name}")


def blocks_needed(pool: AnyPool, seq: AnySequence, n: int) -> int:
    """Blocks that `n` more tokens take, with a copy of a shared tail."""
    if isinstance(seq, Sequence):
        return seq.blocks_needed(n)
    size, length = sizes(pool).block_size, len(seq)
    total = -(-(length + n) // size)
    shared = n > 0 and length % size > 0 and pool.ref[seq.block_table[-1]] > 1
    return total - len(seq.block_table) + int(shared)


def reserve(pool: AnyPool, seq: AnySequence, n: int) -> None:
    """Make a sequence longer by `n` tokens, to be written by `write`.

    Ask `blocks_needed` before: a student's append may fail halfway.
    """
    if isinstance(seq, Sequence):
        seq.reserve(n)
        return
    shape = sizes(pool)
    zeros = np.zeros((shape.n_layers, shape.n_kv_heads, shape.head_dim), np.float32)
    before = len(seq)
    for _ in range(n):
        seq.append(zeros, zeros)
    name = type(seq).__name__
    if len(seq) != before + n:
        raise ValueError(
            f"{name}.append was called {n} times, and len(seq) went from {before} to "
            f"{len(seq)}: it must grow by one each time"
        )
    needed, listed = -(-len(seq) // shape.block_size), len(seq.block_table)
    if listed != needed:
        raise ValueError(
            f"after {name}.append {len(seq)} tokens need {needed} blocks, and "
            f"block_table lists {listed}"
        )


def slots(pool: AnyPool, seq: AnySequence, start: int, stop: int) -> Slots:
    """Return block · block_size + offset of tokens ``start … stop − 1``."""
    size = sizes(pool).block_size
    positions = np.arange(start, stop, dtype=np.int64)
    first = start // size
    blocks = np.array(seq.block_table[first : -(-stop // size)], np.int64)
    return blocks[positions // size - first] * size + positions % size


def write(pool: AnyPool, layer: int, slots: Slots, K: Array, V: Array) -> None:
    """Write one layer's K and V (n, n_kv_heads, head_dim) into slots."""
    if isinstance(pool, BlockPool):
        pool.write(layer, slots, K, V)
        return
    block, offset = np.divmod(slots, sizes(pool).block_size)
    pool.k[layer, block, offset], pool.v[layer, block, offset] = K, V


def read_blocks(pool: AnyPool, layer: int, blocks: Slots) -> tuple[Array, Array]:
    """Return one layer's K and V of whole blocks, (n · block_size, heads, dim)."""
    if isinstance(pool, BlockPool):
        return pool.read_blocks(layer, blocks)
    rows = (-1, *pool.k.shape[3:])
    return pool.k[layer, blocks].reshape(rows), pool.v[layer, blocks].reshape(rows)


def check(
    pool: AnyPool, sequences: Iterable[HasBlockTable], holders: Iterable[HoldsBlocks]
) -> None:
    """Audit a pool as `BlockPool.check` does; a student's, by its public names.

    Raises
    ------
    PoolCorrupted
        When a table does not fit its sequence's length, a count differs from the number
        of tables that list the block, or `free` from the number of blocks without
        references.
    """
    if isinstance(pool, BlockPool):
        pool.check(sequences, holders)
        return
    listed = listed_by(sequences, holders, sizes(pool).block_size)
    unused = np.flatnonzero(pool.ref == 0).tolist()  # it shows no list of free blocks
    audit(pool.ref, np.zeros_like(pool.ref), unused, listed)
    if len(unused) != pool.free:
        raise PoolCorrupted(
            f"{len(unused)} blocks have no references, free is {pool.free}"
        )
