"""How long one iteration of a serving engine takes: a stated model, not a measurement.

overhead + overhead_per_request · requests
+ (weights + KV of all tokens) / bandwidth        decode is bound by memory
+ 2 · parameters · prompt tokens / flops          prefill is bound by arithmetic
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from paged_kv.spec import KVCacheSpec, whole


@dataclass(frozen=True)
class CostModel:
    """Seconds of an iteration; with both overheads 0 it is the roofline.

    Parameters
    ----------
    weight_bytes : float
        Read once per iteration, whatever the batch.
    kv_bytes_per_token : float
        Read once per iteration for each token in the cache.
    bandwidth : float
        Bytes/s.
    prefill_per_token : float
        Seconds of arithmetic for one prompt token.
    overhead, overhead_per_request : float
        Seconds that an engine spends besides, per iteration and per running request.

    Raises
    ------
    ValueError
        For a negative or infinite value, a bandwidth of 0, or values so small that an
        iteration takes no time.
    """

    weight_bytes: float
    kv_bytes_per_token: float
    bandwidth: float
    prefill_per_token: float = 0.0
    overhead: float = 0.0
    overhead_per_request: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and >= 0, got {value!r}")
        if not self.bandwidth:
            raise ValueError("bandwidth must be bytes/s > 0, got 0")
        if not self.seconds(1, 1):
            raise ValueError(
                "an iteration must take time: weight_bytes, kv_bytes_per_token or an "
                f"overhead must be larger than in {self}"
            )

    @classmethod
    def of(
        cls,
        spec: KVCacheSpec,
        bandwidth: float,
        flops: float = math.inf,
        *,
        overhead: float = 0.0,
        overhead_per_request: float = 0.0,
    ) -> CostModel:
        """Return the model for a spec on a device.

        Parameters
        ----------
        spec : KVCacheSpec
            Its weights are read once per iteration, its tokens once each.
        bandwidth : float
            Bytes/s.
        flops : float
            FLOP/s of the prefill, 2 per parameter and token; by default it costs none.
        overhead, overhead_per_request : float
            As in the class.

        Raises
        ------
        ValueError
            As the class, or for flops that are not above 0.
        """
        if not flops > 0:
            raise ValueError(f"flops must be FLOP/s > 0, got {flops!r}")
        return cls(
            spec.weight_bytes(),
            spec.bytes_per_token(),
            bandwidth,
            2 * spec.n_params / flops,
            overhead,
            overhead_per_request,
        )

    def seconds(self, requests: int, tokens: int, prompt_tokens: int = 0) -> float:
        """Seconds of one iteration.

        Parameters
        ----------
        requests : int
            Requests in the batch.
        tokens : int
            Tokens that they hold in all.
        prompt_tokens : int
            Those of them that are new and go through prefill.
        """
        moved = self.weight_bytes + self.kv_bytes_per_token * tokens
        return (
            self.overhead
            + self.overhead_per_request * requests
            + moved / self.bandwidth
            + self.prefill_per_token * prompt_tokens
        )

    def throughput(self, requests: int, tokens_each: int) -> float:
        """Tokens per second when `requests` requests of `tokens_each` tokens decode."""
        return requests / self.seconds(requests, requests * tokens_each)

    def with_block_cost(self, block_size: int, tokens: float) -> CostModel:
        """Return a model in which touching a block costs as much as reading `tokens`.

        A kernel that walks a block table reads less evenly, and small blocks more so.

        Raises
        ------
        ValueError
            For a block size below 1.
        """
        slower = self.kv_bytes_per_token * (
            1 + tokens / whole("block_size", block_size, 1)
        )
        return replace(self, kv_bytes_per_token=slower)
