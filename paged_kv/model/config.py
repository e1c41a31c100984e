"""Sizes of a Llama-type model."""

from __future__ import annotations

from dataclasses import dataclass

from paged_kv.spec import KVCacheSpec


@dataclass(frozen=True)
class LlamaConfig:
    """What `Llama` needs to know; names as in the models' published configurations.

    Attributes
    ----------
    n_layers, n_heads, n_kv_heads, head_dim : int
        Layers; query heads, KV heads and elements per head of the attention.
    d_model, d_ff, vocab_size : int
        Width of the residual stream, of the feed-forward layer, and tokens known.
    rope_theta : float
        Base of the rotary frequencies.
    norm_eps : float
        Added to the mean square in RMSNorm.
    context : int
        Positions the model was trained for.
    """

    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_model: int
    d_ff: int
    vocab_size: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    context: int = 2048

    def kv_spec(self, dtype: str = "float32", block_size: int = 16) -> KVCacheSpec:
        """Return the size of this model's KV cache."""
        return KVCacheSpec(
            self.n_layers,
            self.n_kv_heads,
            self.head_dim,
            n_heads=self.n_heads,
            dtype=dtype,
            block_size=block_size,
        )
