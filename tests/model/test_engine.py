"""Whatever the engine does with requests, each gets the answer it would get alone."""

import itertools
from functools import partial

import numpy as np
import pytest

from paged_kv.caching import NeverFits
from paged_kv.model import Engine
from paged_kv.pool import BlockPool, OutOfBlocks
from paged_kv.prefix_cache import PrefixCache
from paged_kv.quantization import QuantizedBlockPool
from paged_kv.radix_cache import RadixCache
from paged_kv.sequence import Sequence
from tests.model.interrupts import interrupting

CACHES = {"no cache": None, "hash": PrefixCache, "radix": RadixCache}


def random_prompt(rng, n: int) -> list[int]:
    return rng.integers(0, 61, size=n).tolist()


def run_checked(engine: Engine) -> None:
    """Run to the end; after each step the pool's books are in order."""
    while engine.running or engine.waiting:
        engine.step()
        engine.check()
        arrivals = [(a.request.number, a.index) for a in engine.running]
        arrivals += [(a.request.number, a.index) for a in engine.waiting]
        assert arrivals == sorted(arrivals)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("seed", range(20))
def test_random_mixes_get_the_answers_of_one_by_one(tiny, dense, cache, seed):
    rng = np.random.default_rng(seed)
    max_batch = int(rng.integers(1, 7))
    engine = Engine(
        tiny,
        num_blocks=int(rng.integers(12, 30)),
        block_size=int(rng.choice([1, 2, 4])),
        cache_type=CACHES[cache],
        max_batch=max_batch,
        token_budget=max_batch + int(rng.integers(1, 20)),
        watermark=int(rng.integers(0, 3)),
    )
    capacity = engine.pool.num_blocks * engine.pool.block_size
    stems = [random_prompt(rng, int(n)) for n in rng.integers(1, 12, size=2)]
    waves = []
    for _ in range(2):  # the second finds what the first left in the cache
        for _ in range(int(rng.integers(1, 6))):
            stem = stems[rng.integers(2)] if rng.random() < 0.7 else []
            prompt = stem + random_prompt(rng, int(rng.integers(1, 6)))
            room = capacity - len(prompt) + 1
            if room < 1:
                continue
            waves.append(
                engine.submit(
                    prompt,
                    max_tokens=int(rng.integers(1, min(room, 14) + 1)),
                    n=int(rng.integers(1, min(3, max_batch) + 1)),
                )
            )
            for _ in range(int(rng.integers(3))):  # others arrive in the middle
                engine.step()
                engine.check()
        run_checked(engine)
    for request in waves:
        expected = dense.answer(request.prompt, request.max_tokens)
        assert [a.tokens for a in request.answers] == [expected] * request.n
        assert {a.finish_reason for a in request.answers} == {"length"}
    held = 0 if cache != "radix" else engine.cache.cached
    assert engine.pool.used == held


@pytest.mark.parametrize("cache", CACHES)
def test_preemption_costs_work_and_changes_no_answer(tiny, dense, cache):
    """Four answers of 24 tokens that need 4 · 7 blocks, in a pool of 10."""
    rng = np.random.default_rng(5)
    engine = Engine(tiny, 10, 4, cache_type=CACHES[cache], max_batch=4)
    requests = [engine.submit(random_prompt(rng, 5), max_tokens=20) for _ in range(4)]
    run_checked(engine)
    for request in requests:
        assert request.answers[0].tokens == dense.answer(request.prompt, 20)
    assert engine.preemptions > 2
    assert engine.preemptions == sum(r.answers[0].preemptions for r in requests)
    assert engine.preemptions == sum(step.preemptions for step in engine.steps)
    assert requests[0].answers[0].preemptions == 0  # the oldest always goes on
    # Computed anew, unless a cache still had it.
    needed = sum(len(r.prompt) for r in requests)
    assert sum(step.prefill for step in engine.steps) > needed


def test_the_latest_request_gives_way(tiny):
    engine = Engine(tiny, 6, 4, max_batch=3)
    old, middle, new = (engine.submit([1, 2, 3, 4, i], max_tokens=9) for i in range(3))
    while not engine.preemptions:
        engine.step()
    assert [a.request for a in engine.running] == [old, middle]
    assert [a.request for a in engine.waiting] == [new]
    assert engine.waiting[0].seq is None
    assert new.answers[0].tokens  # kept, to be computed anew
    engine.check()


