"""What a kernel reads and writes, seen from inside Triton's interpreter."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from paged_kv.gpu.interpreter import import_triton


class Access(NamedTuple):
    """One load or store of one program instance.

    Attributes
    ----------
    program : tuple of int
        The three program ids.
    tensor : str
        The kernel's parameter whose memory it was, or is nearest.
    elements : ndarray of int64
        What was not masked away, counted from the tensor's first element.
    is_store : bool
    """

    program: tuple[int, int, int]
    tensor: str
    elements: NDArray[np.int64]
    is_store: bool


class OutOfBounds(IndexError):
    """A kernel touched memory outside all of its tensors.

    Attributes
    ----------
    access : Access
        Of the elements outside alone.
    counted_from : dict of str to int
        The first of them as an element of each tensor: whose it was meant to be
        cannot be told from a pointer alone.
    """

    def __init__(self, access: Access, counted_from: dict[str, int]) -> None:
        first = int(access.elements[0])
        super().__init__(
            f"program {access.program} touched element {first} of {access.tensor}"
        )
        self.access, self.counted_from = access, counted_from


@contextmanager
def record_accesses() -> Iterator[list[Access]]:
    """Record every load and store of the kernels that run inside; interpreter only.

    Nothing outside a kernel's own arguments is touched: it is stopped by OutOfBounds,
    which Triton wraps in an InterpreterError. Without this a wrong pointer would end
    the whole process.

    Yields
    ------
    list of Access
        Grows as kernels run, in the order of the program instances.
    """
    import_triton(interpret=True)
    module: Any = importlib.import_module("triton.runtime.interpreter")
    builder, executor = module.interpreter_builder, module.GridExecutor
    accesses: list[Access] = []
    tensors: dict[str, torch.Tensor] = {}

    def note(pointers: Any, mask: Any, is_store: bool) -> None:
        touched = pointers.data[np.broadcast_to(mask.data, pointers.data.shape)]
        if not touched.size:
            return
        addresses = touched.ravel().astype(np.int64)
        name = _owner(addresses, tensors)
        start, end = _extent(tensors[name])
        elements = (addresses - start) // tensors[name].element_size()
        access = Access(tuple(builder.grid_idx), name, elements, is_store)
        outside = (addresses < start) | (addresses >= end)
        if outside.any():
            first = int(addresses[outside][0])
            raise OutOfBounds(
                access._replace(elements=elements[outside]),
                {
                    k: (first - t.data_ptr()) // t.element_size()
                    for k, t in tensors.items()
                },
            )
        accesses.append(access)

    load, store = builder.create_masked_load, builder.create_masked_store
    to_host = executor._init_args_hst

    def noted_load(pointers: Any, mask: Any, *others: Any) -> Any:
        note(pointers, mask, is_store=False)
        return load(pointers, mask, *others)

    def noted_store(pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        note(pointers, mask, is_store=True)
        return store(pointers, value, mask, *others)

    def noted_to_host(self: Any, args: Any, kwargs: Any) -> Any:
        host_args, host_kwargs = to_host(self, args, kwargs)
        given = {**dict(zip(self.arg_names, host_args, strict=False)), **host_kwargs}
        tensors.clear()
        tensors.update({k: v for k, v in given.items() if torch.is_tensor(v)})
        return host_args, host_kwargs

    builder.create_masked_load, builder.create_masked_store = noted_load, noted_store
    executor._init_args_hst = noted_to_host
    try:
        yield accesses
    finally:
        builder.create_masked_load, builder.create_masked_store = load, store
        executor._init_args_hst = to_host


def _owner(addresses: NDArray[np.int64], tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the name of the tensor with most of the addresses, or of the nearest."""

    def distance(name: str) -> tuple[int, int]:
        start, end = _extent(tensors[name])
        inside = int(((addresses >= start) & (addresses < end)).sum())
        return -inside, max(start - int(addresses[0]), int(addresses[0]) - end, 0)

    return min(tensors, key=distance)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses of the first byte and of the one behind the last."""
    last = sum(
        (n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)
    )
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size() * bool(tensor.numel())
