"""The kernels compile for CUDA: the interpreter accepts more than the compiler does.

No GPU and no C compiler is needed for that, only to start them.
"""

import os
import subprocess
import sys

import pytest

from paged_kv.gpu.interpreter import VARIABLE

from .batches import needs_triton

# Compute capability, q, cache, head_dim, block size, precision.
CASES = [
    (80, "*fp32", "*fp32", 80, 1, "ieee"),
    (90, "*bf16", "*bf16", 128, 16, "tf32"),
    (90, "*fp16", "*i8", 128, 128, "tf32"),
]
PROGRAM = """
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from paged_kv.gpu.kernels import decode_kernel, merge_kernel

pointers = dict.fromkeys(("k_scale", "v_scale", "out", "lse"), "*fp32")
pointers |= dict.fromkeys(("part_out", "part_lse"), "*fp32")
pointers |= {"block_tables": "*i32", "seq_lens": "*i32", "scale": "fp32"}


def compiled(kernel, capability, types, constants):
    types = {
        name: "constexpr" if name in constants else (pointers | types).get(name, "i32")
        for name in kernel.arg_names
    }
    source = ASTSource(
        kernel, types, {(kernel.arg_names.index(k),): v for k, v in constants.items()}
    )
    target = GPUTarget("cuda", capability, 32)
    print(len(triton.compile(source, target=target).asm["ptx"]) > 0)


for capability, q, cache, head_dim, block_size, precision in CASES:
    sizes = {"HEAD_DIM": head_dim, "HEAD_DIM_PAD": triton.next_power_of_2(head_dim)}
    compiled(
        decode_kernel,
        capability,
        {"q_ptr": q, "k_cache": cache, "v_cache": cache},
        {
            **sizes,
            "N_KV_HEADS": 8,
            "GROUP": 3,
            "GROUP_PAD": 16,
            "BLOCK_SIZE": block_size,
            "TILE": 64,
            "IS_INT8": cache == "*i8",
            "PRECISION": precision,
        },
    )
    compiled(merge_kernel, capability, {}, sizes)
"""


@needs_triton
@pytest.mark.skipif(sys.platform != "linux", reason="Triton compiles on Linux only")
def test_kernels_compile_for_cuda(tmp_path):
    env = {k: v for k, v in os.environ.items() if k != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", f"CASES = {CASES}\n{PROGRAM}"],
        capture_output=True,
        text=True,
        env=env | {"TRITON_CACHE_DIR": str(tmp_path)},
    )
    assert done.stdout.split() == ["True"] * (2 * len(CASES)), done.stderr
