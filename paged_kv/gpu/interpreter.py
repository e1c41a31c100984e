"""Triton on this machine: compiled for a CUDA device, or in its interpreter.

With TRITON_INTERPRET=1 a kernel runs in Python, one program instance after the other.
Triton looks at the variable while it is imported and where a kernel is defined, so it
has to be set before either.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from types import ModuleType

import torch

VARIABLE = "TRITON_INTERPRET"


def has_triton() -> bool:
    """Whether Triton is installed; there are wheels for Linux only."""
    return importlib.util.find_spec("triton") is not None


def can_launch() -> bool:
    """Whether a kernel can run here: on a CUDA device Triton needs a C compiler too.

    With it Triton builds, once, what starts kernels; the interpreter needs none.
    """
    if not has_triton() or not torch.cuda.is_available():
        return has_triton()
    interpreted = os.environ.get(VARIABLE) == "1"
    compilers = os.environ.get("CC"), shutil.which("gcc"), shutil.which("clang")
    return interpreted or any(compilers)


def import_triton(interpret: bool = False) -> ModuleType:
    """Import Triton so that kernels run on this machine, and return it.

    Without a CUDA device this chooses the interpreter, for the whole process.

    Parameters
    ----------
    interpret : bool
        Take the interpreter although there is a CUDA device, to look at a kernel.

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
    interpret = interpret or not torch.cuda.is_available()
    if interpret and "triton" not in sys.modules:
        os.environ[VARIABLE] = "1"
    triton = importlib.import_module("triton")
    if interpret and not is_interpreted(triton.language.sum):
        raise RuntimeError(
            f"Triton was imported without {VARIABLE}=1, and this needs its "
            f"interpreter: set os.environ['{VARIABLE}'] = '1' before the first import "
            "of triton and restart the kernel"
        )
    return triton


def is_interpreted(kernel: object) -> bool:
    """Whether a @triton.jit function runs in the interpreter."""
    return type(kernel).__name__ == "InterpretedFunction"
