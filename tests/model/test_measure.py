"""The numbers of the lesson, against ones computed by hand."""

from functools import partial

import numpy as np
import pytest

from paged_kv.model.measure import (
    compare,
    decode_time,
    decoded_log_probabilities,
    log_probabilities,
)
from paged_kv.pool import BlockPool, OutOfBlocks
from paged_kv.quantization import QuantizedBlockPool, SymmetricInt
from paged_kv.quantization.ladder import Scheme
from tests.model.dense import forward

TEXT = np.random.default_rng(3).integers(0, 61, 50).tolist()


def make(pool_type, model):
    c = model.config
    return pool_type(16, c.n_layers, c.n_kv_heads, c.head_dim, 4)


@pytest.mark.parametrize("chunk", [7, 49, 256])
def test_predictions_are_those_without_a_cache(tiny, chunk):
    pool = make(BlockPool, tiny)
    logs = log_probabilities(tiny, TEXT, pool, chunk)
    logits = forward(tiny, TEXT[:-1]).astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(logs, expected, atol=1e-4)
    assert pool.used == 0


def test_a_text_that_does_not_fit_gives_its_blocks_back(tiny):
    c = tiny.config
    pool = BlockPool(5, c.n_layers, c.n_kv_heads, c.head_dim, 4)
    with pytest.raises(OutOfBlocks):
        log_probabilities(tiny, TEXT, pool, chunk=7)
    assert pool.used == 0


def test_quality_of_a_worked_example():
    exact = np.log([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])
    other = np.log([[0.25, 0.5, 0.25], [0.25, 0.5, 0.25]])
    quality = compare(exact, other, [2, 0, 2])
    # The text's tokens 0 and 2 have probabilities 1/4 and 1/4.
    assert quality.perplexity == pytest.approx(4)
    kl = 0.5 * np.log(2) + 0.25 * np.log(0.5)
    assert quality.kl == pytest.approx(kl / 2)
    assert quality.top1 == 0.5


def test_fewer_bits_do_more_damage(tiny):
    exact = log_probabilities(tiny, TEXT, make(BlockPool, tiny))
    kls = []
    for bits in (8, 4, 2):
        quantizer = SymmetricInt(bits)
        pool_type = partial(
            QuantizedBlockPool, k_quantizer=quantizer, v_quantizer=quantizer
        )
        other = log_probabilities(tiny, TEXT, make(pool_type, tiny))
        kls.append(compare(exact, other, TEXT).kl)
    assert 0 < kls[0] < kls[1] < kls[2]
    assert compare(exact, exact, TEXT).kl == 0


@pytest.mark.parametrize("window", [0, 6])
def test_a_window_is_that_of_decoding_token_by_token(tiny, window):
    four = SymmetricInt(4)
    scheme = Scheme("int4", four, four, block_size=4, window=window)
    logs = decoded_log_probabilities(tiny, TEXT, scheme)
    if not window:  # a pool that quantises full blocks has no window
        pool_type = partial(QuantizedBlockPool, k_quantizer=four, v_quantizer=four)
        expected = log_probabilities(tiny, TEXT, make(pool_type, tiny), chunk=1)
        np.testing.assert_allclose(logs, expected, atol=1e-4)
    exact = log_probabilities(tiny, TEXT, make(BlockPool, tiny))
    far = np.array([scheme.coded_tokens(n + 1) > 0 for n in range(len(logs))])
    np.testing.assert_allclose(logs[~far], exact[~far], atol=1e-4)
    assert np.abs(logs[far] - exact[far]).max(axis=-1).min() > 1e-3


def test_watching_shows_what_the_blocks_hold(tiny):
    seen = []
    pool = make(BlockPool, tiny)
    log_probabilities(tiny, TEXT, pool, 16, lambda *args: seen.append(args))
    c = tiny.config
    for i in range(c.n_layers):
        chunks = [shown for layer, *shown in seen if layer == i]
        q, k, v = map(np.concatenate, zip(*chunks, strict=True))
        assert q.shape == (len(TEXT) - 1, c.n_heads, c.head_dim)
        blocks = np.arange(-(-len(q) // 4))
        for stored, shown in zip(pool.read_blocks(i, blocks), (k, v), strict=True):
            np.testing.assert_array_equal(stored[: len(q)], shown)


def test_decode_time_counts_steps_of_the_whole_batch(tiny):
    ticks = iter(range(10_000))
    time = decode_time(tiny, 3, context=20, steps=4, clock=lambda: next(ticks))
    # Two layers, a tick each; around them a tick to begin, two per layer, one to end.
    assert time.attention == 2
    assert time.total == 5
    assert time.weights == 3
