"""A model on a device and the load it serves: what fits, and how fast it decodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paged_kv.serving.cost import CostModel
from paged_kv.spec import GB, KVCacheSpec, whole


@dataclass(frozen=True)
class Plan:
    """A model on a device, and the requests it serves.

    Parameters
    ----------
    spec : KVCacheSpec
        The cache.
    weights : float
        Bytes of the weights, which need not be stored as the cache is.
    memory, bandwidth : float
        Bytes of the device, bytes/s.
    other : float
        Bytes that neither weights nor KV cache take: activations, buffers, the driver.
    context : int
        Tokens that a running request really holds, on average.
    max_len : int
        Tokens that a request may come to; what reservation sets aside.
    batch : int
        Requests decoded together.

    Raises
    ------
    ValueError
        For lengths or a batch below 1, a context above `max_len`, or sizes that are
        negative or not finite.
    """

    spec: KVCacheSpec
    weights: float
    memory: float = 80 * GB
    bandwidth: float = 3.35e12
    other: float = 4 * GB
    context: int = 4096
    max_len: int = 32768
    batch: int = 32

    def __post_init__(self) -> None:
        for name in ("context", "max_len", "batch"):
            whole(name, getattr(self, name), 1)
        for name in ("weights", "memory", "bandwidth", "other"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and >= 0, got {value!r}")
        for name in ("memory", "bandwidth"):
            if not getattr(self, name):
                raise ValueError(f"{name} must be above 0")
        if self.context > self.max_len:
            raise ValueError(
                f"context {self.context} is above max_len {self.max_len}: a request "
                "cannot hold more tokens than it may have"
            )

    @property
    def kv_memory(self) -> float:
        """Bytes left for the cache; 0 when the weights alone do not fit."""
        return max(0.0, self.memory - self.weights - self.other)

    @property
    def kv_per_request(self) -> int:
        """Bytes of K and V that a decode step reads for one request."""
        return self.context * self.spec.bytes_per_token()

    @property
    def reserved(self) -> int:
        """Requests that fit when each reserves `max_len` tokens."""
        return self.spec.max_sequences(self.kv_memory, self.max_len)

    @property
    def paged(self) -> int:
        """Requests that fit when each takes the blocks of `context` tokens."""
        return self.spec.max_sequences(self.kv_memory, self.context)

    @property
    def cost(self) -> CostModel:
        """The roofline of a decode step: weights once, the KV of every request."""
        return CostModel(self.weights, self.spec.bytes_per_token(), self.bandwidth)

    def throughput(self, batch: int) -> float:
        """Tokens per second of `batch` requests together."""
        return self.cost.throughput(batch, self.context) if batch else 0.0

    def step_seconds(self, batch: int) -> float:
        """Seconds of one decode step of `batch` requests."""
        return self.cost.seconds(batch, batch * self.context)

    @property
    def saturation(self) -> float:
        """Tokens per second that no batch exceeds: bandwidth over KV per request."""
        return self.bandwidth / self.kv_per_request
