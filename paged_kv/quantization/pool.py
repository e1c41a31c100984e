"""A block pool that keeps full blocks as codes and only the open tails exact."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from paged_kv.audit import HasBlockTable, HoldsBlocks, PoolCorrupted
from paged_kv.pool import BlockPool, float_dtype
from paged_kv.quantization.base import Quantizer
from paged_kv.quantization.integers import SymmetricInt
from paged_kv.quantization.open_blocks import OpenBlock, OpenBlocks
from paged_kv.quantization.store import CodeStore

Index = NDArray[np.intp]


class QuantizedBlockPool(BlockPool):
    """A `BlockPool` whose blocks are quantised when they become full.

    A block is *open* until each of its slots has been written: its K and V are exact
    and live in arrays of their own. With its last slot a layer of it is *coded*, once
    and from exact values, so codes do not depend on how the tokens arrived. A sequence
    has at most one open block, its tail. Writing into a coded block (after
    `Sequence.truncate`) opens it again, with the values that it reads back.

    Parameters
    ----------
    num_blocks, n_layers, n_kv_heads, head_dim, block_size, dtype
        As `BlockPool`; `dtype` is the type of the exact tails.
    k_quantizer, v_quantizer : Quantizer, optional
        int8 per block and head when not given. K and V never share a scale.

    Attributes
    ----------
    k_codes, v_codes : CodeStore
        Codes and parameters of all blocks; there is no `k` and no `v`.
    coded : ndarray of bool, shape (n_layers, num_blocks)
        Which blocks are read from their codes.
    open : OpenBlocks
        Exact values of the open blocks, at most one per sequence.
    """

    def __init__(
        self,
        num_blocks: int,
        n_layers: int,
        n_kv_heads: int,
        head_dim: int,
        block_size: int = 16,
        dtype: DTypeLike = np.float32,
        k_quantizer: Quantizer | None = None,
        v_quantizer: Quantizer | None = None,
    ) -> None:
        self._quantizers = (
            k_quantizer or SymmetricInt(),
            v_quantizer or SymmetricInt(),
        )
        super().__init__(num_blocks, n_layers, n_kv_heads, head_dim, block_size, dtype)

    def _make_storage(self, dtype: DTypeLike) -> None:
        self.dtype = float_dtype(dtype)
        shape = self.shape[2:]
        self.k_codes, self.v_codes = (
            CodeStore(quantizer, self.n_layers, self.num_blocks, shape)
            for quantizer in self._quantizers
        )
        self.coded = np.zeros((self.n_layers, self.num_blocks), np.bool_)
        self.open = OpenBlocks((self.n_layers, *shape), self.dtype)

    def bytes_per_block(self) -> int:
        """Bytes of one coded block: packed codes and parameters, K, V, all layers."""
        return (self.k_codes.nbytes + self.v_codes.nbytes) // self.num_blocks

    def bytes_per_open_block(self) -> int:
        """Bytes that an open block takes on top of its `bytes_per_block`."""
        return super().bytes_per_block() + self.n_layers * self.block_size

    @property
    def nbytes(self) -> int:
        """Bytes of all the pool's arrays now, open blocks and flags included."""
        codes = self.num_blocks * self.bytes_per_block() + self.coded.nbytes
        return codes + len(self.open) * self.bytes_per_open_block()

    def as_kv(
        self, K: ArrayLike, V: ArrayLike, shape: Seq[int]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """As `BlockPool.as_kv`; values beyond the quantisers' range are refused too.

        A block is coded long after it was accepted, and coding must not fail then.
        """
        K, V = super().as_kv(K, V, shape)
        for name, array, store in (("K", K, self.k_codes), ("V", V, self.v_codes)):
            if (amax := np.abs(array).max(initial=0)) > (limit := self._limit(store)):
                raise ValueError(
                    f"{name} has values up to {float(amax):g}, "
                    f"{store.quantizer.name} takes them up to {limit:g}"
                )
        return K, V

    def write(
        self, layer: int, slots: NDArray[np.int64], K: ArrayLike, V: ArrayLike
    ) -> None:
        """As `BlockPool.write`; blocks that become full in this layer are coded."""
        layer = self.layer_index(layer)
        slots = self._writable(slots)
        K, V = self.as_kv(K, V, (len(slots), self.n_kv_heads, self.head_dim))
        self._write(np.array([layer]), slots, K[None], V[None])

    def write_all_layers(
        self, slots: NDArray[np.int64], K: NDArray[Any], V: NDArray[Any]
    ) -> None:
        """As `BlockPool.write_all_layers`; blocks that become full are coded."""
        self._write(np.arange(self.n_layers), slots, K, V)

    def read_blocks(
        self, layer: int, blocks: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """As `BlockPool.read_blocks`, dequantised: float32, only these blocks."""
        layer = self.layer_index(layer)
        coded = self.coded[layer, blocks]
        K, V = (s.read((layer, blocks[coded])) for s in (self.k_codes, self.v_codes))
        if not coded.all():
            shape = (len(blocks), *K.shape[1:])
            coded_k, coded_v = K, V
            K, V = np.empty(shape, np.float32), np.empty(shape, np.float32)
            K[coded], V[coded] = coded_k, coded_v
            for i in np.flatnonzero(~coded):
                # A block reserved ahead has nothing: its slots hold anything.
                if exact := self.open.get(int(blocks[i])):
                    with np.errstate(all="ignore"):  # slots never written are junk
                        K[i], V[i] = exact.k[layer], exact.v[layer]
        rows = (-1, self.n_kv_heads, self.head_dim)
        return K.reshape(rows), V.reshape(rows)

    def copy_block(self, source: int, target: int) -> None:
        """Copy everything that belongs to a block: codes, parameters, exact values."""
        for store in (self.k_codes, self.v_codes):
            store.copy(source, target)
        self.coded[:, target] = self.coded[:, source]
        self.open.copy_block(source, target)

    def allocate(self) -> int:
        """As `BlockAllocator.allocate`; the block holds nothing."""
        block = super().allocate()
        self.coded[:, block] = False
        return block

    def allocate_many(self, n: int) -> list[int]:
        """As `BlockAllocator.allocate_many`; the blocks hold nothing."""
        blocks = super().allocate_many(n)
        self.coded[:, blocks] = False
        return blocks

    def release(self, block: int) -> None:
        """As `BlockAllocator.release`; a free block keeps no exact values."""
        super().release(block)
        self._close_free([block])

    def release_many(self, blocks: Iterable[int]) -> None:
        """As `BlockAllocator.release_many`; free blocks keep no exact values."""
        blocks = list(blocks)
        super().release_many(blocks)
        self._close_free(blocks)

    def check(
        self,
        sequences: Iterable[HasBlockTable] = (),
        holders: Iterable[HoldsBlocks] = (),
    ) -> None:
        """As `BlockAllocator.check`; open blocks are in use and not coded."""
        super().check(sequences, holders)
        for block in self.open:
            if not self.ref[block] or self.coded[:, block].all():
                raise PoolCorrupted(f"block {block} is free or coded, and still open")

    def _write(
        self, layers: Index, slots: NDArray[np.int64], K: NDArray[Any], V: NDArray[Any]
    ) -> None:
        """Write (len(layers), n, n_kv_heads, head_dim), run by run of one block."""
        bs = self.block_size
        cuts = np.flatnonzero(np.diff(slots // bs)) + 1
        for first, last in pairwise([0, *cuts.tolist(), len(slots)]):
            if first == last:  # no slots at all
                return
            block, offsets = int(slots[first]) // bs, slots[first:last] % bs
            rows = K[:, first:last], V[:, first:last]
            if np.array_equal(offsets, np.arange(bs)):
                self._code(layers, block, *rows)
                continue
            exact = self._opened(layers, block, int(offsets.min()))
            at = np.ix_(layers, offsets)
            exact.k[at], exact.v[at] = rows
            exact.written[at] = True
            if len(full := layers[exact.written[layers].all(axis=1)]):
                self._code(full, block, exact.k[full], exact.v[full])

    def _opened(self, layers: Index, block: int, first: int) -> OpenBlock:
        """Return the exact block, in which slots before `first` count as written."""
        exact = self.open.open(block)
        if len(again := layers[self.coded[layers, block]]):
            for array, store in ((exact.k, self.k_codes), (exact.v, self.v_codes)):
                limit = self._limit(store)  # a rounded scale may lead just beyond it
                array[again] = store.read((again, block)).clip(-limit, limit)
            exact.written[again] = np.arange(self.block_size) < first
            self.coded[again, block] = False
        return exact

    def _code(
        self, layers: Index, block: int, K: NDArray[Any], V: NDArray[Any]
    ) -> None:
        """Quantise a full block of some layers; the last layer closes it."""
        self.k_codes.write((layers, block), K)
        self.v_codes.write((layers, block), V)
        self.coded[layers, block] = True
        if self.coded[:, block].all():
            self.open.close([block])

    def _close_free(self, blocks: list[int]) -> None:
        self.open.close([block for block in blocks if not self.ref[block]])

    def _limit(self, store: CodeStore) -> float:
        """Return the largest magnitude that both the codes and the tails can hold."""
        exact = float(np.finfo(self.dtype).max) if self.dtype.kind == "f" else np.inf
        return min(exact, store.quantizer.largest(self.head_dim))