def test_a_watermark_trades_batch_for_preemptions(tiny):
    def run(watermark):
        engine = Engine(tiny, 12, 4, max_batch=6, watermark=watermark)
        for i in range(6):
            engine.submit([i, 2, 3, 4, 5], max_tokens=16)
        engine.run()
        steps = engine.steps
        return engine.preemptions, sum(s.decode for s in steps) / len(steps)

    (many, large), (few, small) = run(0), run(4)
    assert few < many
    assert small < large


def room(engine: Engine) -> int:
    """Return how many blocks answers can still take: free, or evictable."""
    tree = engine.cache.evictable_size if isinstance(engine.cache, RadixCache) else 0
    return engine.pool.free + tree


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("seed", range(4))
def test_an_admission_beside_others_leaves_the_watermark(tiny, cache, seed):
    rng = np.random.default_rng(seed)
    engine = Engine(tiny, 16, 2, cache_type=CACHES[cache], watermark=4)
    stems = [random_prompt(rng, n) for n in (4, 10)]
    checked = 0
    for _ in range(60):
        if rng.random() < 0.5:  # new prompts, and such as were computed before
            stem = stems[rng.integers(2)] + random_prompt(rng, 1)
            engine.submit(stem, max_tokens=int(rng.integers(2, 6)))
        before = set(engine.running)
        engine.step()
        if before and set(engine.running) - before:
            checked += 1
            assert room(engine) >= 4
    assert checked > 5


def test_a_step_stays_within_its_token_budget_and_prompts_advance(tiny):
    engine = Engine(tiny, 64, 4, max_batch=4, token_budget=5)
    for i in range(4):
        engine.submit([i] * 13, max_tokens=10)
    run_checked(engine)
    assert max(step.prefill + step.decode for step in engine.steps) == 5
    # 13 tokens of the first prompt: 5, 5, 3 and 2 of the second.
    assert [step.prefill for step in engine.steps[:3]] == [5, 5, 5]
    first_decode = next(i for i, step in enumerate(engine.steps) if step.decode)
    assert engine.steps[first_decode].prefill == 4  # one decode, four of a prompt


def test_decodes_of_a_batch_share_one_pass_over_the_weights(tiny, monkeypatch):
    engine = Engine(tiny, 64, 4, max_batch=8)
    for i in range(8):
        engine.submit([i, 1, 2], max_tokens=6)
    passes = []
    forward = tiny.forward
    monkeypatch.setattr(
        tiny, "forward", lambda *args: passes.append(len(args[0])) or forward(*args)
    )
    engine.run()
    # One pass for all prompts, which gives each its first token; then five decodes.
    assert passes == [24, 8, 8, 8, 8, 8]


def test_forks_of_one_prompt_share_its_blocks(tiny, dense):
    prompt = list(range(10))
    engine = Engine(tiny, 64, 4, max_batch=5)
    request = engine.submit(prompt, max_tokens=3, n=5)
    engine.step()
    assert engine.pool.used == 3  # the prompt, once
    engine.step()
    assert engine.pool.used == 2 + 5  # two full blocks shared, the tail copied
    run_checked(engine)
    assert [a.tokens for a in request.answers] == [dense.answer(prompt, 3)] * 5
    assert sum(step.prefill for step in engine.steps) == 10
    assert engine.pool.used == 0


def test_samples_differ_and_can_be_repeated(tiny):
    def run(num_blocks):
        engine = Engine(tiny, num_blocks, 4, max_batch=4)
        request = engine.submit([1, 2, 3], max_tokens=12, n=4, temperature=1.0, seed=3)
        run_checked(engine)
        return [a.tokens for a in request.answers], engine.preemptions

    roomy, none = run(64)
    tight, some = run(5)
    assert none == 0 < some
    assert len({tuple(tokens) for tokens in roomy}) == 4
    assert tight == roomy  # a preempted answer goes on with its own draws


def test_a_stop_token_ends_an_answer_and_is_not_part_of_it(tiny, dense):
    prompt = [1, 2, 3]
    expected = dense.answer(prompt, 12)
    stop = expected[5]
    engine = Engine(tiny, 64, 4)
    request = engine.submit(prompt, max_tokens=12, stop=[stop])
    streamed = list(engine.stream())
    (answer,) = request.answers
    assert answer.tokens == expected[: expected.index(stop)]
    assert streamed == [(answer, token) for token in answer.tokens]
    assert answer.finish_reason == "stop"
    assert request.done
    assert engine.pool.used == 0


