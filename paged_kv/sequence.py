"""One request's view of the pool: a block table that grows, forks and is freed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.allocator import OutOfBlocks
from paged_kv.pool import BlockPool
from paged_kv.spec import whole


class Sequence:
    """The tokens of one request, in blocks of a pool.

    Token t lives in physical block ``block_table[t // block_size]`` at offset
    ``t % block_size``. Only the last block may be partial.

    Parameters
    ----------
    pool : BlockPool
        Where the blocks come from.
    seq_id : object
        Name of the request, for people.

    Attributes
    ----------
    block_table : list of int
        Physical block of each logical block; ceil(length / block_size) entries.
    length : int
        Tokens held; the same as ``len(seq)``.
    freed : bool
        Whether `free` was called.

    Notes
    -----
    Every method but `free` leaves pool and sequence unchanged when it raises. Any use
    after `free` is a RuntimeError.
    """

    def __init__(self, pool: BlockPool, seq_id: object) -> None:
        self.pool = pool
        self.seq_id = seq_id
        self.block_table: list[int] = []
        self.length = 0
        self.freed = False

    def __len__(self) -> int:
        return self.length

    def append(self, k: ArrayLike, v: ArrayLike) -> int:
        """Write K and V of one token, all layers.

        Parameters
        ----------
        k, v : array_like, shape (n_layers, n_kv_heads, head_dim)

        Returns
        -------
        int
            The physical block that was written.

        Raises
        ------
        OutOfBlocks
            When a block is needed and none is free.
        ValueError
            For a wrong shape or values that are not finite in the pool's dtype.
        """
        self._require_live()
        pool = self.pool
        shape = (pool.n_layers, pool.n_kv_heads, pool.head_dim)
        k, v = pool.as_kv(k, v, shape)
        self._reserve_and_write(k[:, None], v[:, None])
        return self.block_table[-1]

    def extend(self, K: ArrayLike, V: ArrayLike) -> NDArray[np.int64]:
        """Write K and V of T tokens, all layers; the same as T appends, but at once.

        Parameters
        ----------
        K, V : array_like, shape (n_layers, T, n_kv_heads, head_dim)
            T may be 0.

        Returns
        -------
        ndarray of int64, shape (T,)
            The slot mapping, as from `reserve`.

        Raises
        ------
        OutOfBlocks
            When the blocks for all T tokens are not free.
        ValueError
            As `append`.
        """
        self._require_live()
        pool = self.pool
        n = np.shape(K)[1] if np.ndim(K) > 1 else 0
        K, V = pool.as_kv(K, V, (pool.n_layers, n, pool.n_kv_heads, pool.head_dim))
        return self._reserve_and_write(K, V)

    def reserve(self, n: int) -> NDArray[np.int64]:
        """Make room for `n` tokens whose K and V are written later.

        A model produces K and V one layer at a time, and each layer's attention must
        already see the new tokens: reserve once, then `BlockPool.write` per layer.

        Parameters
        ----------
        n : int
            Tokens to add, at least 0. The sequence is longer by `n` at once.

        Returns
        -------
        ndarray of int64, shape (n,)
            Slot of each new token: physical block · block_size + offset.

        Raises
        ------
        OutOfBlocks
            When fewer blocks are free than `blocks_needed(n)`.
        """
        needed = self.blocks_needed(n)
        n = int(n)  # a numpy integer would make the length one, which can overflow
        pool, table, bs = self.pool, self.block_table, self.pool.block_size
        if needed > pool.free:
            raise OutOfBlocks(
                f"sequence {self.seq_id!r} of {self.length} tokens needs {needed} "
                f"block{'s' * (needed != 1)} for {n} more, {pool.free} free of "
                f"{pool.num_blocks}"
            )
        new = pool.allocate_many(needed)
        # Ownership: the shared tail changes hands first (its other holders keep the
        # old block), then the table takes over the new blocks in logical order.
        if n and self._tail_is_shared():
            try:
                pool.copy_block(table[-1], new[0])
            except BaseException:  # a codec or a device may be out of memory
                pool.release_many(reversed(new))
                raise
            shared, table[-1] = table[-1], new.pop(0)
            pool.release_many([shared])
        elif n and self.length % bs:
            pool.overwrite(table[-1])
        table += new
        self.length += n
        return self.slots(self.length - n)

    def slots(self, start: int = 0) -> NDArray[np.int64]:
        """Return the slot of each token from `start` on.

        `reserve` returns this for the tokens it makes room for; after a prefix cache
        admitted a request, ``slots(n_cached)`` are the ones still to be written.

        Returns
        -------
        ndarray of int64, shape (length − start,)
            Physical block · block_size + offset.

        Raises
        ------
        ValueError
            When `start` is negative or above the length.
        """
        self._require_live()
        bs = self.pool.block_size
        start = whole("start", start, 0)
        if start > self.length:
            raise ValueError(f"start {start} is above the length {self.length}")
        positions = np.arange(start, self.length, dtype=np.int64)
        first = start // bs
        blocks = np.array(self.block_table[first:], dtype=np.int64)
        return blocks[positions // bs - first] * bs + positions % bs

    def blocks_needed(self, n_tokens: int) -> int:
        """Blocks that `n_tokens` more tokens take, with a copy of a shared tail.

        What a scheduler asks before it promises room.

        Raises
        ------
        ValueError
            For a number of tokens that is not whole or below 0.
        """
        self._require_live()
        n_tokens = whole("n_tokens", n_tokens, 0)
        total = -(-(self.length + n_tokens) // self.pool.block_size)
        copies = int(n_tokens > 0 and self._tail_is_shared())
        return total - len(self.block_table) + copies

    def truncate(self, n: int) -> None:
        """Keep the first `n` tokens and return the blocks of the rest.

        Raises
        ------
        ValueError
            When `n` is negative or above the length.
        """
        self._require_live()
        n = whole("n", n, 0)
        if n > self.length:
            raise ValueError(f"cannot truncate {self.length} tokens to {n}")
        keep = -(-n // self.pool.block_size)
        # Tail first: the heads of shared prefixes should live longest.
        self.pool.release_many(reversed(self.block_table[keep:]))
        del self.block_table[keep:]
        self.length = n

    def fork(self, new_id: object) -> Sequence:
        """Return a sequence with the same tokens, in the same physical blocks.

        Costs one count per block and no copy; the first write into a shared partial
        tail copies that one block (see `reserve`).
        """
        self._require_live()
        child = type(self)(self.pool, new_id)
        self.pool.retain(self.block_table)
        child.block_table = list(self.block_table)
        child.length = self.length
        return child

    def free(self) -> None:
        """Drop all references, tail first; the sequence cannot be used afterwards."""
        self.truncate(0)
        self.freed = True

    def _reserve_and_write(self, K: NDArray[Any], V: NDArray[Any]) -> NDArray[np.int64]:
        """Write what `as_kv` returned into new slots, or leave no trace of them."""
        pool, length, tail = self.pool, self.length, self.block_table[-1:]
        slots = self.reserve(K.shape[1])
        try:
            pool.write_all_layers(slots, K, V)
        except BaseException:
            self.truncate(length)
            if self.block_table[-1:] != tail:  # back from the copy to the shared block
                pool.retain(tail)
                pool.release_many(self.block_table[-1:])
                self.block_table[-1:] = tail
            raise
        return slots

    def _tail_is_shared(self) -> bool:
        """Whether the next token falls into a block that somebody else holds too."""
        if self.length % self.pool.block_size == 0:
            return False
        return bool(self.pool.ref[self.block_table[-1]] > 1)

    def _require_live(self) -> None:
        if self.freed:
            raise RuntimeError(f"sequence {self.seq_id!r} was freed")

    def __repr__(self) -> str:
        state = "freed" if self.freed else f"length={self.length}"
        return f"Sequence({self.seq_id!r}, {state}, block_table={self.block_table})"
