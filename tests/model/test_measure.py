"""The numbers of the lesson, against ones computed by hand."""

from functools import partial

import numpy as np
import pytest

from paged_kv.model.measure import compare, decode_time, log_probabilities
from paged_kv.pool import BlockPool
from paged_kv.quantization import QuantizedBlockPool, SymmetricInt
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


def test_decode_time_counts_steps_of_the_whole_batch(tiny):
    ticks = iter(range(10_000))
    time = decode_time(tiny, 3, context=20, steps=4, clock=lambda: next(ticks))
    # Two layers, a tick each; around them a tick to begin, two per layer, one to end.
    assert time.attention == 2
    assert time.total == 5
    assert time.weights == 3