def test_times_are_taken_from_the_clock(tiny):
    engine = Engine(tiny, 64, 4, clock=partial(next, itertools.count(0.0, 1.0)))
    request = engine.submit([1, 2, 3], max_tokens=4)
    engine.run()
    (answer,) = request.answers
    assert request.submitted_at < answer.first_token_at < answer.finished_at
    for step in engine.steps:  # two layers: one tick each, within the pass
        assert step.attention_seconds == 2
        assert step.seconds > step.attention_seconds


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("where", ["forward", "logits"])
def test_what_was_interrupted_is_computed_again(tiny, dense, monkeypatch, cache, where):
    for at in range(1, 8):
        engine = Engine(tiny, 10, 4, cache_type=CACHES[cache], max_batch=4)
        requests = [engine.submit([i, 2, 3, 4, 5], max_tokens=9, n=2) for i in (1, 2)]
        with monkeypatch.context() as patch:
            patch.setattr(tiny, where, interrupting(getattr(tiny, where), at))
            with pytest.raises(KeyboardInterrupt):
                engine.run()
        engine.check()
        run_checked(engine)
        for request in requests:
            expected = dense.answer(request.prompt, 9)
            assert [a.tokens for a in request.answers] == [expected] * 2
        held = 0 if cache != "radix" else engine.cache.cached
        assert engine.pool.used == held


def test_an_answer_that_cannot_be_freed_stops_no_sibling(tiny, dense, monkeypatch):
    engine = Engine(tiny, 10, 4)
    request = engine.submit([1, 2, 3, 4, 5], max_tokens=1, n=3)
    with monkeypatch.context() as patch:
        patch.setattr(Sequence, "free", interrupting(Sequence.free, 1, "after"))
        with pytest.raises(KeyboardInterrupt):
            engine.run()
    run_checked(engine)
    expected = dense.answer(request.prompt, 1)
    assert [a.tokens for a in request.answers] == [expected] * 3
    assert engine.pool.used == 0


class TestCaches:
    """What one request computed, the next one finds."""

    @pytest.mark.parametrize("cache", [PrefixCache, RadixCache])
    def test_a_follow_up_finds_prompt_and_answer(self, tiny, dense, cache):
        engine = Engine(tiny, 64, 4, cache_type=cache)
        first = engine.submit(list(range(10)), max_tokens=7)
        run_checked(engine)
        # K and V of the last token were never computed: 16 tokens, 4 full blocks.
        prompt = [*first.prompt, *first.answers[0].tokens, 5, 6]
        second = engine.submit(prompt, max_tokens=4)
        run_checked(engine)
        assert second.answers[0].n_cached == 16
        assert second.answers[0].tokens == dense.answer(prompt, 4)
        assert engine.cache.stats.hit_tokens == 16

    @pytest.mark.parametrize("cache", [PrefixCache, RadixCache])
    def test_equal_prompts_of_one_step_do_not_read_what_is_not_written(
        self, tiny, dense, cache
    ):
        engine = Engine(tiny, 64, 4, cache_type=cache)
        requests = [engine.submit(list(range(9)), max_tokens=5) for _ in range(2)]
        run_checked(engine)
        assert [r.answers[0].n_cached for r in requests] == [0, 0]
        for request in requests:
            assert request.answers[0].tokens == dense.answer(list(range(9)), 5)

    @pytest.mark.parametrize("cache", [PrefixCache, RadixCache])
    def test_an_unfinished_prompt_is_found_up_to_its_last_chunk(
        self, tiny, dense, cache
    ):
        engine = Engine(tiny, 64, 4, cache_type=cache, token_budget=9, max_batch=8)
        prompt = list(range(20))
        engine.submit(prompt, max_tokens=2)
        engine.step()  # 9 tokens, two full blocks; no budget is left for others
        second = engine.submit(prompt, max_tokens=2)
        run_checked(engine)
        assert second.answers[0].n_cached >= 8
        assert second.answers[0].tokens == dense.answer(prompt, 2)

    def test_the_tree_gives_way_to_requests(self, tiny, dense):
        engine = Engine(tiny, 8, 4, cache_type=RadixCache)
        for start in range(0, 40, 10):  # more than the pool holds, one after another
            prompt = list(range(start, start + 10))
            request = engine.submit(prompt, max_tokens=12)
            run_checked(engine)
            assert request.answers[0].tokens == dense.answer(prompt, 12)
        assert engine.cache.stats.evictions
        assert engine.preemptions == 0  # the tree gives way before a request does

    def test_the_tree_gives_nothing_up_where_that_frees_no_block(self, tiny, dense):
        engine = Engine(tiny, 4, 4, cache_type=RadixCache)
        engine.submit(list(range(4)), max_tokens=2)
        engine.run()
        blocks, _ = engine.cache.match(list(range(5)))
        engine.pool.retain(blocks)  # somebody outside reads the tree's only block
        request = engine.submit([9] * 8, max_tokens=9)  # four blocks, three are free
        with pytest.raises(OutOfBlocks, match="no answer runs"):
            engine.run()
        assert engine.cache.match(list(range(5)))[0] == blocks
        assert engine.cache.stats.evictions == 0
        engine.pool.release_many(blocks)
        run_checked(engine)
        assert request.answers[0].tokens == dense.answer([9] * 8, 9)


