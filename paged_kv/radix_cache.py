"""Prefix caching with a radix tree, the way SGLang does it (RadixAttention).

The tree keeps what requests computed and holds a reference to each of its blocks.
Running requests and the tree share one pool: when a request needs room, leaves that
nobody uses are evicted.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
from paged_kv.radix_policies import POLICIES
from paged_kv.radix_render import render
from paged_kv.radix_tree import RadixNode, RadixTree
from paged_kv.sequence import Sequence
from paged_kv.spec import whole


class RadixMatch(NamedTuple):
    """What `RadixCache.match_prefix` found.

    Attributes
    ----------
    blocks : list of int
        Physical blocks, in logical order.
    n_tokens : int
        Tokens in them.
    node : RadixNode
        Where the match ends; what `lock` and `unlock` take.
    """

    blocks: list[int]
    n_tokens: int
    node: RadixNode


class RadixSequence(Sequence):
    """A sequence whose prefix stays locked in the tree until it is freed.

    When it grows and no block is free, the tree gives up what nobody uses.
    """

    def __init__(self, pool: BlockPool, seq_id: object) -> None:
        super().__init__(pool, seq_id)
        self._locked: tuple[RadixCache, RadixNode] | None = None

    def lock_at(self, cache: RadixCache, node: RadixNode) -> None:
        """Lock `node` in place of what was locked before."""
        cache.lock(node)
        self._unlock()
        self._locked = cache, node

    def reserve(self, n: int) -> NDArray[np.int64]:
        """Reserve as `Sequence.reserve`, evicting from the tree where it must."""
        if self._locked is not None:
            self._locked[0].make_room(self.blocks_needed(n))
        return super().reserve(n)

    def fork(self, new_id: object) -> Sequence:
        """Fork as `Sequence.fork`; parent and child lock the prefix on their own."""
        child = super().fork(new_id)
        if self._locked is not None and isinstance(child, RadixSequence):
            child.lock_at(*self._locked)
        return child

    def free(self) -> None:
        """Free as `Sequence.free`, and unlock the prefix."""
        super().free()
        self._unlock()

    def _unlock(self) -> None:
        if self._locked is not None:
            cache, node = self._locked
            cache.unlock(node)
            self._locked = None


class RadixCache(RadixTree):
    """Finds the K and V of a prompt's beginning in a tree of everything computed.

    A request goes through ``admit`` → write K and V of the rest → ``publish`` →
    ``seq.free()``, as with `PrefixCache`; `match_prefix`, `insert`, `lock`, `unlock`
    and `evict` are the steps these are made of.

    Parameters
    ----------
    pool : BlockPool
        A page of the tree is a block of the pool; block size 1 finds single tokens.
    policy : {"lru", "lfu", "fifo"}
        Which unlocked leaf is evicted first.
    clock : callable, optional
        Returns the time, which never goes back; by default every call is one tick.

    Attributes
    ----------
    stats : CacheStats
    evictable_size, protected_size : int
        Blocks in the tree that nobody locked, and those that a request uses.

    Raises
    ------
    ValueError
        For an unknown policy.

    Notes
    -----
    Zheng et al., "SGLang", arXiv 2312.07104, section 3. A method that raises changes
    nothing that can be found, held or evicted.
    """

    def __init__(
        self,
        pool: BlockPool,
        policy: str = "lru",
        clock: Callable[[], float] | None = None,
    ) -> None:
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {list(POLICIES)}, got {policy!r}")
        super().__init__(pool.block_size, POLICIES[policy])
        self.pool = pool
        self.stats = CacheStats()
        self._clock = clock or itertools.count(1).__next__
        self._blocks: set[int] = set()  # those in the tree

    @property
    def cached(self) -> int:
        """Number of blocks in the tree."""
        return len(self._blocks)

    def match(self, tokens: ArrayLike) -> tuple[list[int], int]:
        """Find what `admit` would find for a prompt; changes nothing.

        Returns
        -------
        blocks : list of int
            Physical blocks, in logical order.
        n_tokens : int
            Tokens in them: whole pages, and at most L − 1 tokens, since the last one
            must be computed to know what comes next.

        Raises
        ------
        ValueError
            For tokens that are not a flat list of whole numbers from 0 on.
        """
        blocks = self._present(as_tokens(tokens)[:-1])
        return blocks, len(blocks) * self.page

    def match_prefix(self, tokens: ArrayLike) -> RadixMatch:
        """Find the longest cached prefix of whole pages, and mark it as used now.

        Splits a node that matches in part. For a request, give all tokens but the
        last, and lock the node before anything can evict it.

        Raises
        ------
        ValueError
            As `match`.
        """
        blocks, node = self.descend(as_tokens(tokens))
        self.touch(node, self._clock(), hits=1)
        return RadixMatch(blocks, len(blocks) * self.page, node)

    def insert(self, tokens: ArrayLike, blocks: Iterable[int]) -> int:
        """Add the blocks that hold `tokens` to the tree.

        The tree takes over the caller's reference to each block of the new part. For
        tokens that are present the tree keeps the block it has, and the caller's
        reference stays the caller's to free.

        Parameters
        ----------
        tokens : array_like of int, shape (n · block_size,)
            From the beginning of the prompt on, whole pages.
        blocks : iterable of int, n of them
            The blocks that hold them.

        Returns
        -------
        int
            How many of the tokens were present already.

        Raises
        ------
        ValueError
            For tokens that do not just fill the blocks; for a block of the new part
            that is free, listed twice, outside the pool, or in the tree already.
        """
        tokens, blocks = as_tokens(tokens), list(map(operator.index, blocks))
        if len(tokens) != len(blocks) * self.page:
            raise ValueError(
                f"{len(blocks)} blocks of {self.page} hold {len(blocks) * self.page} "
                f"tokens, got {len(tokens)}; a partial block stays with its sequence"
            )
        present = len(self._present(tokens))
        self._require_new(blocks[present:])
        now = self._clock()  # what may fail comes before anything is changed
        self.pool.hand_over(blocks[present:])
        self._add(tokens, blocks[present:], now)
        return present * self.page

    def evict(self, n_blocks: int) -> int:
        """Drop unlocked leaves until `n_blocks` blocks are free again, or none is left.

        The tree drops only its own references: a block that a sequence still reads
        leaves the tree, but does not become free and does not count.

        Returns
        -------
        int
            How many blocks became free. Leaves go whole, so it may be more.

        Raises
        ------
        ValueError
            For a number that is not whole or below 0.
        """
        taken, freed = self._take_leaves(whole("n_blocks", n_blocks, 0))
        self._drop(taken)
        return freed

    def make_room(self, n_blocks: int) -> bool:
        """Evict until `n_blocks` blocks of the pool are free, or nothing at all.

        Returns
        -------
        bool
            Whether they are free now.
        """
        short = n_blocks - self.pool.free
        taken, freed = self._take_leaves(short)
        if freed < short:
            for parent, leaf in reversed(taken):
                self.add_leaf(parent, leaf)
            return False
        self._drop(taken)
        return True

    def admit(self, seq_id: object, tokens: ArrayLike) -> tuple[Sequence, int]:
        """Give a prompt all its blocks: cached ones, and new ones, evicting for them.

        As `PrefixCache.admit`, without lora and salt; OutOfBlocks is raised only when
        evicting everything unlocked makes too little room. The prefix of the sequence
        is locked until ``seq.free()``.
        """
        tokens, pool = as_tokens(tokens), self.pool
        total = prompt_blocks(pool, seq_id, len(tokens))
        path = list(self.walk(tokens[:-1]))
        new = total - sum(pages for _, pages in path)
        spare = self.evictable_size - sum(n for node, n in path if not node.locks)
        shortage = OutOfBlocks(
            f"request {seq_id!r} of {len(tokens)} tokens needs {new} new blocks, "
            f"{pool.free} free of {pool.num_blocks}, at most {spare} to evict"
        )
        if new > pool.free + spare:
            raise shortage
        now = self._clock()
        blocks, node = self.descend(tokens[:-1])
        seq = RadixSequence(pool, seq_id)
        seq.lock_at(self, node)  # what was found must not be evicted to make room
        if not self.make_room(new):  # sequences read what could be evicted
            seq.free()
            raise shortage
        self.touch(node, now, hits=1)
        pool.retain(blocks)
        n_cached = len(blocks) * self.page
        seq.block_table, seq.length = blocks, n_cached
        seq.reserve(len(tokens) - n_cached)
        self.stats.count(len(tokens), n_cached)
        return seq, n_cached

    def publish(self, seq: Sequence, tokens: ArrayLike) -> None:
        """Put the full blocks of a sequence into the tree, once K and V are written.

        Parameters
        ----------
        seq : Sequence
            Where the tree has a block for the same tokens, the table lists that one
            afterwards, and the sequence's own is freed.
        tokens : array_like of int, shape (n,)
            What its first n positions hold.

        Raises
        ------
        ValueError
            For more tokens than the sequence has, a sequence of another pool, or other
            tokens than a block is in the tree for.
        RuntimeError
            For a sequence that was freed.
        """
        pool, table = self.pool, seq.block_table
        tokens = publishable(pool, seq, tokens)
        full = len(tokens) // self.page
        blocks = self._present(tokens)
        present = len(blocks)
        own = [(i, table[i]) for i in range(present) if table[i] != blocks[i]]
        self._require_new([*(block for _, block in own), *table[present:full]])
        now = self._clock()
        # Who holds a request's blocks, by place in its table:
        #                   before        after
        # 0 … hit           tree, table   tree, table
        # hit … present     table         tree, table: now the tree's block, published
        #                                 by somebody else meanwhile; its own is freed
        # present … full    table         tree, table
        # full … end        table         table (a partial tail)
        pool.retain(table[present:full])
        blocks, node = self._add(tokens, table[present:full], now)
        pool.retain(blocks[i] for i, _ in own)
        for i, _ in own:
            table[i] = blocks[i]
        pool.release_many(block for _, block in reversed(own))
        if isinstance(seq, RadixSequence):
            seq.lock_at(self, node)

    def held_blocks(self) -> list[int]:
        """Return the blocks of the tree: it holds one reference to each."""
        return [block for node in self.nodes() for block in node.blocks]

    def check(self) -> None:
        """Audit the tree as `RadixTree.check`, and its list of blocks."""
        super().check()
        if sorted(self.held_blocks()) != sorted(self._blocks):
            raise PoolCorrupted("the blocks of the nodes are not those listed")

    def render(
        self, *, html: bool = False, decode: Callable[[list[int]], str] | None = None
    ) -> str:
        """Draw the tree as text or HTML, in the current language.

        Parameters
        ----------
        html : bool
            Nested lists instead of lines.
        decode : callable, optional
            Turns the token ids of a run into text; by default the ids are shown.
        """
        return render(self, html=html, decode=decode)

    def _present(self, tokens: Tokens) -> list[int]:
        """Return the blocks that the tree has for the beginning of `tokens`."""
        blocks: list[int] = []
        for node, pages in self.walk(tokens):
            blocks += node.blocks[:pages]
        return blocks

    def _require_new(self, blocks: list[int]) -> None:
        if known := self._blocks.intersection(blocks):
            raise ValueError(
                f"blocks {sorted(known)} are in the tree already, for other tokens"
            )

    def _add(
        self, tokens: Tokens, new: list[int], now: float
    ) -> tuple[list[int], RadixNode]:
        """Put `new` below what is present; return all blocks and the last node."""
        blocks, node = self.descend(tokens)
        if new:
            leaf = RadixNode(tokens[len(blocks) * self.page :].copy(), new, now)
            self.add_leaf(node, leaf)
            self._blocks.update(new)
            blocks, node = blocks + new, leaf
        self.touch(node, now)
        return blocks, node

    def _take_leaves(
        self, n_blocks: int
    ) -> tuple[list[tuple[RadixNode, RadixNode]], int]:
        """Take leaves out until this many blocks would be free without the tree."""
        taken: list[tuple[RadixNode, RadixNode]] = []
        freed = 0
        while freed < n_blocks and (leaf := self.take_leaf()) is not None:
            taken.append(leaf)
            freed += int((self.pool.ref[leaf[1].blocks] == 1).sum())
        return taken, freed

    def _drop(self, taken: list[tuple[RadixNode, RadixNode]]) -> None:
        for _, leaf in taken:
            self.stats.evictions += len(leaf.blocks)
            self._blocks.difference_update(leaf.blocks)
            self.pool.release_many(reversed(leaf.blocks))

    def __repr__(self) -> str:
        return (
            f"RadixCache(evictable_size={self.evictable_size}, "
            f"protected_size={self.protected_size}, {self.stats})"
        )
