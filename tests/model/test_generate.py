"""One prompt, streamed; and the choice of a token."""

import numpy as np
import pytest

from paged_kv.model import generate
from paged_kv.model.sampling import pick
from paged_kv.pool import BlockPool, OutOfBlocks

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def pool_for(model, num_blocks=16, block_size=4) -> BlockPool:
    c = model.config
    return BlockPool(num_blocks, c.n_layers, c.n_kv_heads, c.head_dim, block_size)


@pytest.mark.parametrize("n", [1, 4, 5, 8])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_tokens_are_those_without_a_cache(tiny, dense, n, block_size):
    pool = pool_for(tiny, 64, block_size)
    pool.k[:], pool.v[:] = np.nan, np.nan  # what is not written must not be read
    tokens = list(generate(tiny, PROMPT[:n], pool, max_tokens=14))
    assert tokens == dense.answer(PROMPT[:n], 14)
    assert pool.used == 0


def test_a_prompt_in_chunks_is_the_same_prompt(tiny, dense, monkeypatch):
    monkeypatch.setattr("paged_kv.model.generation.CHUNK", 3)
    monkeypatch.setattr("paged_kv.model.cache.TOKENS_AT_ONCE", 5)
    prompt = np.random.default_rng(1).integers(0, 61, 40).tolist()
    tokens = list(generate(tiny, prompt, pool_for(tiny), max_tokens=8))
    assert tokens == dense.answer(prompt, 8)


def test_tokens_come_one_at_a_time_and_take_blocks_as_they_need_them(tiny):
    pool = pool_for(tiny)
    stream = generate(tiny, PROMPT[:4], pool, max_tokens=9)
    used = []
    for _ in stream:
        used.append(pool.used)
    # K and V of a token are written when it is fed back: 4, 5 … 12 tokens.
    assert used == [1, 2, 2, 2, 2, 3, 3, 3, 3]


def test_closing_the_stream_frees_the_blocks(tiny):
    pool = pool_for(tiny)
    stream = generate(tiny, PROMPT, pool)
    next(stream)
    assert pool.used
    stream.close()
    assert pool.used == 0


def test_it_stops_at_a_stop_token(tiny, dense):
    expected = dense.answer(PROMPT, 14)
    stop = expected[6]
    tokens = list(generate(tiny, PROMPT, pool_for(tiny), max_tokens=14, stop=[stop]))
    assert tokens == expected[: expected.index(stop)]


def test_a_seed_repeats_its_draws(tiny):
    def draw(seed):
        pool = pool_for(tiny)
        return list(
            generate(tiny, PROMPT, pool, max_tokens=20, temperature=1.5, seed=seed)
        )

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_prompt_that_does_not_fit_leaves_the_pool_as_it_was(tiny):
    pool = pool_for(tiny, num_blocks=1)
    with pytest.raises(OutOfBlocks, match="8 tokens after 0 need 2 blocks, 1 free"):
        next(generate(tiny, PROMPT, pool))
    assert pool.used == 0


def test_a_full_pool_ends_the_stream_with_what_is_missing(tiny):
    pool = pool_for(tiny, num_blocks=2)
    stream = generate(tiny, PROMPT, pool)
    next(stream)
    with pytest.raises(OutOfBlocks, match="1 tokens after 8 need 1 blocks, 0 free"):
        next(stream)
    assert pool.used == 0


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "the prompt is empty"),
        ([61], {}, "token id 61"),
        ([1] * 200, {"max_tokens": 58}, "context"),
        ([1], {"temperature": -1}, "temperature"),
    ],
)
def test_wrong_requests_are_refused_before_the_first_token(
    tiny, prompt, options, message
):
    with pytest.raises(ValueError, match=message):
        generate(tiny, prompt, pool_for(tiny, 64), **options)


class TestPick:
    """Greedy, and by probability."""

    @pytest.mark.parametrize("temperature", [5e-324, 1e-320, 1e-300, 1e-30])
    def test_next_to_0_the_best_token(self, temperature):
        rng = np.random.default_rng(0)
        logits = np.array([1.0, 900.0, -300.0, -np.inf], np.float32)
        assert pick(logits, temperature, rng) == 1

    def test_at_any_height_a_token_that_exists(self):
        rng = np.random.default_rng(0)
        logits = np.array([1.0, 9.0, -3.0], np.float32)
        drawn = {pick(logits, 1.7e308, rng) for _ in range(99)}
        assert drawn == {0, 1, 2}

    def test_without_temperature_the_best_token_and_no_draw(self):
        rng = np.random.default_rng(0)
        assert pick(np.array([0.0, 3.0, -1.0]), 0.0, rng) == 1
        assert rng.random() == np.random.default_rng(0).random()

    def test_frequencies_are_those_of_the_softmax(self):
        logits, temperature = np.array([1.0, -2.0, 0.5, -np.inf]), 0.7
        expected = np.exp(logits / temperature)
        expected /= expected.sum()
        rng = np.random.default_rng(0)
        draws = [pick(logits, temperature, rng) for _ in range(20_000)]
        share = np.bincount(draws, minlength=4) / len(draws)
        assert share == pytest.approx(expected, abs=0.01)
        assert share[3] == 0

    def test_huge_logits_overflow_nothing(self):
        rng = np.random.default_rng(0)
        assert pick(np.array([1e4, -1e4], np.float32), 0.01, rng) == 0
