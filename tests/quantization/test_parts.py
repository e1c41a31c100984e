"""What quantisers are made of: packing, rotations, the tables of Lloyd and Max."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged_kv.quantization import (
    Codebook,
    Hadamard,
    RandomRotation,
    SymmetricInt,
    hadamard_matrix,
    random_rotation,
)
from paged_kv.quantization.codebook import POSITIVE_LEVELS
from paged_kv.quantization.packing import WORDS, pack, unpack


@given(
    seed=st.integers(0, 2**32 - 1),
    bits=st.sampled_from(sorted(WORDS)),
    shape=st.lists(st.integers(0, 3), max_size=3),
    words=st.integers(0, 3),
)
def test_unpack_undoes_pack_and_no_bit_is_wasted(seed, bits, shape, words):
    d = 8 * words
    codes = np.random.default_rng(seed).integers(0, 2**bits, size=(*shape, d))
    packed = pack(codes, bits)
    assert packed.dtype == np.uint8
    assert packed.shape == (*shape, d * bits // 8)
    assert np.array_equal(unpack(packed, bits), codes)


@pytest.mark.parametrize("d", [1, 2, 4, 64, 128])
def test_hadamard_is_orthonormal_and_its_own_inverse(d):
    H = hadamard_matrix(d).astype(np.float64)
    np.testing.assert_allclose(H @ H.T, np.eye(d), atol=1e-6)
    np.testing.assert_allclose(H @ H, np.eye(d), atol=1e-6)
    np.testing.assert_allclose(np.abs(H), d**-0.5, rtol=1e-6)


@pytest.mark.parametrize("d", [0, 3, 96])
def test_hadamard_needs_a_power_of_two(d):
    with pytest.raises(ValueError, match=f"got head_dim {d}"):
        hadamard_matrix(d)


@pytest.mark.parametrize("d", [1, 3, 64, 96])
def test_random_rotation_is_orthogonal_and_fixed_by_its_seed(d):
    R = random_rotation(d, 5)
    np.testing.assert_allclose(R @ R.T, np.eye(d), atol=1e-5)
    assert np.array_equal(R, random_rotation(d, 5))
    if d > 1:
        assert not np.allclose(R, random_rotation(d, 6))


def test_random_rotations_are_uniform():
    """A bare QR decomposition would always give the same sign."""
    assert {random_rotation(1, seed).item() for seed in range(20)} == {-1.0, 1.0}


@pytest.mark.parametrize("wrapper", [Hadamard, RandomRotation])
def test_a_rotation_is_undone_when_reading(wrapper):
    block = np.random.default_rng(0).normal(size=(4, 2, 16))
    quantizer = wrapper(SymmetricInt(8, "token"))
    back = quantizer.dequantize(*quantizer.quantize(block))
    assert np.abs(back - block).max() < 0.1
    assert quantizer.name.endswith("+int8/token")


@pytest.mark.parametrize("wrapper", [Hadamard, RandomRotation])
def test_a_rotation_spreads_an_outlier_channel(wrapper):
    block = np.random.default_rng(0).normal(size=(16, 2, 64))
    block[:, :, 7] += 15
    plain = SymmetricInt(4, "token")
    errors = [
        np.square(q.dequantize(*q.quantize(block)) - block).mean()
        for q in (plain, wrapper(plain))
    ]
    assert errors[1] < errors[0] / 2


def normal_pdf(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def normal_cdf(x):
    return math.erfc(-x / math.sqrt(2)) / 2


@pytest.mark.parametrize("bits", sorted(POSITIVE_LEVELS))
def test_levels_are_what_lloyds_iteration_finds(bits):
    n = 2**bits
    levels = [(2 * i - n + 1) / n for i in range(n)]
    for _ in range(3000):
        edges = [-math.inf, *((a + b) / 2 for a, b in pairwise(levels)), math.inf]
        levels = [
            (normal_pdf(a) - normal_pdf(b)) / (normal_cdf(b) - normal_cdf(a))
            for a, b in pairwise(edges)
        ]
    assert POSITIVE_LEVELS[bits] == pytest.approx(levels[n // 2 :], abs=1e-7)


@pytest.mark.parametrize("bits", sorted(POSITIVE_LEVELS))
def test_each_value_takes_the_nearest_level(bits):
    book = Codebook(bits)
    block = np.random.default_rng(0).normal(size=(50, 1, 64)).astype(np.float32)
    codes, (rms,) = book.quantize(block)
    scaled = block / rms.astype(np.float32)
    nearest = np.abs(scaled[..., None] - book.levels).argmin(axis=-1)
    assert np.array_equal(unpack(codes, bits), nearest)


@pytest.mark.parametrize("bits", sorted(POSITIVE_LEVELS))
def test_no_uniform_grid_beats_the_codebook_on_normal_data(bits):
    x = np.random.default_rng(0).normal(size=100_000)
    book = Codebook(bits)
    error = np.square(book.levels[np.searchsorted(book.edges, x)] - x).mean()
    for step in np.linspace(0.1, 2, 40):
        grid = (np.arange(2**bits) - (2**bits - 1) / 2) * step
        nearest = grid[np.searchsorted((grid[1:] + grid[:-1]) / 2, x)]
        assert error < np.square(nearest - x).mean()
