"""Each quantiser alone: its error bound, and every input that could break it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_kv.quantization import (
    Codebook,
    Fp8E4M3,
    GroupedInt,
    Hadamard,
    RandomRotation,
    SymmetricInt,
    quantize_block_int8,
)
from paged_kv.quantization.base import LARGEST_FLOAT16, LARGEST_FLOAT32

from .schemes import IDS, QUANTIZERS

EVERY = pytest.mark.parametrize("quantizer", QUANTIZERS, ids=IDS)
# With one scale for the whole block, heads do share it.
EVERY_PER_HEAD = pytest.mark.parametrize(
    "quantizer", [q for q in QUANTIZERS if q.name != "int8/block"], ids=lambda q: q.name
)


def read_back(quantizer, block):
    return quantizer.dequantize(*quantizer.quantize(block))


def tolerance(quantizer, block):
    """Return the error that each element of `block` may have, derived by hand."""
    x = np.abs(block.astype(np.float64))
    if isinstance(quantizer, SymmetricInt):
        axes = {"head": (0, 2), "token": (2,), "block": (0, 1, 2)}[quantizer.per]
        return x.max(axis=axes, keepdims=True) / (2 * quantizer.q)
    if isinstance(quantizer, GroupedInt):
        axis = {"channel": 0, "token": 2}[quantizer.per]
        out = np.empty(block.shape)
        for start in range(0, block.shape[axis], quantizer.group):
            at = [slice(None)] * 3
            at[axis] = slice(start, start + quantizer.group)
            part = block[tuple(at)].astype(np.float64)
            low = part.min(axis=axis, keepdims=True)
            # Both parameters are float16: 11 bits, or 2**-24 apart near zero.
            low_error = np.abs(low) * 2.0**-10 + 2.0**-24
            reach = part.max(axis=axis, keepdims=True) - low + low_error
            step = reach / (2**quantizer.bits - 1)
            out[tuple(at)] = (step * (1 + 2.0**-10) + 2.0**-24) / 2
        return out
    if isinstance(quantizer, Fp8E4M3):
        scale = float(quantizer.scale)
        return np.maximum(np.maximum(x / 16, scale / 1024), x - 448 * scale)
    raise TypeError(quantizer)


BOUNDED = [q for q in QUANTIZERS if isinstance(q, SymmetricInt | GroupedInt | Fp8E4M3)]


@pytest.mark.parametrize("quantizer", BOUNDED, ids=[q.name for q in BOUNDED])
@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 9),
    heads=st.integers(1, 3),
    exponent=st.integers(-12, 3),
    offset=st.sampled_from([0.0, 3.0, -40.0]),
    outlier=st.sampled_from([1.0, 10.0]),
)
def test_no_element_is_off_by_more_than_its_bound(
    quantizer, seed, n, heads, exponent, offset, outlier
):
    rng = np.random.default_rng(seed)
    block = (rng.normal(size=(n, heads, 8)) + offset) * 10.0**exponent
    block.flat[rng.integers(block.size)] *= outlier
    block = np.clip(block, -3e4, 3e4).astype(np.float32)
    back = read_back(quantizer, block)
    assert back.dtype == np.float32
    assert back.shape == block.shape
    bound = tolerance(quantizer, block) * (1 + 1e-5) + np.abs(block) * 1e-6 + 1e-40
    assert (np.abs(back.astype(np.float64) - block) <= bound).all()


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    bits=st.sampled_from([2, 3, 4]),
    exponent=st.integers(-3, 2),
)
def test_a_codebook_errs_no_more_than_its_levels_allow(seed, bits, exponent):
    """Between the levels half a gap, beyond the last one the distance to it."""
    rng = np.random.default_rng(seed)
    block = (rng.standard_t(2, size=(3, 2, 8)) * 10.0**exponent).astype(np.float32)
    block = np.clip(block, -3e4, 3e4)
    book = Codebook(bits)
    rms = np.sqrt(np.square(block.astype(np.float64)).mean(axis=-1, keepdims=True))
    gap = np.diff(book.levels).max() / 2 * rms
    beyond = np.abs(block) - book.levels[-1] * rms
    bound = np.maximum(gap, beyond) + 3 * rms * 2.0**-10 + 2.0**-22
    assert (np.abs(read_back(book, block) - block) <= bound).all()


@EVERY
def test_a_zero_block_reads_back_as_zeros(quantizer):
    assert (read_back(quantizer, np.zeros((5, 2, 8))) == 0).all()


@EVERY
@pytest.mark.parametrize("value", [-0.0, 1e-45, -1e-40, 1.2e-38, 1e-20])
def test_tiny_values_read_back_near_zero(quantizer, value):
    back = read_back(quantizer, np.full((4, 2, 8), value))
    # float16 parameters are at most 2**-24 off, and at most 15 of them add up.
    assert np.abs(back).max() <= 1e-6


@EVERY_PER_HEAD
def test_one_zero_head_beside_a_large_one_stays_zero(quantizer):
    block = np.zeros((4, 3, 8))
    block[:, 1] = np.random.default_rng(0).normal(size=(4, 8)) * 100
    back = read_back(quantizer, block)
    assert (back[:, [0, 2]] == 0).all()
    assert np.abs(back[:, 1]).max() > 1


@EVERY
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
def test_not_finite_is_refused(quantizer, bad):
    block = np.zeros((2, 2, 8))
    block[1, 0, 2] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        quantizer.quantize(block)


@EVERY
@pytest.mark.parametrize("kind", [complex, object, bool, "U3"])
def test_only_real_numbers_are_quantised(quantizer, kind):
    with pytest.raises(TypeError, match="must hold real numbers"):
        quantizer.quantize(np.ones((2, 2, 8)).astype(kind))


@EVERY
def test_the_largest_allowed_value_reads_back_finite(quantizer):
    largest = quantizer.largest(8)
    assert largest <= LARGEST_FLOAT32 / 2
    for signs in (1, np.random.default_rng(0).choice([-1, 1], size=(4, 2, 8))):
        block = np.full((4, 2, 8), largest) * signs
        back = read_back(quantizer, block)
        assert np.isfinite(back).all()
    with pytest.raises(ValueError, match=r"up to|NaN or infinite"):
        quantizer.quantize(np.full((4, 2, 8), largest * 2.1))


def test_float16_parameters_narrow_the_range():
    for quantizer in (GroupedInt(2, "token"), Codebook(2)):
        assert quantizer.largest(128) == LARGEST_FLOAT16 / 2
        rotated = Hadamard(quantizer).largest(64)
        assert rotated == LARGEST_FLOAT16 / 2 / (2 * 8)


@EVERY
def test_an_empty_block_is_empty(quantizer):
    assert read_back(quantizer, np.zeros((0, 2, 8))).shape == (0, 2, 8)


@EVERY
@pytest.mark.parametrize("shape", [(8,), (2, 8)])
def test_other_dimensions_are_named(quantizer, shape):
    with pytest.raises(ValueError, match="n_kv_heads"):
        quantizer.quantize(np.zeros(shape))


@EVERY
def test_input_is_not_changed(quantizer):
    block = np.random.default_rng(0).normal(size=(4, 2, 8)).astype(np.float32)
    kept = block.copy()
    codes, params = quantizer.quantize(block)
    parts = [codes.copy(), *(p.copy() for p in params)]
    quantizer.dequantize(codes, params)
    assert np.array_equal(block, kept)
    for before, after in zip(parts, (codes, *params), strict=True):
        assert np.array_equal(before, after)


@EVERY
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), lead=st.sampled_from([(3,), (2, 2)]))
def test_blocks_quantised_together_are_as_alone(quantizer, seed, lead):
    """No scale and no group spans two blocks; not even a rounding differs."""
    rng = np.random.default_rng(seed)
    blocks = rng.normal(size=(*lead, 5, 2, 8)).astype(np.float32)
    blocks *= 10.0 ** rng.integers(-2, 4, size=(*lead, 1, 1, 1))
    codes, params = quantizer.quantize(blocks)
    back = quantizer.dequantize(codes, params)
    for i in np.ndindex(lead):
        alone_codes, alone_params = quantizer.quantize(blocks[i])
        assert np.array_equal(codes[i], alone_codes)
        for one, many in zip(alone_params, params, strict=True):
            assert np.array_equal(many[i], one)
        assert np.array_equal(back[i], quantizer.dequantize(alone_codes, alone_params))


@EVERY_PER_HEAD
def test_heads_do_not_influence_each_other(quantizer):
    rng = np.random.default_rng(1)
    block = rng.normal(size=(6, 3, 8)).astype(np.float32)
    loud = block.copy()
    loud[:, 0] *= 50
    kept, changed = read_back(quantizer, block), read_back(quantizer, loud)
    assert np.array_equal(kept[:, 1:], changed[:, 1:])


@EVERY
def test_bits_are_the_bytes_that_are_stored(quantizer):
    block = np.random.default_rng(0).normal(size=(16, 3, 8))
    codes, params = quantizer.quantize(block)
    stored = 8 * (codes.nbytes + sum(p.nbytes for p in params)) / block.size
    assert quantizer.bits_per_element((16, 3, 8)) == stored
    for shape in ((0, 3, 8), (3, 8), (16, 3, 0)):
        with pytest.raises(ValueError, match="none of them 0"):
            quantizer.bits_per_element(shape)


@pytest.mark.parametrize(
    ("quantizer", "shape", "bits"),
    [
        (SymmetricInt(8, "head"), (16, 8, 128), 8 + 32 / (16 * 128)),
        (SymmetricInt(8, "token"), (16, 8, 128), 8 + 32 / 128),
        (SymmetricInt(4, "head"), (16, 8, 128), 4 + 32 / (16 * 128)),
        (Fp8E4M3(), (16, 8, 128), 8),
        (GroupedInt(2, "channel"), (32, 8, 128), 2 + 32 / 32),
        (GroupedInt(2, "channel"), (16, 8, 128), 2 + 32 / 16),
        (GroupedInt(4, "token"), (16, 8, 64), 4 + 32 / 32),
        (Hadamard(SymmetricInt(4, "token")), (16, 8, 64), 4 + 32 / 64),
        (RandomRotation(Codebook(3)), (16, 8, 64), 3 + 16 / 64),
    ],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_overhead_is_counted(quantizer, shape, bits):
    assert quantizer.bits_per_element(shape) == bits


def test_int8_per_head_is_the_lectures():
    block = np.random.default_rng(3).normal(scale=2, size=(16, 8, 128))
    codes, (scale,) = SymmetricInt().quantize(block)
    lecture_codes, lecture_scale = quantize_block_int8(block)
    assert np.array_equal(codes, lecture_codes)
    assert np.array_equal(scale, lecture_scale)


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_the_largest_value_is_the_outermost_level(bits):
    block = np.array([-1.0, 0.2, 3.0, 0, 0, 0, 0, 0]).reshape(1, 1, 8)
    quantizer = SymmetricInt(bits)
    codes, (scale,) = quantizer.quantize(block)
    assert scale.item() == np.float32(3 / quantizer.q)
    assert quantizer.dequantize(codes, (scale,))[0, 0, 2] == 3


def test_kivi_takes_an_offset_channel_that_a_head_scale_cannot():
    """An offset costs a minimum nothing; a symmetric scale pays with its step."""
    rng = np.random.default_rng(0)
    block = rng.normal(size=(32, 1, 64))
    block[:, 0, 5] += 100
    errors = {
        q.name: np.abs(read_back(q, block) - block)[..., np.arange(64) != 5].max()
        for q in (SymmetricInt(4, "head"), GroupedInt(4, "channel"))
    }
    assert errors["int4/channel/g32"] < 0.3 < 1 < errors["int4/head"]


def test_fp8_saturates_where_the_cast_would_give_nan():
    block = np.array([448, 449, 464, 465, 1e30, -1e30], np.float32).reshape(1, 1, 6)
    assert read_back(Fp8E4M3(), block).ravel().tolist() == [448.0] * 5 + [-448.0]
    scaled = read_back(Fp8E4M3(0.5), block).ravel()
    assert scaled.tolist() == [224.0] * 5 + [-224.0]


def test_fp8_calibration_maps_the_largest_value_to_448():
    sample = np.array([[-3.5, 1.0]])
    quantizer = Fp8E4M3.calibrated(sample)
    assert quantizer.scale == np.float32(3.5 / 448)
    codes, _ = quantizer.quantize(np.full((1, 1, 2), 3.5))
    assert (codes == Fp8E4M3().quantize(np.full((1, 1, 2), 448.0))[0]).all()


@pytest.mark.parametrize("sample", [[], [0.0, 0.0], [np.nan, 1.0], [np.inf], [1e-44]])
def test_fp8_cannot_be_calibrated_on_nothing(sample):
    with pytest.raises(ValueError, match="above 0"):
        Fp8E4M3.calibrated(sample)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SymmetricInt(5),
        lambda: SymmetricInt(8.0),
        lambda: SymmetricInt("8"),
        lambda: GroupedInt(4.0, "token"),
        lambda: Codebook(2.0),
        lambda: Codebook(True),
        lambda: SymmetricInt(8, "layer"),
        lambda: GroupedInt(1, "token"),
        lambda: GroupedInt(4, "head"),
        lambda: GroupedInt(4, "token", 0),
        lambda: GroupedInt(4, "token", 1.5),
        lambda: Codebook(8),
        lambda: Fp8E4M3(0),
        lambda: Fp8E4M3(float("nan")),
        lambda: Fp8E4M3(1e-60),
    ],
)
def test_impossible_parameters_are_refused(make):
    with pytest.raises(ValueError, match="must be"):
        make()


def test_narrow_codes_need_a_head_that_fills_their_bytes():
    with pytest.raises(ValueError, match="multiple of 8, got 12"):
        SymmetricInt(3).quantize(np.zeros((4, 1, 12)))
