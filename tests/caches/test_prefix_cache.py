"""The hash chain, one kind of fault at a time."""

import numpy as np
import pytest

from paged_kv import OutOfBlocks, PoolCorrupted, Sequence
from paged_kv.caching import NeverFits
from paged_kv.prefix_cache import PrefixCache
from tests.caches.contents import assert_holds, nan_pool, run, write

# A constant hash makes every lookup a collision: only the comparison of tokens is left.
HASHES = {"sha256": {}, "constant": {"hash_fn": lambda data: b"same"}}


@pytest.fixture(params=HASHES)
def make(request):
    def make(num_blocks=8, block_size=4):
        pool = nan_pool(num_blocks, block_size)
        return pool, PrefixCache(pool, **HASHES[request.param])

    return make


def audit(pool, cache, *sequences):
    pool.check(sequences, holders=[cache])
    cache.check()


def test_full_blocks_of_a_finished_request_are_found_again(make):
    pool, cache = make()
    tokens = list(range(10))
    a, n_cached = run(cache, "a", tokens)
    assert n_cached == 0
    table = list(a.block_table)
    a.free()
    assert pool.used == 0
    assert cache.match(tokens) == (table[:2], 8)
    b, n_cached = run(cache, "b", [*tokens, 99])
    assert (b.block_table[:2], n_cached) == (table[:2], 8)
    assert_holds(b, [*tokens, 99])
    audit(pool, cache, b)


