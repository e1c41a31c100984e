"""The block pool: a fixed number of equal blocks of memory for K and V."""

from __future__ import annotations

import operator
from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from paged_kv.allocator import BlockAllocator, DoubleFree, OutOfBlocks
from paged_kv.spec import whole

# Whoever uses a pool catches its errors: they can be imported from here too.
__all__ = ["BlockPool", "DoubleFree", "OutOfBlocks"]

#: Names of the types that K and V can be stored in without a scale.
FLOATS = ("float16", "float32", "float64", "bfloat16")


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

    Raises
    ------
    ValueError
        For a size below 1, or a dtype that K and V cannot be stored in.

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
        self._make_storage(dtype)

    def _make_storage(self, dtype: DTypeLike) -> None:
        """Set `dtype`, `k` and `v`; pools with another storage replace this."""
        self.dtype = float_dtype(dtype)
        self.k = np.empty(self.shape, self.dtype)  # never zeroed: see Attributes
        self.v = np.empty(self.shape, self.dtype)

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """Shape of K, and of V, for the whole pool."""
        return (
            self.n_layers,
            self.num_blocks,
            self.block_size,
            self.n_kv_heads,
            self.head_dim,
        )

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
            For another shape, or a value that is not finite in the pool's dtype or,
            if that is float64, in float32: attention computes in it.
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
        slots = self._writable(slots)
        K, V = self.as_kv(K, V, (len(slots), self.n_kv_heads, self.head_dim))
        for store, rows in ((self.k, K), (self.v, V)):
            store[layer].reshape(-1, self.n_kv_heads, self.head_dim)[slots] = rows

    def write_all_layers(
        self, slots: NDArray[np.int64], K: NDArray[Any], V: NDArray[Any]
    ) -> None:
        """Write all layers of n consecutive tokens, checked before.

        Between the first and the last block boundary whole blocks are written at
        once.

        Parameters
        ----------
        slots : ndarray of int64, shape (n,)
            From `Sequence.reserve`.
        K, V : ndarray, shape (n_layers, n, n_kv_heads, head_dim)
            From `as_kv`.
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

    def _writable(self, slots: ArrayLike) -> NDArray[np.int64]:
        """Return `slots` as an array, or raise ValueError as `write` says."""
        given = np.asarray(slots)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise ValueError(f"slots must be whole numbers (n,), got {given!r}")
        end = self.num_blocks * self.block_size
        if given.size and not 0 <= given.min() <= given.max() < end:
            raise ValueError(
                f"slots {given.min()}…{given.max()} reach outside 0…{end - 1}"
            )
        slots = given.astype(np.int64, copy=False)
        blocks = np.unique(slots // self.block_size)
        if (others := blocks[self.ref[blocks] != 1]).size:
            raise ValueError(
                f"blocks {others.tolist()} have counts {self.ref[others].tolist()}: "
                "only a block with one owner may be written; reserve its slots first"
            )
        return slots

    def _as_stored(self, name: str, array: ArrayLike, shape: Seq[int]) -> NDArray[Any]:
        given = real_numbers(name, array)
        if given.shape != tuple(shape):
            raise ValueError(f"{name} has shape {given.shape}, expected {tuple(shape)}")
        # Too large for the storage type becomes inf here, and is reported as such; so
        # is what only float64 can hold, because attention computes in float32.
        with np.errstate(over="ignore", invalid="ignore"):
            stored = given.astype(self.dtype, copy=False)
            finite = np.isfinite(stored.astype(np.float32, copy=False))
        if not finite.all():
            narrowest = "float32" if self.dtype == np.float64 else self.dtype
            raise ValueError(
                f"{name} has NaN or values too large for {narrowest}: "
                f"first at index {tuple(np.argwhere(~finite)[0].tolist())}"
            )
        return stored


def real_numbers(name: str, array: ArrayLike) -> NDArray[Any]:
    """Return `array` as numpy's, or raise TypeError when it holds no real numbers."""
    given = np.asarray(array)
    if given.dtype.kind not in "fiu" and given.dtype.name != "bfloat16":
        raise TypeError(f"{name} must hold real numbers, got dtype {given.dtype}")
    return given


def float_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return `dtype`, or raise ValueError when K and V cannot be stored in it.

    Narrower types need a scale (`quantization`); wider ones some machines lack.
    """
    try:
        found = np.dtype(dtype)
    except TypeError:  # numpy learns "bfloat16" only from ml_dtypes, once imported
        found = None
    if found is None or found.name not in FLOATS:
        raise ValueError(
            f"dtype must be one of {', '.join(FLOATS)} (the last one from ml_dtypes), "
            f"got {dtype!r}"
        )
    return found
