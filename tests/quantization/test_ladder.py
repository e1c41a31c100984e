"""The ladder: bits counted honestly, damage measured against plain float64."""

import numpy as np
import pytest

from paged_kv import reference_attention
from paged_kv.quantization import GroupedInt, SymmetricInt
from paged_kv.quantization.ladder import Scheme, ladder, measure
from paged_kv.quantization.synthetic import synthetic_kv

N_TOKENS, N_HEADS, N_KV_HEADS, HEAD_DIM = 70, 6, 3, 16


@pytest.fixture
def kv():
    return synthetic_kv(N_TOKENS, N_KV_HEADS, HEAD_DIM)


@pytest.fixture
def queries():
    return np.random.default_rng(1).normal(scale=2, size=(5, N_HEADS, HEAD_DIM))


def test_an_exact_scheme_breaks_nothing(kv, queries):
    damage = measure(Scheme("exact", None, None), *kv, queries)
    assert (damage.k_error, damage.v_error, damage.out_error) == (0, 0, 0)
    assert damage.kl == 0
    assert damage.top1 == 1
    assert Scheme("exact", None, None).bits(100, 3, 16) == 16


@pytest.mark.parametrize("window", [0, 1, 10, 30, 100])
@pytest.mark.parametrize("block_size", [1, 16, 32])
def test_tail_and_window_stay_exact_and_the_rest_is_coded_by_block(
    kv, window, block_size
):
    K, V = kv
    quantizer = SymmetricInt(4)
    scheme = Scheme("x", quantizer, None, block_size, window)
    read_k, read_v = scheme.read_back(K, V)
    coded = scheme.coded_tokens(N_TOKENS)
    assert coded == max(0, N_TOKENS - window) - max(0, N_TOKENS - window) % block_size
    assert np.array_equal(read_v, V)
    assert np.array_equal(read_k[coded:], K[coded:])
    for start in range(0, coded, block_size):
        block = K[start : start + block_size]
        back = quantizer.dequantize(*quantizer.quantize(block))
        assert np.array_equal(read_k[start : start + block_size], back)
    assert np.array_equal(K, kv[0])


def test_bits_count_every_byte_and_the_exact_window():
    """Against bytes of arrays: 64 tokens in codes, 36 of the window in float16."""
    scheme = Scheme(
        "x", GroupedInt(2, "channel"), SymmetricInt(8), block_size=32, window=32
    )
    block = np.zeros((32, N_KV_HEADS, HEAD_DIM))
    stored = 0
    for quantizer in (scheme.k, scheme.v):
        codes, params = quantizer.quantize(block)
        stored += 2 * (codes.nbytes + sum(p.nbytes for p in params))
        stored += np.zeros((36, N_KV_HEADS, HEAD_DIM), np.float16).nbytes
    elements = 2 * 100 * N_KV_HEADS * HEAD_DIM
    assert scheme.bits(100, N_KV_HEADS, HEAD_DIM) == pytest.approx(
        8 * stored / elements
    )
    assert scheme.bits(20, N_KV_HEADS, HEAD_DIM) == 16


def test_damage_is_that_of_plain_attention(kv, queries):
    K, V = kv
    scheme = Scheme("x", SymmetricInt(4), SymmetricInt(8))
    damage = measure(scheme, K, V, queries)
    read_k, read_v = scheme.read_back(K, V)

    def weights(keys, q, head):
        scores = keys[:, head // 2].astype(float) @ q[head] / HEAD_DIM**0.5
        e = np.exp(scores - scores.max())
        return e / e.sum()

    pairs = [
        (weights(K, q, h), weights(read_k, q, h)) for q in queries for h in range(6)
    ]
    kl = np.mean([(p * np.log(p / r)).sum() for p, r in pairs])
    assert damage.kl == pytest.approx(kl, rel=1e-3)
    assert damage.top1 == np.mean([p.argmax() == r.argmax() for p, r in pairs])
    scale = HEAD_DIM**-0.5
    out = np.stack([reference_attention(K, V, q, scale) for q in queries])
    read = np.stack([reference_attention(read_k, read_v, q, scale) for q in queries])
    error = np.sqrt(np.square(read - out).mean() / np.square(out).mean())
    assert damage.out_error == pytest.approx(error, rel=1e-3)
    k_error = np.sqrt(np.square(read_k - K).mean() / np.square(K).mean())
    assert damage.k_error == pytest.approx(k_error, rel=1e-4)


def test_every_scheme_of_the_ladder_can_be_measured(kv, queries):
    schemes = ladder(*kv)
    assert len({s.name for s in schemes}) == len(schemes)
    for scheme in schemes:
        damage = measure(scheme, *kv, queries)
        assert np.isfinite([damage.k_error, damage.out_error, damage.kl]).all()
        assert 0 <= damage.top1 <= 1
        assert scheme.bits(N_TOKENS, N_KV_HEADS, HEAD_DIM) <= 16


def test_synthetic_k_has_outlier_channels_that_are_offsets_and_v_has_none():
    K, V = synthetic_kv(1024, 3, 64, strength=4, outliers=2, seed=3)
    K, V = K[1:], V[1:]
    amax = np.abs(K).max(axis=0)
    ratio = amax / np.median(amax, axis=1, keepdims=True)
    outliers = ratio > 2
    assert (outliers.sum(axis=1) == 2).all()
    assert not outliers[:, :48].any()
    assert ratio[outliers] == pytest.approx(4, rel=0.2)
    offset = np.abs(K.mean(axis=0)) / K.std(axis=0)
    assert offset[outliers] == pytest.approx(6, rel=0.1)
    assert offset[~outliers].max() < 0.2
    amax = np.abs(V).max(axis=0)
    assert (amax / np.median(amax)).max() < 2


def test_synthetic_kv_starts_with_a_small_sink_and_is_fixed_by_its_seed():
    K, V = synthetic_kv(64, 2, 32, seed=5)
    for X in (K, V):
        size = np.square(X).mean(axis=(1, 2))
        assert size[0] < size[1:].min() / 20
    assert np.array_equal(K, synthetic_kv(64, 2, 32, seed=5)[0])
    assert not np.array_equal(K, synthetic_kv(64, 2, 32, seed=6)[0])