class TestSharedPrefix:
    """A prefix computed once by hand, and forked."""

    PREFIX = tuple(range(10))

    def test_it_is_computed_once_and_copied_only_in_its_tail(self, tiny, dense):
        engine = Engine(tiny, 64, 4, max_batch=5)
        engine.share(self.PREFIX)
        assert engine.pool.used == 3
        requests = [
            engine.submit([*self.PREFIX, 20 + i], max_tokens=1) for i in range(5)
        ]
        schedule = engine.step()
        assert len(schedule) == 5
        for i, request in enumerate(requests):
            expected = dense.answer([*self.PREFIX, 20 + i], 1)
            assert request.answers[0].tokens == expected
        assert engine.steps[0].prefill == 5
        assert engine.pool.peak == 3 + 5
        assert engine.pool.used == 3
        engine.check()
        engine.close()
        assert engine.pool.used == 0

    def test_the_longest_fitting_prefix_is_taken_and_others_are_left(self, tiny, dense):
        engine = Engine(tiny, 64, 4)
        for n in (4, 10, 7):
            engine.share(self.PREFIX[:n])
        prompts = [(*self.PREFIX, 9), self.PREFIX, self.PREFIX[:4], (3, 2, 1)]
        requests = [engine.submit(prompt, max_tokens=3) for prompt in prompts]
        run_checked(engine)
        # The last token of a prompt is computed in any case.
        assert [r.answers[0].n_cached for r in requests] == [10, 7, 0, 0]
        for request in requests:
            assert request.answers[0].tokens == dense.answer(request.prompt, 3)

    def test_interrupted_it_leaves_no_blocks_behind(self, tiny, monkeypatch):
        engine = Engine(tiny, 64, 4, max_batch=2, token_budget=4)
        with monkeypatch.context() as patch:
            patch.setattr(tiny, "forward", interrupting(tiny.forward, at=2))
            with pytest.raises(KeyboardInterrupt):
                engine.share(self.PREFIX)
        assert engine.pool.used == 0
        engine.check()

    def test_requests_preempted_start_from_it_again(self, tiny, dense):
        engine = Engine(tiny, 9, 4, max_batch=3)
        engine.share(self.PREFIX)
        requests = [
            engine.submit([*self.PREFIX, 20 + i], max_tokens=14) for i in range(3)
        ]
        run_checked(engine)
        assert engine.preemptions
        for request in requests:
            assert request.answers[0].tokens == dense.answer(request.prompt, 14)

    def test_blocks_it_holds_are_not_promised(self, tiny):
        engine = Engine(tiny, 9, 4)
        engine.share(self.PREFIX)  # 3 blocks, 2 of them full
        engine.submit([1] * 20, max_tokens=5)  # 24 tokens: the 6 blocks that are left
        engine.submit([*self.PREFIX, 1], max_tokens=22)  # 32 tokens: 2 and those 6
        engine.run()
        for prompt, n in (([1] * 20, 6), ([*self.PREFIX, 1], 23)):
            with pytest.raises(NeverFits, match="shared prefixes hold 3 of them"):
                engine.submit(prompt, max_tokens=n)
        engine.check()

    @pytest.mark.parametrize("cache", [PrefixCache, RadixCache])
    def test_a_cache_needs_none(self, tiny, cache):
        with pytest.raises(ValueError, match="by itself"):
            Engine(tiny, 64, 4, cache_type=cache).share([1, 2])

    def test_not_while_requests_run(self, tiny):
        engine = Engine(tiny, 64, 4)
        engine.submit([1])
        with pytest.raises(ValueError, match="before requests"):
            engine.share([1, 2])

    def test_too_large_changes_nothing(self, tiny):
        engine = Engine(tiny, 2, 4)
        with pytest.raises(OutOfBlocks, match="needs 3 blocks, 2 are free"):
            engine.share(self.PREFIX)
        assert engine.pool.used == 0
        engine.check()


