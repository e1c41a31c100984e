"""How much memory a model's KV cache takes: arithmetic only, no arrays.

>>> spec = KVCacheSpec.preset("llama-3-8b")
>>> spec.bytes_per_token(), spec.bytes_per_block()
(131072, 2097152)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30
KB, MB, GB = 10**3, 10**6, 10**9


@dataclass(frozen=True)
class KVCacheSpec:
    """Shape of the KV cache of one model, and what it costs.

    Parameters
    ----------
    n_layers, n_kv_heads, head_dim : int
        Layers that keep a cache, KV heads per layer, elements per head.
    n_heads : int, optional
        Query heads; `n_kv_heads` when not given. The cache does not depend on it.
    dtype : str
        numpy or ml_dtypes name of the stored type, e.g. ``"float16"``.
    block_size : int
        Tokens per block.
    n_tensors : int
        Tensors kept per token: 2 (K and V), or 1 where both are computed from one
        shared latent vector (MLA; then ``n_kv_heads=1`` and ``head_dim`` is the
        latent's length, e.g. 512 + 64 in DeepSeek).
    n_params : int
        Parameters of the model, for the memory its weights take; 0 = unknown.
    name : str
        For people.

    Raises
    ------
    ValueError
        For a count below one, heads that do not group, or an unknown dtype.
    """

    n_layers: int
    n_kv_heads: int
    head_dim: int
    n_heads: int = 0
    dtype: str = "float16"
    block_size: int = 16
    n_tensors: int = 2
    n_params: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        if not self.n_heads:
            object.__setattr__(self, "n_heads", self.n_kv_heads)
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))
        for field in fields(self):
            if field.name not in ("dtype", "name"):
                least = 0 if field.name == "n_params" else 1
                value = whole(field.name, getattr(self, field.name), least)
                object.__setattr__(self, field.name, value)
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads must be a multiple of n_kv_heads = {self.n_kv_heads}, "
                f"got n_heads {self.n_heads}"
            )
        if self.n_tensors > 2:
            raise ValueError(f"n_tensors must be 1 or 2, got {self.n_tensors}")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> KVCacheSpec:
        """Return the spec of a known model, with `changes` to any field.

        Raises
        ------
        ValueError
            For an unknown name; the message lists the known ones.
        """
        if name not in PRESETS:
            raise ValueError(f"unknown model {name!r}; known: {', '.join(PRESETS)}")
        return replace(PRESETS[name], **changes)

    @property
    def itemsize(self) -> int:
        """Bytes of one stored element."""
        return _itemsize(self.dtype)

    def bytes_per_token_layer(self) -> int:
        """Bytes that one token takes in one layer."""
        return self.n_tensors * self.n_kv_heads * self.head_dim * self.itemsize

    def bytes_per_token(self) -> int:
        """Bytes that one token takes in all layers."""
        return self.n_layers * self.bytes_per_token_layer()

    def bytes_per_block(self) -> int:
        """Bytes of one block of `block_size` tokens in all layers."""
        return self.block_size * self.bytes_per_token()

    def weight_bytes(self) -> int:
        """Bytes of the weights, stored in the same dtype as the cache."""
        return self.n_params * self.itemsize

    def blocks_for(self, n_tokens: int) -> int:
        """Blocks that hold `n_tokens` tokens of one sequence: ceil(n / block_size).

        Raises
        ------
        ValueError
            For a number of tokens that is not whole or below 0.
        """
        return -(-whole("n_tokens", n_tokens, 0) // self.block_size)

    def capacity(self, memory: float) -> int:
        """Whole blocks that fit into `memory` bytes.

        Raises
        ------
        ValueError
            For a memory that is negative or not finite.
        """
        if not (math.isfinite(memory) and memory >= 0):
            raise ValueError(f"memory must be a number of bytes >= 0, got {memory!r}")
        return int(memory // self.bytes_per_block())

    def max_sequences(self, memory: float, n_tokens: int) -> int:
        """Sequences of `n_tokens` tokens each that fit into `memory` bytes.

        With `n_tokens` the real length this is what paging fits; with the longest
        allowed length it is what reservation fits.

        Raises
        ------
        ValueError
            As `capacity`, or for fewer than 1 token.
        """
        blocks = self.blocks_for(whole("n_tokens", n_tokens, 1))
        return self.capacity(memory) // blocks

    def decode_seconds(self, n_tokens: int, bandwidth: float) -> float:
        """Seconds to read the KV of `n_tokens` tokens at `bandwidth` bytes/s.

        A lower bound of one decode step of one sequence, weights not counted.

        Raises
        ------
        ValueError
            For a bandwidth that is not above 0, or tokens as in `blocks_for`.
        """
        if not bandwidth > 0:
            raise ValueError(f"bandwidth must be bytes/s > 0, got {bandwidth!r}")
        n_tokens = whole("n_tokens", n_tokens, 0)
        return n_tokens * self.bytes_per_token() / bandwidth


def whole(name: str, value: object, least: int) -> int:
    """Return `value` as an int of at least `least`, or raise ValueError."""
    is_int = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_int or int(value) < least:  # type: ignore[call-overload]
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)  # type: ignore[call-overload, no-any-return]


# numpy has no bfloat16 and no 8-bit floats of its own; their bytes are known by name.
_NARROW = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


def _dtype_name(dtype: Any) -> str:
    if isinstance(dtype, str) and dtype in _NARROW:
        return dtype
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise ValueError(f"unknown dtype {dtype!r}") from None
    if found.kind not in "fiu" and found.name not in _NARROW:
        raise ValueError(f"dtype must be of real numbers, got {dtype!r}")
    return str(found.name)


def _itemsize(name: str) -> int:
    return _NARROW.get(name) or np.dtype(name).itemsize


#: Shapes from the models' published configurations.
PRESETS = {
    "llama-3-8b": KVCacheSpec(
        32, 8, 128, n_heads=32, n_params=8_030_261_248, name="Llama-3-8B"
    ),
    "llama-2-7b": KVCacheSpec(
        32, 32, 128, n_heads=32, n_params=6_738_415_616, name="Llama-2-7B"
    ),
    "opt-13b": KVCacheSpec(
        40, 40, 128, n_heads=40, n_params=12_853_473_280, name="OPT-13B"
    ),
    "smollm2-135m": KVCacheSpec(
        30, 3, 64, n_heads=9, n_params=134_515_008, name="SmolLM2-135M"
    ),
    "deepseek-v3": KVCacheSpec(
        61,
        1,
        512 + 64,
        n_heads=128,
        dtype="bfloat16",
        n_tensors=1,
        n_params=671_026_419_200,
        name="DeepSeek-V3 (MLA)",
    ),
}
