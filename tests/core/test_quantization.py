"""int8 per block and head: the bound, and every input that could break it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from paged_kv import dequantize_block_int8, quantize_block_int8


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=hnp.array_shapes(min_dims=3, max_dims=3, max_side=6),
    exponent=st.integers(-30, 30),
    outlier=st.sampled_from([1, 1e3, 1e6]),
)
def test_error_is_at_most_half_a_scale(seed, shape, exponent, outlier):
    rng = np.random.default_rng(seed)
    block = rng.normal(size=shape) * 10.0**exponent
    block.flat[rng.integers(block.size)] *= outlier
    block = block.astype(np.float32)
    codes, scale = quantize_block_int8(block)
    assert codes.dtype == np.int8
    assert codes.shape == block.shape
    assert scale.dtype == np.float32
    assert scale.shape == (1, block.shape[1], 1)
    assert np.abs(codes.astype(int)).max() <= 127
    amax = np.abs(block.astype(np.float64)).max(axis=(0, 2), keepdims=True)
    error = np.abs(dequantize_block_int8(codes, scale).astype(np.float64) - block)
    assert (error <= amax / 254 * (1 + 1e-5)).all()


def test_figure_of_the_lecture():
    block = np.random.default_rng(3).normal(scale=2.0, size=(16, 8, 128))
    codes, scale = quantize_block_int8(block.astype(np.float32))
    error = np.abs(dequantize_block_int8(codes, scale) - block).max()
    assert scale.shape == (1, 8, 1)
    assert f"{error:.4f}" == "0.0318"


def test_heads_have_scales_of_their_own():
    block = np.ones((2, 2, 3))
    block[:, 1] = 1000
    codes, scale = quantize_block_int8(block)
    assert scale.ravel().tolist() == pytest.approx([1 / 127, 1000 / 127])
    assert (codes == 127).all()


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, 1e-40, 1.2e-38])
def test_zero_and_tiny_blocks_read_back_near_zero(value):
    codes, scale = quantize_block_int8(np.full((4, 2, 3), value))
    back = dequantize_block_int8(codes, scale)
    assert np.isfinite(back).all()
    assert np.abs(back - value).max() <= 1e-40


def test_empty_block_is_empty():
    codes, scale = quantize_block_int8(np.zeros((0, 2, 3)))
    assert codes.shape == (0, 2, 3)
    assert (scale == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
def test_not_finite_has_no_scale(bad):
    block = np.zeros((2, 2, 3))
    block[1, 0, 2] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        quantize_block_int8(block)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 2, 3, 4)])
def test_other_dimensions_are_named(shape):
    with pytest.raises(ValueError, match="n_kv_heads"):
        quantize_block_int8(np.zeros(shape))


def test_input_is_not_changed():
    block = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    kept = block.copy()
    quantize_block_int8(block)
    assert np.array_equal(block, kept)


def test_scale_that_could_not_be_read_back_is_refused():
    largest = np.finfo(np.float32).max  # 127 · (largest / 127) may round to infinity
    with pytest.raises(ValueError, match="takes values up to"):
        quantize_block_int8(np.full((1, 1, 2), largest))
