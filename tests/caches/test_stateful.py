"""Random operations on both caches, against models that keep whole token lists.

A model of a cache is a plain dict from whole prefixes to blocks. It says what every
lookup must find, when there is room, and (for the hash chain) which block is reused
next. K and V depend on the whole prefix, so a wrong hit shows in what is read.
"""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from paged_kv import OutOfBlocks
from paged_kv.caching import NeverFits
from paged_kv.prefix_cache import PrefixCache
from paged_kv.radix_cache import RadixCache
from tests.caches.contents import assert_holds, kv_of, nan_pool, write

# Prompts that have much in common: the beginning of a text, and a suffix.
PROMPTS = st.builds(
    lambda n, suffix: [*(0, 1, 0, 1, 1, 1, 0, 0)[:n], *suffix] or [0],
    st.sampled_from([8, 6, 5, 4, 3, 0]),
    st.lists(st.integers(0, 1), max_size=2),
)
EXTRAS = st.sampled_from([{}, {}, {}, {}, {"lora": "x"}, {"salt": "x"}])
NUM_BLOCKS = st.integers(3, 10) | st.integers(1, 20)  # often too few, seldom plenty
SHARE = st.sampled_from([0.8, 0.5, 0.3, 1.0, 0.0])


class Live:
    """What the model knows of a sequence."""

    def __init__(self, tokens, extra, written):
        self.tokens, self.extra, self.written = tokens, extra, written


