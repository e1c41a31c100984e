"""Automatic prefix caching with a chain of hashes, the way vLLM does it.

Every full block is found again by ``H(key of the block before, tokens of the block)``,
so one key stands for the whole prefix that ends there. The cache holds no reference: a
freed block waits in the pool's free queue, findable until it is handed out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256

from numpy.typing import ArrayLike

from paged_kv.allocator import OutOfBlocks
from paged_kv.audit import PoolCorrupted
from paged_kv.caching import (
    CacheStats,
    Tokens,
    as_tokens,
    prompt_blocks,
    publishable,
)
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence


def _sha256(data: bytes) -> bytes:
    return sha256(data).digest()


class _Prefix:
    """The prefix that ends with one full block, and the blocks that hold its end.

    It stays while a block holds it or a longer prefix builds on it, so two prefixes
    are equal exactly when they are the same object: no chain is ever compared.
    """

    __slots__ = ("blocks", "children", "content", "key", "parent")

    def __init__(self, parent: _Prefix | None, key: bytes, content: bytes) -> None:
        self.parent = parent
        self.key = key
        self.content = content
        self.blocks: list[int] = []  # more than one: computed twice at the same time
        self.children = 0


class PrefixCache:
    """Finds the K and V of a prompt's beginning in blocks that hold them already.

    A request goes through ``admit`` → write K and V of the rest → ``publish`` →
    ``seq.free()``; in a serving engine generated tokens are published as well.

    Parameters
    ----------
    pool : BlockPool
        Its free blocks become a queue: freed longest ago, reused first.
    hash_fn : callable, optional
        bytes → bytes, SHA-256 when not given. Two prompts with the same hash are still
        told apart: tokens are compared on every hit.

    Attributes
    ----------
    stats : CacheStats

    Raises
    ------
    ValueError
        When another cache indexes this pool already.
    TypeError
        When `hash_fn` returns something other than bytes.

    Notes
    -----
    vLLM's "Automatic Prefix Caching" design. Each method that raises changes nothing.
    """

    def __init__(
        self,
        pool: BlockPool,
        hash_fn: Callable[[bytes], bytes] = _sha256,
    ) -> None:
        if not isinstance(key := hash_fn(b""), bytes):
            raise TypeError(f"hash_fn must return bytes, got {key!r}")
        self.pool = pool
        self.stats = CacheStats()
        self._hash = hash_fn
        self._by_key: dict[bytes, list[_Prefix]] = {}  # more than one: a collision
        self._by_block: dict[int, _Prefix] = {}
        self._queue = pool.index_with(self)

    @property
    def cached(self) -> int:
        """Number of blocks that can be found, in use or free."""
        return len(self._by_block)

    def free_blocks(self) -> list[tuple[int, bool]]:
        """Return the free blocks in the order in which they will be reused.

        Returns
        -------
        list of (int, bool)
            Block, and whether it can still be found.
        """
        return [(block, block in self._by_block) for block in self._queue]

    def match(
        self, tokens: ArrayLike, *, lora: str | None = None, salt: str | None = None
    ) -> tuple[list[int], int]:
        """Find the longest cached prefix of a prompt; changes nothing.

        Parameters
        ----------
        tokens : array_like of int, shape (L,)
        lora : str, optional
            Name of the adapter: it changes K and V.
        salt : str, optional
            Secret of a tenant: prompts with another salt are never matched.

        Returns
        -------
        blocks : list of int
            Physical blocks, in logical order.
        n_tokens : int
            Tokens in them: whole blocks, and at most L − 1 tokens, since the last one
            must be computed to know what comes next.

        Raises
        ------
        ValueError
            For tokens that are not a flat list of whole numbers from 0 on.
        """
        tokens = as_tokens(tokens)
        blocks: list[int] = []
        prefix = None
        n_full = max(len(tokens) - 1, 0) // self.pool.block_size
        for content in self._contents(tokens, n_full, lora, salt):
            prefix = self._find(prefix, self._key(prefix, content), content)
            if prefix is None or not prefix.blocks:
                break
            blocks.append(prefix.blocks[0])
        return blocks, len(blocks) * self.pool.block_size

    def admit(
        self,
        seq_id: object,
        tokens: ArrayLike,
        *,
        lora: str | None = None,
        salt: str | None = None,
    ) -> tuple[Sequence, int]:
        """Give a prompt all its blocks: those that are cached, and new ones.

        Parameters
        ----------
        seq_id : object
            Name of the request, for people.
        tokens, lora, salt
            As in `match`.

        Returns
        -------
        seq : Sequence
            Of L tokens. K and V of those after the cached ones are still to be
            written, into ``seq.slots(n_cached)``.
        n_cached : int
            Tokens whose K and V are there.

        Raises
        ------
        OutOfBlocks
            When fewer blocks are free than are needed now.
        NeverFits
            For a prompt that the whole pool cannot hold.
        ValueError
            For an empty prompt, or tokens as in `match`.
        """
        tokens, pool = as_tokens(tokens), self.pool
        total = prompt_blocks(pool, seq_id, len(tokens))
        blocks, n_cached = self.match(tokens, lora=lora, salt=salt)
        new = total - len(blocks)
        revived = int((pool.ref[blocks] == 0).sum())
        if new + revived > pool.free:
            raise OutOfBlocks(
                f"request {seq_id!r} of {len(tokens)} tokens needs {new} new blocks "
                f"and {revived} cached ones that are free, {pool.free} free of "
                f"{pool.num_blocks}"
            )
        # Touch first: the new blocks must not be taken from among the hits.
        pool.touch(blocks)
        seq = Sequence(pool, seq_id)
        seq.block_table, seq.length = blocks, n_cached
        seq.reserve(len(tokens) - n_cached)
        self.stats.count(len(tokens), n_cached)
        return seq, n_cached

    def publish(
        self,
        seq: Sequence,
        tokens: ArrayLike,
        *,
        lora: str | None = None,
        salt: str | None = None,
    ) -> None:
        """Let others find the full blocks of a sequence, once K and V are written.

        Parameters
        ----------
        seq : Sequence
        tokens : array_like of int, shape (n,)
            What its first n positions hold. Publishing again, or with more tokens, is
            cheap: blocks that are known are not hashed again.
        lora, salt : str, optional
            As in `match`.

        Raises
        ------
        ValueError
            For more tokens than the sequence has, a sequence of another pool, or other
            tokens (or another lora or salt) than a block was published with.
        RuntimeError
            For a sequence that was freed.
        """
        tokens = publishable(self.pool, seq, tokens)
        n_full = len(tokens) // self.pool.block_size
        contents = self._contents(tokens, n_full, lora, salt)
        prefix = None
        found: list[tuple[int, _Prefix]] = []
        for block, content in zip(seq.block_table[:n_full], contents, strict=True):
            known = self._by_block.get(block)
            if known is None:
                key = self._key(prefix, content)
                known = self._find(prefix, key, content)
                known = known or _Prefix(prefix, key, content)
            elif known.parent is not prefix or known.content != content:
                raise ValueError(
                    f"block {block} of sequence {seq.seq_id!r} was published with "
                    "other tokens, or another lora or salt"
                )
            found.append((block, known))
            prefix = known
        for block, known in found:
            if block not in self._by_block:
                self._add(block, known)

    def forget(self, block: int) -> None:
        """Drop a block whose contents are about to change; the pool calls this."""
        prefix = self._by_block.pop(block, None)
        if prefix is None:
            return
        self.stats.evictions += 1
        prefix.blocks.remove(block)
        while prefix is not None and not prefix.blocks and not prefix.children:
            same_key = self._by_key[prefix.key]
            same_key.remove(prefix)
            if not same_key:
                del self._by_key[prefix.key]
            prefix = prefix.parent
            if prefix is not None:
                prefix.children -= 1

    def held_blocks(self) -> Iterable[int]:
        """Return the blocks this cache holds references to: none."""
        return ()

    def check(self) -> None:
        """Audit the index; `BlockPool.check` audits the counts.

        Raises
        ------
        PoolCorrupted
            When the index by key, the index by block and the chain disagree.
        """
        prefixes = [p for same_key in self._by_key.values() for p in same_key]
        listed = {block: p for p in prefixes for block in p.blocks}
        if listed != self._by_block or len(listed) != sum(
            len(p.blocks) for p in prefixes
        ):
            raise PoolCorrupted("prefixes and blocks do not list each other")
        children = dict.fromkeys(prefixes, 0)
        for prefix in prefixes:
            if prefix.key != self._key(prefix.parent, prefix.content):
                raise PoolCorrupted(f"blocks {prefix.blocks} have another prefix's key")
            if prefix.parent is not None:
                if prefix.parent not in children:
                    raise PoolCorrupted(f"blocks {prefix.blocks} follow nothing")
                children[prefix.parent] += 1
        for prefix, count in children.items():
            if prefix.children != count or not (count or prefix.blocks):
                raise PoolCorrupted(
                    f"a prefix with blocks {prefix.blocks} counts {prefix.children} "
                    f"children, has {count}"
                )

    def _contents(
        self, tokens: Tokens, n_blocks: int, lora: str | None, salt: str | None
    ) -> Iterator[bytes]:
        """Yield what each of the first blocks is keyed by, besides what precedes it.

        What applies to the whole prompt stands in the first block's content, and
        through the chain in every key. Names keep a lora from passing for a salt.
        """
        step = self.pool.block_size * tokens.itemsize
        data = tokens[: n_blocks * self.pool.block_size].tobytes()
        extra = repr({"lora": lora, "salt": salt}).encode()
        for start in range(0, n_blocks * step, step):
            yield extra + data[start : start + step]
            extra = b""

    def _key(self, parent: _Prefix | None, content: bytes) -> bytes:
        return self._hash((parent.key if parent else b"") + content)

    def _find(
        self, parent: _Prefix | None, key: bytes, content: bytes
    ) -> _Prefix | None:
        for prefix in self._by_key.get(key, ()):
            if prefix.parent is parent and prefix.content == content:
                return prefix
        return None

    def _add(self, block: int, prefix: _Prefix) -> None:
        if not prefix.blocks and not prefix.children:  # made just now
            self._by_key.setdefault(prefix.key, []).append(prefix)
            if prefix.parent is not None:
                prefix.parent.children += 1
        prefix.blocks.append(block)
        self._by_block[block] = prefix

    def __repr__(self) -> str:
        return f"PrefixCache(cached={self.cached}, {self.stats})"
