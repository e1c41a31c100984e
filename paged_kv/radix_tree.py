"""A radix tree over runs of token pages: the data structure under `radix_cache`.

Nothing here touches a pool: runs, how they split, who locked them, which may go.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np

from paged_kv.audit import PoolCorrupted
from paged_kv.caching import Tokens
from paged_kv.radix_policies import Policy


class RadixNode:
    """A run of whole pages that follows its parent's, and the blocks that hold it.

    Attributes
    ----------
    parent : RadixNode
        The node itself for the root, and for a node that was evicted.
    tokens : ndarray of int64, shape (len(blocks) · page,)
    blocks : list of int
    children : dict
        By the bytes of their first page, in which siblings differ.
    locks : int
        Running requests that use this run: those whose prefix ends here, and those
        that lock a node below.
    own_locks : int
        The first kind alone: what `RadixTree.unlock` can take back.
    created, last_used : float
        Times of the cache's clock.
    hits : int
        Requests that matched this run.
    """

    __slots__ = (
        "blocks",
        "children",
        "created",
        "hits",
        "last_used",
        "locks",
        "own_locks",
        "parent",
        "queued",
        "tokens",
    )

    def __init__(self, tokens: Tokens, blocks: list[int], now: float = 0) -> None:
        self.parent = self
        self.tokens = tokens
        self.blocks = blocks
        self.children: dict[bytes, RadixNode] = {}
        self.locks = self.own_locks = 0
        self.created = self.last_used = now
        self.hits = 0
        self.queued = False  # among the leaves that may go


class RadixTree:
    """Runs of pages: matched, split, locked, and given up leaf by leaf.

    Parameters
    ----------
    page : int
        Tokens per block.
    policy : Policy
        Which unlocked leaf goes first.

    Attributes
    ----------
    root : RadixNode
        Holds no tokens.
    evictable_size, protected_size : int
        Blocks of the nodes that nobody locked, and of those that somebody did.
    """

    def __init__(self, page: int, policy: Policy) -> None:
        self.page = page
        self.policy = policy
        self.root = RadixNode(np.empty(0, np.int64), [])
        self.evictable_size = 0
        self.protected_size = 0
        self._leaves: list[tuple[Any, int, RadixNode]] = []
        self._pushed = 0  # breaks ties: nodes have no order of their own

    def walk(self, tokens: Tokens) -> Iterator[tuple[RadixNode, int]]:
        """Yield each node on the way down, and how many of its pages match."""
        node, at, page = self.root, 0, self.page
        while at + page <= len(tokens):
            child = node.children.get(tokens[at : at + page].tobytes())
            if child is None:
                return
            n = min(len(child.tokens), len(tokens) - at)
            differ = np.flatnonzero(child.tokens[:n] != tokens[at : at + n])
            pages = (int(differ[0]) if differ.size else n) // page
            yield child, pages
            if pages < len(child.blocks):
                return
            node, at = child, at + pages * page

    def descend(self, tokens: Tokens) -> tuple[list[int], RadixNode]:
        """Return the matching blocks and the node where the match ends.

        A node that matches in part is split there, so that the match ends at a node.
        """
        blocks: list[int] = []
        node = self.root
        for child, pages in list(self.walk(tokens)):
            node = child if pages == len(child.blocks) else self._split(child, pages)
            blocks += node.blocks
        return blocks, node

    def path(self, node: RadixNode) -> Iterator[RadixNode]:
        """Yield a node and those above it, without the root."""
        while node.parent is not node:
            yield node
            node = node.parent

    def nodes(self) -> Iterator[RadixNode]:
        """Yield every node but the root, parents before their children."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()

    def touch(self, node: RadixNode, now: float, hits: int = 0) -> None:
        """Mark a node and those above it as used at `now`, by `hits` requests more."""
        for above in self.path(node):
            above.last_used = now
            above.hits += hits

    def lock(self, node: RadixNode) -> None:
        """Keep a node and those above it from being evicted; locks are counted.

        Raises
        ------
        ValueError
            When the node was evicted.
        """
        if node.parent is node and node is not self.root:
            raise ValueError("the node was evicted: match again, then lock")
        node.own_locks += 1
        for above in self.path(node):
            if not above.locks:
                self.evictable_size -= len(above.blocks)
                self.protected_size += len(above.blocks)
            above.locks += 1

    def unlock(self, node: RadixNode) -> None:
        """Take one lock back.

        Raises
        ------
        ValueError
            When nobody locked this node itself; locks of nodes below are not its own.
        """
        if not node.own_locks:
            raise ValueError("the node is not locked: a lock ends where it was taken")
        node.own_locks -= 1
        for above in self.path(node):
            above.locks -= 1
            if not above.locks:
                self.evictable_size += len(above.blocks)
                self.protected_size -= len(above.blocks)
                self._queue(above)

    def add_leaf(self, parent: RadixNode, leaf: RadixNode) -> None:
        """Put an unlocked node without children below `parent`."""
        self._attach(parent, leaf)
        self.evictable_size += len(leaf.blocks)
        self._queue(leaf)

    def take_leaf(self) -> tuple[RadixNode, RadixNode] | None:
        """Remove the unlocked leaf that the policy gives up first, if there is one.

        Returns
        -------
        parent, leaf : RadixNode
            What `add_leaf` takes to put it back.

        Notes
        -----
        Entries of the heap are not kept up to date. Each has a priority that its node
        had once, which is never too high: one that has risen goes back with what it is
        now, so the first that still holds is the least of all.
        """
        while self._leaves:
            noted, _, leaf = heapq.heappop(self._leaves)
            leaf.queued = False
            if not self._may_go(leaf):
                continue  # it is queued again when it may
            if self.policy.priority(leaf) > noted:
                self._queue(leaf)
                continue
            parent = leaf.parent
            del parent.children[self._first_page(leaf)]
            leaf.parent = leaf
            self.evictable_size -= len(leaf.blocks)
            self._queue(parent)
            return parent, leaf
        return None

    def check(self) -> None:
        """Audit the tree.

        Raises
        ------
        PoolCorrupted
            When links, runs, locks or sizes do not agree.
        """
        evictable = protected = 0
        for node in self.nodes():
            name = f"the node of blocks {node.blocks}"
            if node.parent.children.get(self._first_page(node)) is not node:
                raise PoolCorrupted(f"{name} is not listed by its parent")
            if not node.blocks or len(node.tokens) != len(node.blocks) * self.page:
                raise PoolCorrupted(f"{name} has {len(node.tokens)} tokens")
            below = sum(child.locks for child in node.children.values())
            if node.own_locks < 0 or node.locks != node.own_locks + below:
                raise PoolCorrupted(
                    f"{name}: {node.locks} locks, {node.own_locks} of its own and "
                    f"{below} below it"
                )
            if self._may_go(node) and not node.queued:
                raise PoolCorrupted(f"{name} may be evicted and is not queued")
            if node.locks:
                protected += len(node.blocks)
            else:
                evictable += len(node.blocks)
        if (evictable, protected) != (self.evictable_size, self.protected_size):
            raise PoolCorrupted(
                f"{evictable} blocks are evictable and {protected} protected, "
                f"counted {self.evictable_size} and {self.protected_size}"
            )

    def _split(self, node: RadixNode, pages: int) -> RadixNode:
        """Move the first pages of a node into a new parent of it, and return that.

        Whoever locked the node uses all of it, so the new parent inherits the locks;
        they still end at the node.
        The node, now shorter, keeps its times: what does not match is not touched.
        """
        cut = pages * self.page
        upper = RadixNode(node.tokens[:cut].copy(), node.blocks[:pages], node.created)
        upper.last_used, upper.hits, upper.locks = node.last_used, node.hits, node.locks
        self._attach(node.parent, upper)
        node.tokens, node.blocks = node.tokens[cut:].copy(), node.blocks[pages:]
        self._attach(upper, node)
        return upper

    def _attach(self, parent: RadixNode, node: RadixNode) -> None:
        parent.children[self._first_page(node)] = node
        node.parent = parent

    def _first_page(self, node: RadixNode) -> bytes:
        return node.tokens[: self.page].tobytes()

    def _may_go(self, node: RadixNode) -> bool:
        return node.parent is not node and not node.children and not node.locks

    def _queue(self, node: RadixNode) -> None:
        """List a node among the leaves that may go, if it is one."""
        if self._may_go(node) and not node.queued:
            self._pushed += 1
            entry = (self.policy.priority(node), self._pushed, node)
            heapq.heappush(self._leaves, entry)
            node.queued = True