@pytest.mark.parametrize("bs", [1, 2, 4])
def test_hit_leaves_at_least_one_token_to_compute(make, bs):
    for length in range(1, 4 * bs + 2):
        pool, cache = make(num_blocks=16, block_size=bs)
        tokens = list(range(4 * bs + 2))
        run(cache, "a", tokens)[0].free()
        expected = min((length - 1) // bs, len(tokens) // bs) * bs
        assert cache.match(tokens[:length])[1] == expected
        seq, n_cached = run(cache, "b", tokens[:length])
        assert n_cached == expected
        assert_holds(seq, tokens[:length])
        audit(pool, cache, seq)


def test_match_changes_nothing(make):
    pool, cache = make()
    run(cache, "a", list(range(8)))[0].free()
    before = pool.ref.tolist(), list(pool._free_list), pool.peak, repr(cache)
    cache.match(list(range(8)))
    cache.match([])
    assert (pool.ref.tolist(), list(pool._free_list), pool.peak, repr(cache)) == before


def test_nothing_is_found_before_it_is_published(make):
    pool, cache = make()
    tokens = list(range(9))
    a, _ = cache.admit("a", tokens)
    b, n_cached = cache.admit("b", tokens)
    assert n_cached == 0
    assert not set(a.block_table) & set(b.block_table)
    assert np.isnan(pool.k[:, a.block_table]).all()
    audit(pool, cache, a, b)


def test_chunks_are_published_as_they_are_written(make):
    pool, cache = make()
    tokens = list(range(12))
    seq, _ = cache.admit("a", tokens)
    for written in range(1, 13):
        cache.publish(seq, tokens[:written])
        assert cache.cached == written // 4
    audit(pool, cache, seq)


def test_last_partial_block_is_never_cached(make):
    pool, cache = make()
    run(cache, "a", list(range(7)))[0].free()
    assert cache.cached == 1
    assert cache.match(list(range(7)))[1] == 4


def test_duplicates_are_allowed_and_each_serves(make):
    pool, cache = make(num_blocks=6)
    tokens = list(range(9))
    a, _ = cache.admit("a", tokens)
    b, _ = cache.admit("b", tokens)
    for seq in (a, b):
        write(seq, tokens, 0)
        cache.publish(seq, tokens)
    assert cache.cached == 4
    a.free()  # its blocks are reused next, those of b still serve
    c, _ = cache.admit("c", [50])
    d, _ = cache.admit("d", [51, 52])
    assert cache.match(tokens) == (b.block_table[:2], 8) or cache.match(tokens)[1] == 8
    audit(pool, cache, b, c, d)
    e = pool.allocate_many(1)
    assert cache.match(tokens) == (b.block_table[:2], 8)
    pool.release_many(e)
    audit(pool, cache, b, c, d)


class TestKeys:
    TOKENS = (0, 1, 2, 3, 4, 5, 6, 7, 8)

    @pytest.mark.parametrize(
        ("published", "asked"),
        [
            ({"lora": "X"}, {"salt": "X"}),
            ({"salt": "X"}, {"lora": "X"}),
            ({"lora": "X"}, {}),
            ({}, {"salt": "X"}),
            ({}, {"salt": ""}),
            ({"lora": "None"}, {}),
            ({"lora": "a", "salt": "b"}, {"lora": "ab"}),
            ({"lora": "a', 'salt': 'b"}, {"lora": "a", "salt": "b"}),
            ({"salt": "one"}, {"salt": "other"}),
        ],
    )
    def test_other_extra_keys_miss(self, make, published, asked):
        pool, cache = make()
        seq, _ = run(cache, "a", self.TOKENS, **published)
        assert cache.match(self.TOKENS, **asked) == ([], 0)
        assert cache.match(self.TOKENS, **published)[1] == 8
        b, n_cached = run(cache, "b", self.TOKENS, **asked)
        assert n_cached == 0
        assert_holds(b, self.TOKENS, asked or None)
        audit(pool, cache, seq, b)

    def test_keys_differ_by_kind_not_only_the_comparison(self):
        seen = []
        cache = PrefixCache(nan_pool(4, 2), lambda data: seen.append(data) or data)
        for extra in ({"lora": "X"}, {"salt": "X"}, {}):
            cache.match([1, 2, 3], **extra)
        assert len(set(seen[1:])) == 3

    @pytest.mark.parametrize(
        "other",
        [
            [9, 1, 2, 3, 4, 5, 6, 7, 8],  # another head before an equal second block
            [4, 5, 6, 7, 4, 5, 6, 7, 8],  # the second block in the first place
            [0, 1, 2, 3, 0, 1, 2, 3, 8],
            [0, 1, 2, 3, 5, 4, 6, 7, 8],
            [256, 1, 2, 3, 4, 5, 6, 7, 8],
        ],
    )
    def test_another_prompt_never_reads_this_one(self, make, other):
        pool, cache = make()
        a, _ = run(cache, "a", self.TOKENS)
        b, _ = run(cache, "b", other)
        assert_holds(a, self.TOKENS)
        assert_holds(b, other)
        assert cache.match(other)[0] == b.block_table[:2]
        audit(pool, cache, a, b)

    def test_key_stands_for_the_whole_prefix(self):
        keys = {}
        cache = PrefixCache(nan_pool(8, 2), lambda data: keys.setdefault(data, data))
        run(cache, "a", [1, 2, 7, 8])
        run(cache, "b", [3, 4, 7, 8])
        assert len(cache._by_key) == 4

    def test_block_of_another_prefix_is_not_published_again(self, make):
        pool, cache = make()
        a, _ = run(cache, "a", [*range(4), 5, 5, 5, 5])
        b, _ = run(cache, "b", [9, 9, 9, 9])
        # The tokens are those of a's second block, and K and V are not: b's differ.
        pool.retain([a.block_table[1]])
        b.block_table.append(a.block_table[1])
        b.length = 8
        before = repr(cache)
        with pytest.raises(ValueError, match="was published with other tokens"):
            cache.publish(b, [9, 9, 9, 9, 5, 5, 5, 5])
        assert repr(cache) == before
        audit(pool, cache, a, b)

    def test_hash_must_give_bytes(self):
        pool = nan_pool(2, 2)
        with pytest.raises(TypeError, match="bytes"):
            PrefixCache(pool, hash)
        PrefixCache(pool)  # the refused one left the pool as it was


class TestAdmission:
    def test_prompt_larger_than_the_pool_leaves_what_is_cached(self, make):
        pool, cache = make(num_blocks=3, block_size=2)
        run(cache, "a", [1, 2, 3, 4])[0].free()
        before = list(pool._free_list), repr(cache.stats)
        with pytest.raises(OutOfBlocks, match="needs 4 blocks, the whole pool has 3"):
            cache.admit("b", [1, 2, 3, 4, 5, 6, 7, 8])
        assert pool.ref.tolist() == [0, 0, 0]
        assert pool.free == 3
        assert (list(pool._free_list), repr(cache.stats)) == before
        assert cache.match([1, 2, 3, 4, 5])[1] == 4
        audit(pool, cache)

    def test_all_or_nothing_with_hits_in_the_free_queue(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        run(cache, "a", [1, 2, 3, 4])[0].free()
        other, _ = cache.admit("other", [9])
        before = pool.ref.tolist(), list(pool._free_list)
        # Two hits and two new ones, three free: counting only the new ones would do.
        with pytest.raises(
            OutOfBlocks, match=r"2 new blocks and 2 cached .* 3 free of 4"
        ):
            cache.admit("b", [1, 2, 3, 4, 5, 6, 7])
        assert (pool.ref.tolist(), list(pool._free_list)) == before
        assert cache.match([1, 2, 3, 4, 5])[1] == 4
        audit(pool, cache, other)

    def test_hits_in_use_need_no_room(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        a, _ = run(cache, "a", [1, 2, 3, 4])
        b, n_cached = run(cache, "b", [1, 2, 3, 4, 5, 6, 7])
        assert n_cached == 4
        assert pool.free == 0
        audit(pool, cache, a, b)

    def test_new_blocks_are_never_taken_from_among_the_hits(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        run(cache, "a", [1, 2, 3, 4])[0].free()
        pool.release_many(pool.allocate_many(2))  # now the hits stand first in line
        tokens = [1, 2, 3, 4, 5, 6, 7]
        b, n_cached = run(cache, "b", tokens)
        assert n_cached == 4
        assert len(set(b.block_table)) == 4
        assert_holds(b, tokens)
        audit(pool, cache, b)

    def test_what_can_never_fit_is_no_shortage(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        with pytest.raises(NeverFits, match=r"9 tokens needs 5 blocks, .* has 4"):
            cache.admit("a", range(9))
        with pytest.raises(ValueError, match="empty prompt"):
            cache.admit("a", [])
        audit(pool, cache)

    @pytest.mark.parametrize(
        "bad", [[-1, 2], [0.5, 1], [[1, 2]], ["a"], [True, False], [2**63], [None]]
    )
    def test_tokens_are_checked(self, make, bad):
        pool, cache = make()
        for method in (cache.match, lambda tokens: cache.admit("a", tokens)):
            with pytest.raises(ValueError, match="token"):
                method(bad)
        audit(pool, cache)


class TestEviction:
    def test_key_goes_when_the_block_is_reused_and_not_before(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        tokens = [1, 2, 3, 4, 5, 6]
        run(cache, "a", tokens)[0].free()
        assert (cache.cached, cache.stats.evictions) == (3, 0)
        first = pool.allocate()  # never used before
        assert cache.match([*tokens, 7])[1] == 6
        second = pool.allocate()
        assert cache.match([*tokens, 7])[1] == 4
        assert (cache.cached, cache.stats.evictions) == (2, 1)
        pool.release(first)
        pool.release(second)
        audit(pool, cache)

    def test_tail_goes_first_so_that_heads_live_longest(self, make):
        pool, cache = make(num_blocks=6, block_size=2)
        run(cache, "a", range(12))[0].free()
        left = []
        while pool.free:
            pool.allocate_many(1)
            left.append(cache.match(range(13))[1])
        assert left == [10, 8, 6, 4, 2, 0]

    def test_free_blocks_say_what_is_reused_next_and_what_is_found(self, make):
        pool, cache = make(num_blocks=5, block_size=2)
        a, _ = run(cache, "a", [1, 2, 3, 4, 5])
        assert cache.free_blocks() == [(3, False), (4, False)]
        a.free()
        unused = [(3, False), (4, False), (2, False)]
        assert cache.free_blocks() == [*unused, (1, True), (0, True)]
        audit(pool, cache)

    def test_touched_blocks_go_to_the_end_of_the_line(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        run(cache, "a", [1, 2, 3])[0].free()
        run(cache, "b", [4, 5, 6])[0].free()
        run(cache, "c", [1, 2, 9])[0].free()
        pool.allocate_many(3)
        assert cache.match([1, 2, 3])[1] == 2
        assert cache.match([4, 5, 6])[1] == 0

    def test_match_stops_at_the_first_miss(self, make):
        pool, cache = make(num_blocks=4, block_size=2)
        seq, _ = run(cache, "a", range(6))
        head_first = list(seq.block_table)
        seq.block_table.clear()
        pool.release_many(head_first)
        seq.length = 0
        pool.allocate_many(2)  # the unused block, then the head
        assert cache.cached == 2
        assert cache.match(range(7)) == ([], 0)
        cache.check()

    def test_head_computed_again_makes_its_tail_findable_again(self, make):
        pool, cache = make(num_blocks=6, block_size=2)
        a, _ = run(cache, "a", range(6))
        head, *rest = a.block_table
        pool.release_many([head])  # only the head, against the rule
        pool.release_many(pool.allocate_many(4)[:1])  # the head is reused
        assert cache.match(range(7)) == ([], 0)
        b, n_cached = run(cache, "b", [0, 1])
        assert n_cached == 0
        assert cache.match(range(7)) == (b.block_table + rest, 6)
        cache.check()

    def test_live_blocks_are_never_handed_out(self, make):
        pool, cache = make(num_blocks=6, block_size=2)
        a, _ = run(cache, "a", [1, 2, 3, 4, 5])
        run(cache, "b", [1, 2, 7])[0].free()
        taken = pool.allocate_many(pool.free)
        assert not set(taken) & set(a.block_table)
        assert_holds(a, [1, 2, 3, 4, 5])


class TestStaleKeys:
    def test_tail_cut_short_and_continued_in_place(self, make):
        pool, cache = make(block_size=4)
        seq, _ = run(cache, "a", range(8))
        seq.truncate(6)
        assert cache.match(range(9))[1] == 8  # nothing is overwritten yet
        seq.reserve(2)
        assert cache.match(range(9))[1] == 4
        tokens = [0, 1, 2, 3, 4, 5, 70, 71]
        write(seq, tokens, 6)
        cache.publish(seq, tokens)
        assert cache.match([*tokens, 1]) == (seq.block_table, 8)
        assert cache.match(range(9))[1] == 4
        audit(pool, cache, seq)

    def test_the_other_holder_of_a_cut_block_frees_it_first(self, make):
        pool, cache = make(block_size=4)
        seq, _ = run(cache, "a", range(8))
        child = seq.fork("child")
        child.truncate(6)
        seq.free()
        child.reserve(1)  # in place: the last holder copies nothing
        write(child, [0, 1, 2, 3, 4, 5, 70], 6)
        assert cache.match(range(9))[1] == 4
        audit(pool, cache, child)

    def test_copy_on_write_leaves_the_cached_block_alone(self, make):
        pool, cache = make(block_size=4)
        seq, _ = run(cache, "a", range(8))
        child = seq.fork("child")
        child.truncate(6)
        child.reserve(1)
        write(child, [0, 1, 2, 3, 4, 5, 70], 6)
        assert cache.match(range(9))[1] == 8
        assert_holds(seq, range(8))
        audit(pool, cache, seq, child)

    def test_hit_on_a_cut_block_makes_its_owner_copy(self, make):
        pool, cache = make(block_size=4)
        seq, _ = run(cache, "a", range(8))
        seq.truncate(6)
        b, n_cached = run(cache, "b", range(9))
        assert n_cached == 8
        seq.reserve(1)
        write(seq, [0, 1, 2, 3, 4, 5, 70], 6)
        assert_holds(b, range(9))
        audit(pool, cache, seq, b)

    def test_generated_tokens_are_published_too(self, make):
        pool, cache = make(block_size=2)
        tokens = [1, 2, 3]
        seq, _ = run(cache, "a", tokens)
        for token in (4, 5, 6):
            tokens.append(token)
            seq.reserve(1)
            write(seq, tokens, len(tokens) - 1)
            cache.publish(seq, tokens)
        assert cache.match([*tokens, 9])[1] == 6
        audit(pool, cache, seq)


class TestPublish:
    def test_more_tokens_than_written_are_refused(self, make):
        pool, cache = make()
        seq, _ = cache.admit("a", range(5))
        with pytest.raises(ValueError, match=r"6 tokens to publish, .* holds 5"):
            cache.publish(seq, range(6))
        assert cache.cached == 0

    def test_freed_sequence_has_nothing_to_publish(self, make):
        pool, cache = make()
        seq, _ = cache.admit("a", range(5))
        seq.free()
        for tokens in ([], range(5)):
            with pytest.raises(RuntimeError, match="'a' was freed"):
                cache.publish(seq, tokens)

    def test_sequence_of_another_pool_is_refused(self, make):
        _, cache = make()
        other, _ = make()
        seq = Sequence(other, "stranger")
        seq.reserve(8)
        with pytest.raises(ValueError, match=r"'stranger' .* another pool"):
            cache.publish(seq, range(8))
        assert cache.cached == 0

    @pytest.mark.parametrize(
        ("tokens", "extra"),
        [
            ([0, 1, 2, 9, 4, 5, 6, 7], {}),
            ([0, 1, 2, 3, 4, 5, 6, 9], {}),
            (range(8), {"salt": "x"}),
            (range(8), {"lora": "x"}),
        ],
    )
    def test_other_tokens_for_a_published_block_are_refused(self, make, tokens, extra):
        pool, cache = make()
        seq, _ = run(cache, "a", range(8))
        seq.reserve(4)
        with pytest.raises(ValueError, match="was published with other tokens"):
            cache.publish(seq, [*tokens, 1, 2, 3, 4], **extra)
        assert cache.cached == 2
        audit(pool, cache, seq)

    def test_any_sequence_can_be_published(self, make):
        pool, cache = make()
        seq = Sequence(pool, "plain")
        seq.reserve(8)
        write(seq, range(8), 0)
        cache.publish(seq, range(8))
        assert cache.match(range(9)) == (seq.block_table, 8)

    def test_known_blocks_are_not_hashed_again(self):
        calls = []
        pool = nan_pool(16, 4)
        cache = PrefixCache(pool, lambda data: calls.append(data) or data)
        seq, _ = run(cache, "a", range(40))
        calls.clear()
        cache.publish(seq, range(40))
        assert calls == []


def test_statistics(make):
    pool, cache = make(num_blocks=4, block_size=2)
    assert cache.stats.hit_rate == 0
    run(cache, "a", [1, 2, 3, 4])[0].free()
    run(cache, "b", [1, 2, 3, 4, 5])[0].free()
    assert cache.stats.lookups == 2
    assert cache.stats.lookup_tokens == 9
    assert cache.stats.hit_tokens == 4
    assert cache.stats.hit_rate == 4 / 9
    run(cache, "c", range(10, 18))[0].free()
    assert cache.stats.evictions == 2


class TestCheckFindsEachFault:
    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            (lambda c: c._by_block.pop(0), "do not list each other"),
            (lambda c: c._by_block.__setitem__(5, c._by_block[0]), "each other"),
            (lambda c: c._by_block[0].blocks.append(0), "each other"),
            (lambda c: setattr(c._by_block[0], "content", b"x"), "another prefix's"),
            (lambda c: setattr(c._by_block[0], "children", 0), "counts 0 children"),
            (lambda c: setattr(c._by_block[1], "children", 1), "counts 1 children"),
            (lambda c: c._by_key.pop(c._by_block[0].key), "each other|follow"),
        ],
    )
    def test_fault(self, fault, message):
        cache = PrefixCache(nan_pool(8, 4))
        run(cache, "a", range(8))
        cache.check()
        fault(cache)
        with pytest.raises(PoolCorrupted, match=message):
            cache.check()