class CacheMachine(RuleBasedStateMachine):
    """What both caches have in common; K and V may be written long after admission."""

    live = Bundle("live")

    def begin(self, bs, num_blocks):
        self.pool = nan_pool(num_blocks, bs)
        self.bs = bs
        self.seqs = {}
        self.started = 0

    def tables(self):
        return {block for seq in self.seqs for block in seq.block_table}

    def full(self, tokens, n=None):
        """Return the prefixes of tokens that end with a full block."""
        n = len(tokens) if n is None else n
        return [tuple(tokens[:end]) for end in range(self.bs, n + 1, self.bs)]

    def admit(self, tokens, extra, expected, room):
        """Admit a prompt; return the sequence, or None when there is no room."""
        self.started += 1
        needed = -(-len(tokens) // self.bs)
        arguments = f"s{self.started}", tokens
        blocks, n_cached = self.cache.match(tokens, **extra)
        assert n_cached == expected == len(blocks) * self.bs
        if not room:
            error = NeverFits if needed > self.pool.num_blocks else OutOfBlocks
            with pytest.raises(OutOfBlocks) as refusal:
                self.cache.admit(*arguments, **extra)
            assert refusal.type is error
            return None
        seq, n_cached = self.cache.admit(*arguments, **extra)
        assert n_cached == expected
        assert seq.block_table[: len(blocks)] == blocks
        self.seqs[seq] = Live(list(tokens), extra, n_cached)
        return seq

    @rule(target=live, tokens=PROMPTS, extra=EXTRAS)
    def only_admit(self, tokens, extra):
        seq = self.admitted(tokens, extra if self.takes_extra else {})
        return multiple() if seq is None else seq

    @rule(target=live, tokens=PROMPTS, extra=EXTRAS, stays=st.booleans())
    def run(self, tokens, extra, stays):
        seq = self.admitted(tokens, extra if self.takes_extra else {})
        if seq is None:
            return multiple()
        self.write(seq)
        self.published(seq, len(seq))
        if stays:
            return seq
        self.freed(seq)
        return multiple()

    @rule(seq=live)
    def write(self, seq):
        state = self.seqs[seq]
        write(seq, state.tokens, state.written, state.extra or None)
        state.written = len(seq)

    @rule(seq=live, share=SHARE)
    def publish(self, seq, share):
        self.published(seq, round(share * self.seqs[seq].written))

    @rule(seq=live, share=SHARE, token=st.integers(0, 1))
    def cut_and_continue(self, seq, share, token):
        self.truncate(seq, share)
        self.append_token(seq, token)

    @rule(seq=live, share=SHARE)
    def truncate(self, seq, share):
        state = self.seqs[seq]
        n = round(share * len(seq))
        gone = seq.block_table[-(-n // self.bs) :]
        seq.truncate(n)
        state.tokens, state.written = state.tokens[:n], min(state.written, n)
        self.dropped(gone)

    @rule(target=live, seq=live)
    def fork(self, seq):
        state = self.seqs[seq]
        if state.written < len(seq):
            return multiple()
        child = seq.fork(f"child of {seq.seq_id}")
        self.seqs[child] = Live(list(state.tokens), state.extra, state.written)
        self.forked(seq, child)
        return child

    @rule(seq=consumes(live))
    def free(self, seq):
        self.freed(seq)

    def freed(self, seq):
        table = list(seq.block_table)
        seq.free()
        del self.seqs[seq]
        self.dropped(table)

    def append(self, seq, token):
        """Append a token if there is room; return the partial tail before, the block.

        Both are None when there was no room, the tail when there was no partial one.
        """
        state, before = self.seqs[seq], list(seq.block_table)
        if state.written < len(seq):
            return None, None
        tail = before[-1] if len(seq) % self.bs else None
        room = self.pool.free + self.freeable([]) >= seq.blocks_needed(1)
        K, V = kv_of([*state.tokens, token], state.extra or None)
        try:
            block = seq.append(K[:, -1], V[:, -1])
        except OutOfBlocks:
            assert not room
            return None, None
        assert room
        state.tokens = [*state.tokens, token]
        state.written += 1
        return tail, block

    @invariant()
    def books_are_sound(self):
        if hasattr(self, "cache"):
            self.pool.check(self.seqs, holders=[self.cache])
            self.cache.check()

    @invariant()
    def everybody_reads_her_own_tokens(self):
        for seq, state in getattr(self, "seqs", {}).items():
            if state.written == len(seq):
                assert_holds(seq, state.tokens, state.extra or None)

    def assert_block_holds(self, block, prefix, extra):
        K, V = kv_of(prefix, extra or None)
        assert np.array_equal(self.pool.k[:, block], K[:, -self.bs :])
        assert np.array_equal(self.pool.v[:, block], V[:, -self.bs :])


class PrefixMachine(CacheMachine):
    """The hash chain. The model: what each block holds, and the queue of free ones."""

    live = CacheMachine.live
    takes_extra = True

    @initialize(
        bs=st.sampled_from([1, 2, 3, 4]),
        num_blocks=NUM_BLOCKS,
        collide=st.booleans(),
    )
    def start(self, bs, num_blocks, collide):
        self.begin(bs, num_blocks)
        options = {"hash_fn": lambda data: b"same"} if collide else {}
        self.cache = PrefixCache(self.pool, **options)
        self.holds = {}  # block → (extra, whole prefix)
        self.queue = list(range(num_blocks))

    def hits(self, tokens, extra):
        """Return the hits of the longest cached prefix: for each, who holds it."""
        found = []
        for prefix in self.full(tokens, len(tokens) - 1):
            holders = [b for b, held in self.holds.items() if held == (extra, prefix)]
            if not holders:
                break
            found.append(holders)
        return found

    def taken(self, blocks):
        """Blocks were handed out: always the first of the queue."""
        assert blocks == self.queue[: len(blocks)]
        del self.queue[: len(blocks)]
        for block in blocks:
            self.holds.pop(block, None)

    def dropped(self, blocks):
        in_use = self.tables()
        self.queue += [b for b in reversed(blocks) if b not in in_use]

    def forked(self, parent, child):
        pass

    def freeable(self, matched):
        return 0  # what is cached and not in use is free already

    def admitted(self, tokens, extra):
        found = self.hits(tokens, extra)
        blocks, _ = self.cache.match(tokens, **extra)
        assert all(b in holders for b, holders in zip(blocks, found, strict=True))
        needed = -(-len(tokens) // self.bs) - len(found)
        revived = sum(block in self.queue for block in blocks)
        room = needed + revived <= len(self.queue)
        seq = self.admit(tokens, extra, len(found) * self.bs, room)
        if seq is None:
            return None
        self.queue = [b for b in self.queue if b not in blocks]
        self.taken(seq.block_table[len(blocks) :])
        return seq

    def published(self, seq, n):
        state = self.seqs[seq]
        self.cache.publish(seq, state.tokens[:n], **state.extra)
        for block, prefix in zip(
            seq.block_table, self.full(state.tokens, n), strict=False
        ):
            self.holds[block] = state.extra, prefix

    @rule(seq=live, token=st.integers(0, 1))
    def append_token(self, seq, token):
        tail, block = self.append(seq, token)
        if block is None:
            return
        if block == tail:
            self.holds.pop(tail, None)  # written in place
        else:
            self.taken([block])

    @rule(n=st.integers(1, 4))
    def somebody_else_uses_blocks(self, n):
        if n <= self.pool.free:
            blocks = self.pool.allocate_many(n)
            self.taken(blocks)
            self.pool.release_many(blocks)
            self.queue += blocks

    @invariant()
    def cache_is_the_models(self):
        if hasattr(self, "cache"):
            assert self.cache.cached == len(self.holds)
            assert list(self.pool._free_list) == self.queue
            for block, (extra, prefix) in self.holds.items():
                self.assert_block_holds(block, prefix, extra)


class RadixMachine(CacheMachine):
    """The radix tree. The model: the block of each prefix, its time, who locked it."""

    live = CacheMachine.live
    takes_extra = False
    nodes = Bundle("nodes")

    @initialize(
        bs=st.sampled_from([1, 2, 3, 4]),
        num_blocks=NUM_BLOCKS,
        policy=st.sampled_from(["lru", "lfu", "fifo"]),
    )
    def start(self, bs, num_blocks, policy):
        self.begin(bs, num_blocks)
        self.policy = policy
        self.cache = RadixCache(self.pool, policy)
        self.block = {}  # whole prefix → block
        self.time = {}
        self.now = 0
        self.locked = {}  # sequence or number of a lock → prefix

    def hits(self, tokens):
        found = []
        for prefix in self.full(tokens):
            if prefix not in self.block:
                break
            found.append(prefix)
        return found

    def is_locked(self, prefix):
        return any(p[: len(prefix)] == prefix for p in self.locked.values())

    def leaves(self):
        """Return the unlocked prefixes that nothing builds on."""
        parents = {prefix[: -self.bs] for prefix in self.block}
        return {p for p in self.block if p not in parents and not self.is_locked(p)}

    def touch(self, prefixes):
        self.now += 1
        self.time.update(dict.fromkeys(prefixes, self.now))

    def dropped(self, blocks):
        self.locked = {
            seq: prefix
            for seq, prefix in self.locked.items()
            if isinstance(seq, int) or seq in self.seqs
        }

    def forked(self, parent, child):
        if parent in self.locked:
            self.locked[child] = self.locked[parent]

    def after_eviction(self, leaves):
        """Judge what was evicted, and forget it."""
        left = set(self.cache.held_blocks())
        gone = [p for p, block in self.block.items() if block not in left]
        for prefix in gone:
            assert not self.is_locked(prefix)
            del self.block[prefix]
        assert all(p[: -self.bs] in self.block or len(p) == self.bs for p in self.block)
        # A leaf that stayed was there all the time: whatever went was used before it.
        stayed = [self.time[p] for p in leaves & self.leaves()]
        went = [self.time.pop(p) for p in gone]
        if self.policy == "lru" and stayed and went:
            assert max(went) <= min(stayed)
        return gone

    def freeable(self, matched):
        in_use = self.tables()
        return sum(
            block not in in_use and prefix not in matched and not self.is_locked(prefix)
            for prefix, block in self.block.items()
        )

    def admitted(self, tokens, extra):
        found = self.hits(tokens[:-1])
        needed = -(-len(tokens) // self.bs) - len(found)
        free = self.pool.free
        room = needed <= free + self.freeable(found)
        leaves = self.leaves()
        seq = self.admit(tokens, extra, len(found) * self.bs, room)
        if seq is not None:
            self.locked[seq] = found[-1] if found else ()
        gone = self.after_eviction(leaves)
        assert not gone or (seq is not None and needed > free)
        if seq is None:
            return None
        self.touch(found)
        return seq

    def published(self, seq, n):
        state = self.seqs[seq]
        table = list(seq.block_table)
        self.cache.publish(seq, state.tokens[:n])
        prefixes = self.full(state.tokens, n)
        for prefix, block in zip(prefixes, table, strict=False):
            self.block.setdefault(prefix, block)
        assert seq.block_table[: len(prefixes)] == [self.block[p] for p in prefixes]
        self.touch(prefixes)
        self.locked[seq] = prefixes[-1] if prefixes else ()

    @rule(seq=live, token=st.integers(0, 1))
    def append_token(self, seq, token):
        leaves, free = self.leaves(), self.pool.free
        tail, block = self.append(seq, token)
        gone = self.after_eviction(leaves)
        assert not gone or (free == 0 and block not in (None, tail))
        if block is not None and block == tail:
            assert block not in self.block.values()

    @rule(target=nodes, tokens=PROMPTS)
    def match_and_lock(self, tokens):
        match = self.cache.match_prefix(tokens)
        found = self.hits(tokens)
        assert match.blocks == [self.block[p] for p in found]
        self.touch(found)
        self.cache.lock(match.node)
        key = self.now
        self.locked[key] = found[-1] if found else ()
        return match.node, key

    @rule(lock=consumes(nodes))
    def unlock(self, lock):
        node, key = lock
        self.cache.unlock(node)
        del self.locked[key]

    @rule(n=st.integers(0, 5))
    @precondition(lambda self: self.block)
    def evict(self, n):
        leaves, free, most = self.leaves(), self.pool.free, self.freeable([])
        freed = self.cache.evict(n)
        assert freed >= min(n, most)
        assert self.pool.free == free + freed
        gone = self.after_eviction(leaves)
        assert n or not gone

    @invariant()
    def cache_is_the_models(self):
        if hasattr(self, "cache"):
            assert sorted(self.cache.held_blocks()) == sorted(self.block.values())
            locked = sum(map(self.is_locked, self.block))
            assert self.cache.protected_size == locked
            assert self.cache.evictable_size == len(self.block) - locked
            for prefix, block in self.block.items():
                self.assert_block_holds(block, prefix, {})


PrefixMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None
)
RadixMachine.TestCase.settings = PrefixMachine.TestCase.settings
TestPrefixMachine = PrefixMachine.TestCase
TestRadixMachine = RadixMachine.TestCase
