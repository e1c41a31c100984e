"""Triton without a GPU: its interpreter, and a look at what a kernel reads there.

With TRITON_INTERPRET=1 a kernel runs in Python, one program instance after the other.
Triton looks at the variable while it is imported and where a kernel is defined, so it
has to be set before either.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

VARIABLE = "TRITON_INTERPRET"


def has_triton() -> bool:
    """Whether Triton is installed; there are wheels for Linux only."""
    return importlib.util.find_spec("triton") is not None


def import_triton() -> ModuleType:
    """Import Triton so that kernels run on this machine, and return it.

    Without a CUDA device this chooses the interpreter, for the whole process.

    Raises
    ------
    RuntimeError
        When Triton is not installed, or was imported without the interpreter on a
        machine that needs it.
    """
    if not has_triton():
        raise RuntimeError(
            "Triton is not installed; it exists for Linux only (on Windows: WSL). "
            "Everything else runs with backend='torch'"
        )
    if "triton" not in sys.modules and not torch.cuda.is_available():
        os.environ.setdefault(VARIABLE, "1")
    triton = importlib.import_module("triton")

    if not torch.cuda.is_available() and not is_interpreted(triton.language.sum):
        raise RuntimeError(
            f"Triton was imported without {VARIABLE}=1, and there is no CUDA device: "
            f"set it before the first import of triton (os.environ['{VARIABLE}'] = "
            "'1') and restart the kernel"
        )
    return triton


def is_interpreted(kernel: object) -> bool:
    """Whether a @triton.jit function runs in the interpreter."""
    return type(kernel).__name__ == "InterpretedFunction"


class Access(NamedTuple):
    """One load or store of one program instance.

    Attributes
    ----------
    program : tuple of int
        The three program ids.
    tensor : str
        The kernel's parameter whose memory it was, or is nearest.
    elements : ndarray of int64
        What was not masked away, as indices into the tensor's storage.
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
    """

    def __init__(self, access: Access) -> None:
        first = int(access.elements[0])
        super().__init__(
            f"program {access.program} touched element {first} of {access.tensor}"
        )
        self.access = access


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
    import_triton()
    module: Any = importlib.import_module("triton.runtime.interpreter")
    builder, executor = module.interpreter_builder, module.GridExecutor
    accesses: list[Access] = []
    tensors: dict[str, torch.Tensor] = {}

    def note(pointers: Any, mask: Any, is_store: bool) -> None:
        touched = pointers.data[np.broadcast_to(mask.data, pointers.data.shape)]
        if not touched.size:
            return
        name, elements = _locate(touched.astype(np.int64), tensors)
        access = Access(tuple(builder.grid_idx), name, elements, is_store)
        memory = tensors[name].untyped_storage().nbytes()
        outside = (elements < 0) | (elements >= memory // tensors[name].element_size())
        if outside.any():
            raise OutOfBounds(access._replace(elements=elements[outside]))
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
        del builder.create_masked_load, builder.create_masked_store
        executor._init_args_hst = to_host


def _locate(
    pointers: NDArray[np.int64], tensors: Mapping[str, torch.Tensor]
) -> tuple[str, NDArray[np.int64]]:
    """Return the tensor with most of the pointers, or the nearest, and the elements."""

    def distance(name: str) -> tuple[int, int]:
        start = tensors[name].untyped_storage().data_ptr()
        end = start + tensors[name].untyped_storage().nbytes()
        inside = int(((pointers >= start) & (pointers < end)).sum())
        gap = max(start - int(pointers[0]), int(pointers[0]) - end, 0)
        return -inside, gap

    name = min(tensors, key=distance)
    start = tensors[name].untyped_storage().data_ptr()
    return name, (pointers.ravel() - start) // tensors[name].element_size()
