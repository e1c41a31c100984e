"""Triton without a GPU: how it is imported, and what a program instance reads."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from paged_kv.gpu import (
    import_triton,
    interpreter,
    paged_attention_decode,
    usable_backends,
)
from paged_kv.gpu.accesses import OutOfBounds, record_accesses

from .batches import make_batch, needs_triton

NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


def run(program):
    """Run a fresh Python, without the variable that this one may have set."""
    env = {k: v for k, v in os.environ.items() if k != interpreter.VARIABLE}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env
    )


def test_importing_the_package_does_not_import_triton():
    done = run("import sys, paged_kv.gpu; print('triton' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


@needs_triton
@NO_CUDA
def test_triton_imported_too_early_is_told():
    done = run("import triton\nfrom paged_kv.gpu import import_triton\nimport_triton()")
    assert "RuntimeError" in done.stderr
    assert "TRITON_INTERPRET=1" in done.stderr
    assert "restart the kernel" in done.stderr


def test_no_triton_on_this_system(monkeypatch):
    monkeypatch.setattr(interpreter, "has_triton", lambda: False)
    with pytest.raises(RuntimeError, match="Linux only"):
        import_triton()


@pytest.mark.parametrize(
    ("cuda", "variable", "compiler", "can"),
    [
        (False, None, None, True),  # the interpreter needs none
        (True, None, "/usr/bin/gcc", True),
        (True, None, None, False),
        (True, "1", None, True),
    ],
)
def test_a_cuda_device_needs_a_c_compiler(monkeypatch, cuda, variable, compiler, can):
    monkeypatch.setattr(interpreter, "has_triton", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(interpreter.shutil, "which", lambda _: compiler)
    for name, value in ((interpreter.VARIABLE, variable), ("CC", None)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert usable_backends() == (("torch", "triton") if can else ("torch",))


def flat(blocks, slots, head, cache):
    """Flat elements of some slots of blocks, of one head."""
    index = np.arange(cache.numel()).reshape(cache.shape)
    return index[blocks, slots, head].ravel()


@needs_triton
def test_a_program_reads_its_tokens_once_and_nothing_else():
    batch = make_batch([37, 0, 16])
    caches = {"k_cache": batch.k_cache, "v_cache": batch.v_cache}
    with record_accesses() as accesses:
        paged_attention_decode(*batch.args, backend="triton")
    assert {a.program for a in accesses} == {
        (s, h, 0) for s in range(3) for h in range(3)
    }
    for row, length in enumerate(batch.seq_lens.tolist()):
        t = np.arange(length)
        blocks = batch.block_tables[row].numpy()[t // 16]
        for head in range(3):
            for name, cache in caches.items():
                read = [
                    a.elements
                    for a in accesses
                    if (a.tensor, a.program) == (name, (row, head, 0))
                ]
                got = np.sort(np.concatenate(read)) if read else np.array([])
                want = np.sort(flat(blocks, t % 16, head, cache))
                np.testing.assert_array_equal(got, want)


@needs_triton
@pytest.mark.parametrize("offset", [-1, 1 << 40])
def test_a_wild_pointer_is_stopped(offset):
    triton = import_triton()
    kernel = wild_kernel(triton)
    source, target = torch.arange(8.0), torch.zeros(8)
    with (
        record_accesses(),
        pytest.raises(Exception, match="OutOfBounds") as caught,
    ):
        kernel[(1,)](source, target, offset)
    error = caught.value.__cause__
    assert isinstance(error, OutOfBounds)
    assert not error.access.is_store
    assert not target.any()
    with record_accesses() as accesses:
        kernel[(1,)](source, target, 4)
    assert [(a.tensor, a.is_store) for a in accesses] == [
        ("source", False),
        ("target", True),
    ]
    assert accesses[0].elements.tolist() == [4, 5]
    assert target.tolist() == [4, 5, 0, 0, 0, 0, 0, 0]


def wild_kernel(triton):
    tl = triton.language
    globals()["tl"] = tl  # a kernel takes its language from its module

    @triton.jit
    def wild(source, target, offset):
        t = tl.arange(0, 2)
        tl.store(target + t, tl.load(source + offset + t))

    return wild
