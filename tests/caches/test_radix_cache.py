"""The radix tree, one kind of fault at a time."""

import numpy as np
import pytest

from paged_kv import DoubleFree, OutOfBlocks, PoolCorrupted, Sequence
from paged_kv.caching import NeverFits
from paged_kv.messages import use_language
from paged_kv.prefix_cache import PrefixCache
from paged_kv.radix_cache import RadixCache
from tests.caches.contents import assert_holds, nan_pool, run, write


@pytest.fixture
def make():
    def make(num_blocks=8, block_size=1, **options):
        pool = nan_pool(num_blocks, block_size)
        return pool, RadixCache(pool, **options)

    return make


def audit(pool, cache, *sequences):
    pool.check(sequences, holders=[cache])
    cache.check()


def insert(cache, tokens):
    """Insert tokens with fresh blocks of the caller's own; free the duplicates."""
    blocks = [cache.pool.allocate() for _ in range(len(tokens) // cache.page)]
    present = cache.insert(tokens, blocks)
    for block in blocks[: present // cache.page]:
        cache.pool.release(block)
    return blocks


class TestMatchAndInsert:
    def test_what_was_inserted_is_found_token_by_token(self, make):
        pool, cache = make()
        blocks = insert(cache, [1, 2, 3, 4])
        for n in range(5):
            match = cache.match_prefix([*range(1, n + 1), 9])
            assert (match.blocks, match.n_tokens) == (blocks[:n], n)
        assert cache.match_prefix([9]).blocks == []
        audit(pool, cache)

    def test_pages_are_found_whole(self, make):
        pool, cache = make(block_size=4)
        blocks = insert(cache, range(8))
        assert cache.match_prefix(range(7))[:2] == (blocks[:1], 4)
        assert cache.match_prefix(range(8))[:2] == (blocks, 8)
        assert cache.match_prefix([0, 1, 2, 9, 4, 5, 6, 7])[:2] == ([], 0)
        assert cache.match_prefix([0, 1, 2, 3, 4, 5, 6, 9])[:2] == (blocks[:1], 4)
        audit(pool, cache)

    def test_edge_is_split_where_prompts_part(self, make):
        pool, cache = make()
        first = insert(cache, [1, 2, 3, 4])
        second = insert(cache, [1, 2, 5])
        assert cache.match_prefix([1, 2, 3, 4]).blocks == first
        assert cache.match_prefix([1, 2, 5]).blocks == [*first[:2], second[2]]
        assert pool.used == 5
        audit(pool, cache)

    @pytest.mark.parametrize("bs", [1, 2, 3])
    def test_insert_tells_what_was_present(self, make, bs):
        pool, cache = make(num_blocks=20, block_size=bs)
        tokens = list(range(4 * bs))
        assert cache.insert(tokens[: 2 * bs], pool.allocate_many(2)) == 0
        theirs = pool.allocate_many(4)
        assert cache.insert(tokens, theirs) == 2 * bs
        pool.release_many(theirs[:2])
        assert cache.insert([], []) == 0
        audit(pool, cache)

    def test_tree_takes_over_own_and_held_references(self, make):
        pool, cache = make()
        own = [pool.allocate(), pool.allocate()]
        held = pool.allocate_many(1)
        cache.insert([1, 2, 3], own + held)
        assert pool.ref[own + held].tolist() == [1, 1, 1]
        with pytest.raises(DoubleFree):
            pool.release(own[0])
        assert cache.evict(3) == 3
        assert pool.used == 0
        audit(pool, cache)

    @pytest.mark.parametrize(
        ("tokens", "blocks", "message"),
        [
            ([1, 2, 3], [0, 1], "2 blocks of 1 hold 2 tokens, got 3"),
            ([1, 2], [0, 7], "block 7 is free"),
            ([1, 2], [0, 0], "twice"),
            ([1, 2], [0, 8], "8 is outside"),
            ([5, 6], [0, 2], "blocks \\[2\\] are in the tree already"),
            ([-5, 6], [0, 1], "token ids must be 0 or more"),
        ],
    )
    def test_bad_insert_changes_nothing(self, make, tokens, blocks, message):
        pool, cache = make()
        assert [pool.allocate(), pool.allocate()] == [0, 1]
        cache.insert([9], [pool.allocate()])
        before = pool.ref.tolist(), pool.held.tolist(), cache.render()
        with pytest.raises(ValueError, match=message):
            cache.insert(tokens, blocks)
        assert (pool.ref.tolist(), pool.held.tolist(), cache.render()) == before

    def test_caller_may_change_its_arrays_afterwards(self, make):
        pool, cache = make()
        tokens, blocks = np.array([1, 2, 3]), pool.allocate_many(3)
        cache.insert(tokens, blocks)
        tokens[:] = 7
        blocks.clear()
        assert cache.match_prefix([1, 2, 3]).n_tokens == 3
        audit(pool, cache)

    def test_match_of_a_prompt_changes_nothing(self, make):
        pool, cache = make()
        blocks = insert(cache, [1, 2, 3, 4])
        before = cache.render()
        assert cache.match([1, 2, 3, 4]) == (blocks[:3], 3)
        assert cache.match([1, 2, 9]) == (blocks[:2], 2)
        assert cache.match([]) == ([], 0)
        assert cache.render() == before


class TestEviction:
    def test_split_leaves_the_time_of_the_unmatched_part(self, make):
        pool, cache = make()
        insert(cache, [1, 2, 3, 4])
        insert(cache, [5, 6])
        cache.match_prefix([1, 2])
        assert cache.evict(2) == 2
        assert cache.match([1, 2, 3, 4, 0])[1] == 2
        assert cache.match([5, 6, 0])[1] == 2
        assert cache.evict(2) == 2
        assert cache.match([5, 6, 0])[1] == 0
        assert cache.match([1, 2, 0])[1] == 2
        audit(pool, cache)

    def test_only_leaves_go_and_parents_after_their_children(self, make):
        pool, cache = make()
        insert(cache, [1, 2, 3])
        insert(cache, [1, 2, 4])
        cached = []
        while cache.evict(1):
            cached.append((cache.match([1, 2, 3, 0])[1], cache.match([1, 2, 4, 0])[1]))
            audit(pool, cache)
        assert cached == [(2, 3), (2, 2), (0, 0)]

    @pytest.mark.parametrize(
        ("policy", "survivor"), [("lru", 1), ("lfu", 2), ("fifo", 3)]
    )
    def test_policies(self, make, policy, survivor):
        pool, cache = make(policy=policy)
        for token in (1, 2, 3):
            insert(cache, [token])
        for token in (2, 2, 2, 3, 3, 1):
            cache.match_prefix([token])
        cache.evict(2)
        assert [t for t in (1, 2, 3) if cache.match([t, 0])[1]] == [survivor]
        audit(pool, cache)

    def test_admission_counts_as_a_hit(self, make):
        pool, cache = make(policy="lfu")
        for token in (1, 2):
            insert(cache, [token])
        cache.admit("a", [1, 0])[0].free()
        insert(cache, [2])  # used later, and found by nobody
        cache.evict(1)
        assert cache.match([1, 0])[1] == 1
        audit(pool, cache)

    def test_split_keeps_the_hits_of_the_matched_part(self, make):
        pool, cache = make(policy="lfu")
        insert(cache, [1, 2, 3, 4])
        other = [insert(cache, [9]), *(cache.match_prefix([9]) for _ in range(2))][-1]
        for _ in range(3):
            cache.match_prefix([1, 2, 3, 4])
        cache.match_prefix([1, 2])  # splits
        cache.lock(other.node)
        assert cache.evict(1) == 2  # [3, 4], of 3 hits: [9] is locked
        cache.unlock(other.node)
        assert cache.evict(1) == 1  # of 2 hits, against 4 of [1, 2]
        assert cache.match([1, 2, 0])[1] == 2
        audit(pool, cache)

    def test_split_keeps_the_age_of_the_matched_part(self, make):
        pool, cache = make(policy="fifo")
        insert(cache, [1, 2, 3, 4])
        insert(cache, [9])
        cache.match_prefix([1, 2, 3, 4])
        cache.match_prefix([1, 2])  # splits
        assert cache.evict(3) == 4
        assert cache.match([9, 0])[1] == 1
        audit(pool, cache)

    def test_priority_that_rose_is_seen(self, make):
        pool, cache = make(num_blocks=30)
        for token in range(10):
            insert(cache, [token])
        for token in (3, 0, 7, 0, 5, 3):
            cache.match_prefix([token])
        order = []
        while cache.cached:
            cache.evict(1)
            order.append(
                next(
                    t
                    for t in range(10)
                    if t not in order and not cache.match([t, 0])[1]
                )
            )
            audit(pool, cache)
        assert order == [1, 2, 4, 6, 8, 9, 7, 0, 5, 3]

    def test_clock_can_be_injected(self, make):
        times = iter([5.0, 5.0, 7.0, 7.0])
        pool, cache = make(clock=lambda: next(times))
        insert(cache, [1])
        insert(cache, [2])
        cache.match_prefix([1])
        cache.evict(1)
        assert cache.match([1, 0])[1] == 1
        assert "7" in cache.render()

    def test_unknown_policy_names_the_known_ones(self, make):
        with pytest.raises(ValueError, match=r"'lru', 'lfu', 'fifo'.* got 'mru'"):
            make(policy="mru")

    def test_eviction_drops_only_the_trees_own_references(self, make):
        pool, cache = make()
        seq = Sequence(pool, "a")
        seq.reserve(3)
        write(seq, [1, 2, 3], 0)
        pool.retain(seq.block_table)
        cache.insert([1, 2, 3], seq.block_table)
        assert cache.evict(99) == 0
        assert cache.cached == 0
        taken = pool.allocate_many(pool.free)
        assert not set(taken) & set(seq.block_table)
        assert_holds(seq, [1, 2, 3])
        pool.release_many(taken)
        audit(pool, cache, seq)

    def test_blocks_of_a_run_are_freed_tail_first(self, make):
        pool, cache = make()
        blocks = insert(cache, [1, 2, 3])
        cache.evict(3)
        # The last one freed is on top of the stack: the head of the run.
        assert pool.allocate_many(3) == blocks

    def test_duplicates_of_a_run_are_freed_tail_first(self, make):
        pool, cache = make()
        tokens = [1, 2, 3, 4]
        seqs = [cache.admit(name, tokens)[0] for name in "ab"]
        own = list(seqs[1].block_table)
        for seq in seqs:
            write(seq, tokens, 0)
            cache.publish(seq, tokens)
        assert pool.allocate_many(4) == own

    @pytest.mark.parametrize("bad", [-1, 1.5, None])
    def test_number_of_blocks_is_checked(self, make, bad):
        with pytest.raises(ValueError, match="n_blocks"):
            make()[1].evict(bad)


class TestLocks:
    def test_locked_path_stays_and_sizes_say_so(self, make):
        pool, cache = make()
        insert(cache, [1, 2, 3])
        insert(cache, [1, 2, 4])
        node = cache.match_prefix([1, 2, 3]).node
        cache.lock(node)
        assert (cache.evictable_size, cache.protected_size) == (1, 3)
        assert cache.evict(99) == 1
        assert cache.match([1, 2, 3, 0])[1] == 3
        cache.unlock(node)
        assert (cache.evictable_size, cache.protected_size) == (3, 0)
        assert cache.evict(99) == 3
        audit(pool, cache)

    def test_split_inherits_locks(self, make):
        pool, cache = make()
        insert(cache, [1, 2, 3, 4])
        node = cache.match_prefix([1, 2, 3, 4]).node
        cache.lock(node)
        cache.lock(node)
        upper = cache.match_prefix([1, 2]).node
        assert (upper.locks, node.locks) == (2, 2)
        cache.unlock(node)
        assert cache.evict(99) == 0
        cache.unlock(node)
        assert (upper.locks, node.locks) == (0, 0)
        audit(pool, cache)
        assert cache.evict(99) == 4

    def test_lock_above_leaves_what_is_below_free_to_go(self, make):
        pool, cache = make()
        insert(cache, [1, 2, 3, 4])
        cache.lock(cache.match_prefix([1, 2]).node)
        assert cache.evict(99) == 2
        assert cache.match([1, 2, 3, 4, 0])[1] == 2

    def test_unlocking_too_often_and_locking_what_is_gone(self, make):
        pool, cache = make()
        insert(cache, [1, 2])
        node = cache.match_prefix([1, 2]).node
        with pytest.raises(ValueError, match="not locked"):
            cache.unlock(node)
        cache.evict(2)
        with pytest.raises(ValueError, match="was evicted"):
            cache.lock(node)
        audit(pool, cache)

    def test_lock_is_taken_back_only_where_it_was_taken(self, make):
        pool, cache = make()
        insert(cache, [1, 2, 3, 4])
        node = cache.match_prefix([1, 2, 3, 4]).node
        cache.lock(node)
        above = cache.match_prefix([1, 2]).node
        for _ in range(2):
            with pytest.raises(ValueError, match="not locked"):
                cache.unlock(above)
            audit(pool, cache)
        cache.lock(above)
        cache.unlock(node)
        assert (cache.evictable_size, cache.protected_size) == (2, 2)
        cache.unlock(above)
        assert cache.protected_size == 0
        audit(pool, cache)

    def test_empty_match_can_be_locked(self, make):
        pool, cache = make()
        node = cache.match_prefix([1]).node
        cache.lock(node)
        cache.unlock(node)
        with pytest.raises(ValueError, match="not locked"):
            cache.unlock(node)
        audit(pool, cache)


class TestRequests:
    @pytest.mark.parametrize("bs", [1, 2, 4])
    def test_hit_leaves_at_least_one_token_to_compute(self, make, bs):
        for length in range(1, 4 * bs + 2):
            pool, cache = make(num_blocks=24, block_size=bs)
            tokens = list(range(4 * bs + 2))
            run(cache, "a", tokens)[0].free()
            seq, n_cached = run(cache, "b", tokens[:length])
            assert n_cached == min((length - 1) // bs, len(tokens) // bs) * bs
            assert_holds(seq, tokens[:length])
            audit(pool, cache, seq)
            seq.free()
            audit(pool, cache)

    def test_nothing_is_found_before_it_is_published(self, make):
        pool, cache = make(num_blocks=20)
        a, _ = cache.admit("a", range(9))
        b, n_cached = cache.admit("b", range(9))
        assert n_cached == 0
        assert not set(a.block_table) & set(b.block_table)
        audit(pool, cache, a, b)

    def test_second_of_two_equal_prompts_ends_up_with_the_trees_blocks(self, make):
        pool, cache = make(num_blocks=12, block_size=2)
        a, _ = cache.admit("a", range(7))
        b, _ = cache.admit("b", range(7))
        for seq in (a, b):
            write(seq, range(7), 0)
            cache.publish(seq, range(7))
            audit(pool, cache, a, b)
        assert b.block_table[:3] == a.block_table[:3]
        assert b.block_table[3] != a.block_table[3]
        assert pool.used == 5
        assert_holds(b, range(7))
        for seq in (a, b):
            seq.free()
            audit(pool, cache, a, b)
        assert pool.used == cache.cached == 3

    def test_fork_keeps_the_duplicate_that_its_parent_gave_up(self, make):
        pool, cache = make(num_blocks=12, block_size=2)
        a, _ = cache.admit("a", range(4))
        b, _ = cache.admit("b", range(4))
        for seq in (a, b):
            write(seq, range(4), 0)
        child = b.fork("child")
        cache.publish(a, range(4))
        cache.publish(b, range(4))
        assert b.block_table == a.block_table
        assert not set(child.block_table) & set(a.block_table)
        assert_holds(child, range(4))
        audit(pool, cache, a, b, child)

    def test_generated_tokens_and_chunks_are_published(self, make):
        pool, cache = make(num_blocks=12, block_size=2)
        tokens = [1, 2, 3]
        seq, _ = run(cache, "a", tokens)
        for token in (4, 5, 6):
            tokens.append(token)
            seq.reserve(1)
            write(seq, tokens, len(tokens) - 1)
            cache.publish(seq, tokens)
            audit(pool, cache, seq)
        assert cache.match([*tokens, 9])[1] == 6
        assert cache.protected_size == 3
        seq.free()
        assert cache.evictable_size == 3
        audit(pool, cache)

    def test_admission_evicts_what_it_needs(self, make):
        pool, cache = make(num_blocks=6, block_size=2)
        run(cache, "a", range(4))[0].free()
        run(cache, "b", range(10, 14))[0].free()
        tokens = [0, 1, 50, 51, 52, 53, 54]
        seq, n_cached = run(cache, "c", tokens)
        assert n_cached == 2
        assert_holds(seq, tokens)
        assert cache.stats.evictions == 1
        assert cache.match(range(10, 15))[1] == 4
        audit(pool, cache, seq)

    def test_growing_sequence_evicts_what_it_needs(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        run(cache, "a", range(4))[0].free()
        tokens = [0, 1, 50]
        seq, _ = run(cache, "b", tokens)
        tokens += [51, 52, 53, 54]
        seq.reserve(4)
        write(seq, tokens, 3)
        assert_holds(seq, tokens)
        assert cache.match(range(5))[1] == 2  # what the sequence uses stays
        before = pool.ref.tolist(), cache.cached
        with pytest.raises(OutOfBlocks):
            seq.reserve(2)
        assert (pool.ref.tolist(), cache.cached) == before
        audit(pool, cache, seq)

    def test_make_room_is_all_or_nothing(self, make):
        pool, cache = make(num_blocks=6)
        insert(cache, [1, 2])
        insert(cache, [1, 3])
        insert(cache, [4])
        held, _ = run(cache, "a", [1, 9])
        before = cache.cached, pool.free
        assert not cache.make_room(5)
        assert (cache.cached, pool.free) == before
        audit(pool, cache, held)
        assert cache.make_room(4)
        assert pool.free == 4
        audit(pool, cache, held)

    def test_older_hits_stay_and_younger_leaves_go(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        run(cache, "a", range(4))[0].free()
        run(cache, "b", range(10, 14))[0].free()
        tokens = [0, 1, 2, 3, 4]
        seq, n_cached = run(cache, "c", tokens)
        assert n_cached == 4
        assert cache.match(range(10, 15))[1] == 0
        assert_holds(seq, tokens)
        audit(pool, cache, seq)

    @pytest.mark.parametrize("policy", ["lru", "lfu"])
    def test_admission_counts_as_use(self, make, policy):
        pool, cache = make(policy=policy, num_blocks=20)
        run(cache, "a", [1, 2])[0].free()
        run(cache, "b", [3, 4])[0].free()
        cache.admit("c", [1, 2, 0])[0].free()
        cache.evict(1)
        assert cache.match([1, 2, 0])[1] == 2
        assert cache.match([3, 4, 0])[1] == 0
        audit(pool, cache)

    def test_aligned_prompt_that_is_cached_needs_room_for_its_last_page(self, make):
        pool, cache = make(num_blocks=3, block_size=2)
        seq, _ = run(cache, "a", range(4))
        other, _ = cache.admit("other", [9])
        with pytest.raises(OutOfBlocks, match="1 new blocks, 0 free"):
            cache.admit("b", range(4))
        seq.free()
        assert cache.protected_size == 0
        audit(pool, cache, other)

    def test_hits_are_not_evicted_to_make_room(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        run(cache, "a", [1, 2, 3, 4])[0].free()
        other, _ = cache.admit("other", [9])
        before = pool.ref.tolist(), list(pool._free_list), cache.render()
        # Two hits, two new ones, one free: the hits are all that could be evicted.
        with pytest.raises(OutOfBlocks, match="2 new blocks, 1 free of 4, at most 0"):
            cache.admit("b", [1, 2, 3, 4, 5, 6, 7])
        assert (pool.ref.tolist(), list(pool._free_list), cache.render()) == before
        audit(pool, cache, other)

    def test_evictable_blocks_that_somebody_reads_make_no_room(self, make):
        pool, cache = make(num_blocks=4)
        seq = Sequence(pool, "a")
        seq.reserve(2)
        write(seq, [1, 2], 0)
        pool.retain(seq.block_table)
        cache.insert([1, 2], seq.block_table)
        before = pool.ref.tolist(), cache.cached, cache.evictable_size
        with pytest.raises(OutOfBlocks, match="2 free of 4, at most 2 to evict"):
            cache.admit("b", [7, 8, 9])
        assert (pool.ref.tolist(), cache.cached, cache.evictable_size) == before
        assert cache.match([1, 2, 0])[1] == 2
        audit(pool, cache, seq)

    def test_what_can_never_fit_evicts_nothing(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        run(cache, "a", range(6))[0].free()
        with pytest.raises(NeverFits, match=r"9 tokens needs 5 blocks, .* has 4"):
            cache.admit("b", range(9))
        with pytest.raises(ValueError, match="empty prompt"):
            cache.admit("b", [])
        assert cache.cached == 3
        audit(pool, cache)

    def test_prefix_stays_locked_until_the_last_fork_is_freed(self, make):
        pool, cache = make(block_size=2)
        seq, _ = run(cache, "a", range(4))
        child = seq.fork("child")
        seq.free()
        assert cache.evict(99) == 0
        assert_holds(child, range(4))
        child.free()
        assert cache.evict(99) == 2
        with pytest.raises(RuntimeError):
            child.free()
        audit(pool, cache)

    def test_cut_tail_that_the_tree_holds_is_copied_not_overwritten(self, make):
        pool, cache = make(block_size=4)
        seq, _ = run(cache, "a", range(8))
        seq.truncate(6)
        seq.reserve(2)
        tokens = [0, 1, 2, 3, 4, 5, 70, 71]
        write(seq, tokens, 6)
        cache.publish(seq, tokens)
        assert_holds(seq, tokens)
        b, n_cached = run(cache, "b", range(9))
        assert n_cached == 8
        assert_holds(b, range(9))
        audit(pool, cache, seq, b)

    @pytest.mark.parametrize("n", [6, 9])
    def test_more_tokens_than_written_are_refused(self, make, n):
        pool, cache = make()
        seq, _ = cache.admit("a", range(5))
        with pytest.raises(ValueError, match=f"{n} tokens to publish, .* holds 5"):
            cache.publish(seq, range(n))
        assert cache.cached == 0
        audit(pool, cache, seq)

    def test_other_tokens_for_a_published_block_are_refused(self, make):
        pool, cache = make()
        seq, _ = run(cache, "a", [1, 2, 3])
        with pytest.raises(ValueError, match="in the tree already"):
            cache.publish(seq, [1, 2, 4])
        audit(pool, cache, seq)

    def test_tokens_of_another_request_are_refused_for_a_published_block(self, make):
        pool, cache = make(num_blocks=8, block_size=2)
        a, _ = run(cache, "a", [1, 2, 3])
        b, _ = run(cache, "b", [5, 6, 7])
        with pytest.raises(ValueError, match="in the tree already"):
            cache.publish(a, [5, 6])
        assert_holds(a, [1, 2, 3])
        audit(pool, cache, a, b)

    def test_freed_and_foreign_sequences_are_refused(self, make):
        pool, cache = make()
        seq, _ = cache.admit("a", range(5))
        seq.free()
        with pytest.raises(RuntimeError, match="'a' was freed"):
            cache.publish(seq, [])
        stranger = Sequence(make()[0], "stranger")
        stranger.reserve(2)
        pool.allocate_many(2)
        with pytest.raises(ValueError, match="another pool"):
            cache.publish(stranger, range(2))
        assert cache.cached == 0

    def test_statistics(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        run(cache, "a", [1, 2, 3, 4])[0].free()
        run(cache, "b", [1, 2, 3, 4, 5])[0].free()
        stats = cache.stats
        assert (stats.lookups, stats.lookup_tokens, stats.hit_tokens) == (2, 9, 4)


def test_both_caches_share_a_pool():
    pool = nan_pool(8, 2)
    chain, tree = PrefixCache(pool), RadixCache(pool)
    seq, _ = run(tree, "a", range(5))
    chain.publish(seq, range(5))
    seq.free()
    other, n_cached = run(chain, "b", range(5))
    assert n_cached == 4
    assert tree.evict(99) == 0
    assert_holds(other, range(5))
    pool.check([other], holders=[chain, tree])
    chain.check()
    tree.check()


def test_sequence_keeps_its_lock_when_it_cannot_move_it(make):
    pool, cache = make()
    seq, _ = run(cache, "a", [1, 2, 3])
    insert(cache, [7])
    gone = cache.match_prefix([7]).node
    cache.evict(1)
    with pytest.raises(ValueError, match="was evicted"):
        seq.lock_at(cache, gone)
    assert cache.protected_size == 3
    audit(pool, cache, seq)
    seq.free()
    assert cache.protected_size == 0


@pytest.mark.parametrize("use", ["match_prefix", "insert", "admit", "publish"])
def test_clock_that_fails_costs_no_reference(make, use):
    working = True

    def clock():
        if not working:
            raise OSError("no clock")
        return 1.0

    pool, cache = make(num_blocks=16, clock=clock)
    run(cache, "old", [1, 2, 6])[0].free()
    tokens = [1, 2, 3, 4, 5]
    seq, n_cached = cache.admit("a", tokens)
    write(seq, tokens, n_cached)
    own = [pool.allocate() for _ in range(3)]
    arguments = {
        "match_prefix": ([1, 2, 9],),
        "insert": ([7, 8, 9], own),
        "admit": ("b", [1, 2, 6, 9]),
        "publish": (seq, tokens),
    }[use]
    before, working = cache.protected_size, False
    with pytest.raises(OSError, match="no clock"):
        getattr(cache, use)(*arguments)
    assert cache.protected_size == before
    for block in own:
        pool.release(block)
    audit(pool, cache, seq)


class TestRender:
    @pytest.fixture
    def cache(self, make):
        pool, cache = make(num_blocks=40)
        insert(cache, [1, 2, 3])
        insert(cache, [1, 2, 4, 5])
        cache.lock(cache.match_prefix([1, 2, 4]).node)
        return cache

    def test_text(self, cache):
        assert cache.render().splitlines() == [
            "Radix tree: 5 blocks, 3 of them locked",
            "└─ 1 2  (blocks 0 1; used at 3; 1 hit; locked by 1 request)",
            "   ├─ 3  (block 2; used at 1)",
            "   └─ 4  (block 5; used at 3; 1 hit; locked by 1 request)",
            "      └─ 5  (block 6; used at 2)",
        ]

    def test_html_has_the_same_facts(self, cache):
        html = cache.render(html=True)
        for fact in ("5 blocks", "<code>1 2</code>", "locked by 1 request", "block 6"):
            assert fact in html
        assert html.count("<li") == html.count("</li>") == 4

    def test_words_for_tokens_are_escaped(self, cache):
        html = cache.render(html=True, decode=lambda ids: "<b>" * len(ids))
        assert "&lt;b&gt;&lt;b&gt;" in html
        assert "<b>" not in html

    def test_russian(self, cache):
        use_language("ru")
        assert cache.render().startswith("Префиксное дерево: 5 блоков")

    def test_long_runs_are_cut(self, cache):
        insert(cache, list(range(100, 120)))
        assert "100 101 102 103 104 105 106 107 108 109 110 111 …" in cache.render()


class TestCheckFindsEachFault:
    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            (lambda c, n: n.parent.children.clear(), "may be evicted"),
            (lambda c, n: setattr(n, "parent", c.root), "not listed by its parent"),
            (lambda c, n: n.blocks.pop(), "has 1 tokens"),
            (lambda c, n: setattr(n, "locks", 1), "locks"),
            (lambda c, n: setattr(n, "locks", -1), "locks"),
            (lambda c, n: setattr(n, "own_locks", 1), "1 of its own"),
            (lambda c, n: setattr(n, "queued", False), "not queued"),
            (lambda c, n: setattr(c, "evictable_size", 0), "evictable"),
            (lambda c, n: setattr(c, "protected_size", 3), "protected"),
            (lambda c, n: c._blocks.pop(), "not those listed"),
            (lambda c, n: n.blocks.__setitem__(0, 0), "not those listed"),
        ],
    )
    def test_fault(self, make, fault, message):
        pool, cache = make()
        insert(cache, [1, 2, 3])
        node = cache.match_prefix([1, 2]).node.children.popitem()[1]
        node.parent.children[node.tokens[:1].tobytes()] = node
        cache.check()
        fault(cache, node)
        with pytest.raises(PoolCorrupted, match=message):
            cache.check()