class TestRefusals:
    """What can never run is refused at once, and changes nothing."""

    @pytest.mark.parametrize("cache", CACHES)
    def test_a_request_larger_than_the_pool(self, tiny, cache):
        engine = Engine(tiny, 4, 2, cache_type=CACHES[cache])
        engine.submit([1] * 5, max_tokens=4)  # 8 tokens with K and V: just fits
        with pytest.raises(NeverFits, match="need 5 blocks, the pool has 4"):
            engine.submit([1] * 5, max_tokens=5)
        with pytest.raises(NeverFits):
            engine.submit([1] * 9, max_tokens=1)
        run_checked(engine)
        assert (
            engine.submit([1], max_tokens=1).number == 1
        )  # those refused have no number

    @pytest.mark.parametrize(
        ("prompt", "options", "message"),
        [
            ([], {}, "the prompt is empty"),
            ([1, -1], {}, "a token id must be"),
            ([61], {}, r"token id 61 is outside 0…60"),
            ([1.5], {}, "a token id"),
            ([1] * 250, {"max_tokens": 8}, "context of 256"),
            ([1], {"max_tokens": 0}, "max_tokens must be"),
            ([1], {"n": 0}, "n must be"),
            ([1], {"n": 3}, "max_batch is 2"),
            ([1], {"temperature": -0.1}, "temperature must be 0 or more"),
            ([1], {"temperature": np.nan}, "temperature must be 0 or more"),
        ],
    )
    def test_wrong_requests(self, tiny, prompt, options, message):
        engine = Engine(tiny, 128, 4, max_batch=2)
        with pytest.raises((ValueError, TypeError), match=message):
            engine.submit(prompt, **options)
        assert not engine.waiting

    def test_a_budget_that_decodes_would_eat_up(self, tiny):
        with pytest.raises(ValueError, match="token_budget 4 must be above max_batch"):
            Engine(tiny, max_batch=4, token_budget=4)

    def test_blocks_that_somebody_outside_holds(self, tiny):
        engine = Engine(tiny, 4, 2)
        held = [engine.pool.allocate() for _ in range(3)]
        request = engine.submit([1, 2, 3], max_tokens=1)
        with pytest.raises(OutOfBlocks, match="no answer runs"):
            engine.step()
        for block in held:
            engine.pool.release(block)
        engine.run()
        assert request.done

    def test_close_frees_everything_in_the_middle(self, tiny):
        engine = Engine(tiny, 64, 4)
        for i in range(3):
            engine.submit([i, 1, 2], max_tokens=9)
        engine.step()
        engine.submit([1])
        engine.close()
        assert engine.pool.used == 0
        assert not engine.running
        assert not engine.waiting
        engine.check()


@pytest.mark.parametrize(
    ("pool_type", "tolerance"),
    [(partial(BlockPool, dtype=np.float16), 0.02), (QuantizedBlockPool, 0.2)],
)
def test_other_storage_serves_as_well(tiny, dense, pool_type, tolerance):
    """Prompts and answers whose best token is ahead by more than the storage errs."""
    engine = Engine(tiny, 64, 4, pool_type=pool_type)
    rng = np.random.default_rng(2)
    compared = 0
    for _ in range(12):
        prompt = random_prompt(rng, 9)
        request = engine.submit(prompt, max_tokens=8)
        run_checked(engine)
        (answer,) = request.answers
        for i, token in enumerate(answer.tokens):
            best, gap = dense.next_token([*prompt, *answer.tokens[:i]])
            if gap > tolerance:
                assert token == best
                compared += 1
    assert compared > 48
