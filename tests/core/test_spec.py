"""KVCacheSpec against the lecture's table and against a pool's real memory."""

import numpy as np
import pytest

from paged_kv import BlockPool, KVCacheSpec
from paged_kv.spec import GB, PRESETS, GiB, KiB, MiB

LLAMA = KVCacheSpec.preset("llama-3-8b")


@pytest.mark.parametrize(
    ("preset", "bytes_per_token"),
    [
        ("llama-3-8b", 128 * KiB),
        ("llama-2-7b", 512 * KiB),
        ("opt-13b", 800 * KiB),
        ("smollm2-135m", 22.5 * KiB),
        ("deepseek-v3", 70_272),
    ],
)
def test_presets_take_what_their_papers_say(preset, bytes_per_token):
    assert KVCacheSpec.preset(preset).bytes_per_token() == bytes_per_token


def test_reference_model_of_the_lecture():
    assert LLAMA.bytes_per_token_layer() == 4 * KiB
    assert LLAMA.bytes_per_block() == 2 * MiB
    assert 4096 * LLAMA.bytes_per_token() == 512 * MiB
    assert LLAMA.weight_bytes() / GB == pytest.approx(16.06, abs=0.01)
    assert LLAMA.weight_bytes() / GiB == pytest.approx(14.96, abs=0.01)


@pytest.mark.parametrize(
    ("memory", "n_tokens", "sequences"),
    [
        (60 * GB, 4096, 111),
        (60 * GiB, 4096, 120),
        (60 * GB, 32768, 13),
        (60 * GiB, 32768, 15),
        (0, 1, 0),
    ],
)
def test_sequences_that_fit(memory, n_tokens, sequences):
    assert LLAMA.max_sequences(memory, n_tokens) == sequences


def test_decode_time_is_bytes_over_bandwidth():
    assert LLAMA.decode_seconds(4096, 3.35e12) == pytest.approx(160e-6, rel=0.01)
    assert LLAMA.decode_seconds(0, 1.0) == 0


@pytest.mark.parametrize(("n", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2)])
def test_blocks_for(n, blocks):
    assert LLAMA.blocks_for(n) == blocks


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_spec_and_pool_agree(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    real = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    spec = KVCacheSpec(3, 2, 8, dtype=dtype, block_size=4)
    pool = BlockPool(5, 3, 2, 8, block_size=4, dtype=real)
    assert spec.bytes_per_block() == pool.bytes_per_block()
    assert 5 * spec.bytes_per_block() == pool.k.nbytes + pool.v.nbytes


def test_preset_with_changes():
    assert KVCacheSpec.preset("llama-3-8b", dtype="int8").bytes_per_token() == 64 * KiB


def test_every_preset_has_a_name_and_weights():
    assert all(spec.name and spec.weight_bytes() > 0 for spec in PRESETS.values())


@pytest.mark.parametrize(
    "bad",
    [
        {"n_layers": 0},
        {"n_kv_heads": -1},
        {"head_dim": 2.5},
        {"block_size": True},
        {"dtype": "float17"},
        {"dtype": "object"},
        {"dtype": "bool"},
        {"dtype": "complex64"},
        {"dtype": "U3"},
        {"dtype": "M8"},
        {"dtype": [("k", "f4"), ("v", "f4")]},
        {"dtype": 4},
        {"n_tensors": 3},
        {"n_heads": 30},
    ],
)
def test_wrong_shapes_are_named(bad):
    (name, value) = next(iter(bad.items()))
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        KVCacheSpec.preset("llama-3-8b", **bad)


@pytest.mark.parametrize(
    "call",
    [
        lambda: KVCacheSpec.preset("gpt-9"),
        lambda: LLAMA.capacity(-1),
        lambda: LLAMA.capacity(float("nan")),
        lambda: LLAMA.max_sequences(GiB, 0),
        lambda: LLAMA.decode_seconds(10, 0),
        lambda: LLAMA.blocks_for(-1),
    ],
)
def test_wrong_arguments_are_refused(call):
    with pytest.raises(ValueError):
        call()
