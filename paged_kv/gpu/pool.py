"""The block pool over torch tensors: the same books, another storage."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from paged_kv.pool import BlockPool, real_numbers

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class TorchBlockPool(BlockPool):
    """A `BlockPool` whose K and V are torch tensors on any device.

    `Sequence` works on it unchanged, and so do the functions of `paged_kv.attention`,
    which read it through `read_blocks`.

    Parameters
    ----------
    num_blocks, n_layers, n_kv_heads, head_dim, block_size : int
        As `BlockPool`.
    dtype : torch.dtype
        float32, float16 or bfloat16.
    device : torch.device or str
        Where K and V live. The books stay with the processor.

    Attributes
    ----------
    k, v : Tensor, shape (n_layers, num_blocks, block_size, n_kv_heads, head_dim)
        Storage, never zeroed; ``k[layer]`` is what kernels take as `k_cache`.
    """

    k: torch.Tensor  # type: ignore[assignment]
    v: torch.Tensor  # type: ignore[assignment]
    dtype: torch.dtype  # type: ignore[assignment]

    def __init__(
        self,
        num_blocks: int,
        n_layers: int,
        n_kv_heads: int,
        head_dim: int,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.device = torch.device(device)
        super().__init__(num_blocks, n_layers, n_kv_heads, head_dim, block_size, dtype)  # type: ignore[arg-type]

    def _make_storage(self, dtype: torch.dtype) -> None:  # type: ignore[override]
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {DTYPES}, got {dtype}")
        self.dtype = dtype
        self.k = torch.empty(self.shape, dtype=dtype, device=self.device)
        self.v = torch.empty(self.shape, dtype=dtype, device=self.device)

    def read_blocks(
        self, layer: int, blocks: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return K and V of whole blocks as numpy arrays of float32, for checking.

        Shapes as `BlockPool.read_blocks`. float32 holds every value of the narrower
        types exactly, and numpy has no bfloat16.
        """
        layer = self.layer_index(layer)
        rows = (-1, self.n_kv_heads, self.head_dim)
        ids = torch.as_tensor(blocks, device=self.device)
        k, v = (store[layer][ids].float().cpu().numpy() for store in (self.k, self.v))
        return k.reshape(rows), v.reshape(rows)

    def _as_stored(  # type: ignore[override]
        self, name: str, array: ArrayLike | torch.Tensor, shape: Seq[int]
    ) -> torch.Tensor:
        """Return `array` in the pool's dtype on its device; see `BlockPool.as_kv`."""
        given = array if isinstance(array, torch.Tensor) else _from_numpy(name, array)
        if given.shape != tuple(shape):
            raise ValueError(
                f"{name} has shape {tuple(given.shape)}, expected {tuple(shape)}"
            )
        if given.is_complex() or given.dtype == torch.bool:
            raise TypeError(f"{name} must hold real numbers, got dtype {given.dtype}")
        stored = given.detach().to(self.device, self.dtype)
        if not (finite := torch.isfinite(stored)).all():
            first = tuple((~finite).nonzero()[0].tolist())
            raise ValueError(
                f"{name} has NaN or values too large for {self.dtype}: "
                f"first at index {first}"
            )
        return stored


def _from_numpy(name: str, array: ArrayLike) -> torch.Tensor:
    given = real_numbers(name, array)
    # torch cannot read ml_dtypes' arrays, and warns of those that may not be written.
    dtype = np.float32 if given.dtype.name == "bfloat16" else given.dtype
    return torch.from_numpy(np.array(given, dtype))
