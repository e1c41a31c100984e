"""Cases of exercise 09.6: a Triton kernel, run in the interpreter under watch."""

from __future__ import annotations

from inspect import isfunction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.checks.cases.attention_flaws import Problem, attend
from paged_kv.checks.cases.kernel_flaws import name_kernel_flaw
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr

Array = NDArray[Any]

DIM, SIZE, BLOCKS = 8, 4, 9
SCALE = 0.2  # not 1 / sqrt(8): the argument must be used
TABLES = [[5, 3, 7], [2, 8, -1], [1, -1, -1]]
#: Times the 32 elements of its block this does not fit 32 bits.
FAR_BLOCK = 70_000_000


def one_block(s: Script) -> None:
    """Check one sequence of one full block, one KV head."""
    _batch(s, 2, 1, TABLES[:1], [SIZE])
    _expect_right(s)


def boundaries(s: Script) -> None:
    """Check one sequence of three blocks, full and not."""
    for length in (10, 1, 5, 8, 12):
        s.restart()
        _batch(s, 2, 1, TABLES[:1], [length])
        _expect_right(s)


def heads(s: Script) -> None:
    """Check 6 query and 3 KV heads; 4 and 2 would hide a wrong mapping."""
    _batch(s, 6, 3, TABLES[:1], [10])
    _expect_right(s)


def batch(s: Script) -> None:
    """Check three sequences, the tables padded with −1."""
    _batch(s, 6, 3, TABLES, [10, 5, 3])
    _expect_right(s)


def nan_in_empty_slots(s: Script) -> None:
    """Check that NaN beyond the length does not reach the result."""
    _batch(s, 2, 1, TABLES[:1], [6])
    note = tr("block 3 holds tokens 4 and 5")
    s.do("k_cache[3, 2:] = v_cache[3, 2:] = torch.nan", note)
    out = _launch(s)
    if np.isnan(out).any():
        raise Wrong(
            "nan-from-empty-slots",
            tr(
                "The slots beyond `length` hold NaN here. They got the weight 0, but "
                "0 · NaN is NaN: load K and V with `mask=valid[:, None], other=0`."
            ),
            tr("finite numbers"),
            show(out[0, 0]),
        )
    _expect_result(s, out)


def large_scores(s: Script) -> None:
    """Check scores of several hundred, of either sign."""
    for sign in "+-":
        s.restart()
        _batch(s, 2, 1, TABLES[:1], [10])
        s.do("k_cache = k_cache.abs() + 9")
        s.do(f"q = {sign}(q.abs() + 40)")
        out = _launch(s)
        if not np.isfinite(out).all():
            raise Wrong(
                "maximum-not-subtracted",
                tr(
                    "exp of a score of several hundred overflows, and of minus several "
                    "hundred it is 0. Subtract the running maximum, which starts at "
                    "`-inf`."
                ),
                tr("finite numbers"),
                show(out[0, 0]),
            )
        _expect_result(s, out, atol=1e-3)


def far_block(s: Script) -> None:
    """Check the address of a block beyond 2^31 elements; nothing is read there."""
    _batch(s, 2, 1, [[FAR_BLOCK]], [SIZE])
    right = FAR_BLOCK * SIZE * DIM
    try:
        _start(s)
    except Exception as error:
        if (stopped := _out_of_bounds(error)) is None:
            raise
        if right in stopped.counted_from.values():
            return  # where the block would be; the launch let nothing be read there
        first = int(stopped.access.elements[0])
        raise Wrong(
            "offset-overflows",
            tr(
                "Block ids are int32, and block · elements of a block does not fit: "
                "the address wraps around. Write `.to(tl.int64)` behind the load of "
                "the block id."
            ),
            tr("element {n}", n=right),
            tr("element {n}", n=first),
        ) from None


def _batch(
    s: Script,
    n_heads: int,
    n_kv_heads: int,
    tables: list[list[int]],
    lengths: list[int],
) -> None:
    """Make caches whose blocks were in use before, and a batch over them."""
    _import(s)
    s.do("rng = np.random.default_rng(6)")
    s.do(
        "rand = lambda *shape: "
        "torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))"
    )
    s.do(f"k_cache, v_cache = rand(2, {BLOCKS}, {SIZE}, {n_kv_heads}, {DIM})")
    s.do(f"q = rand({len(tables)}, {n_heads}, {DIM})")
    s.do(f"block_tables = torch.tensor({tables}, dtype=torch.int32)")
    s.do(f"seq_lens = torch.tensor({lengths}, dtype=torch.int32)")


def _import(s: Script) -> None:
    """Give the script torch, here and not on top: other exercises do without it."""
    import torch

    from paged_kv.gpu.interpreter import has_triton
    from paged_kv.gpu.practice import launch

    s.names |= {"torch": torch, "launch": launch}
    if not has_triton():
        raise Wrong(
            "no-triton",
            tr(
                "Triton is not installed: it exists for Linux only. Do this exercise "
                "on Linux, or on Windows in WSL."
            ),
        )


def _start(s: Script) -> None:
    """Run the kernel; what it raises comes out as it was raised."""
    if isfunction(s.names["paged_decode"]):
        raise Wrong(
            "not-a-kernel",
            tr(
                "`paged_decode` is a Python function and not yet a kernel: write "
                "`@triton.jit` on the line above `def`."
            ),
            tr("a Triton kernel"),
            tr("a Python function"),
        )
    call = f"launch(paged_decode, q, k_cache, v_cache, block_tables, seq_lens, {SCALE})"
    try:
        s.do(f"out = {call}")
    except Exception as error:
        raise error.__cause__ or error from None  # Triton wraps what a kernel raises


def _out_of_bounds(error: Exception) -> Any:
    """Return the error if a wild pointer stopped the kernel, else None."""
    from paged_kv.gpu.accesses import OutOfBounds

    return error if isinstance(error, OutOfBounds) else None


def _launch(s: Script) -> Array:
    """Run the kernel; raise Wrong when it touches what is not its own."""
    before = {name: s.names[name].clone() for name in ("q", "k_cache", "v_cache")}
    try:
        _start(s)
    except Exception as error:
        if (stopped := _out_of_bounds(error)) is None:
            raise
        raise _outside(stopped.access) from error
    for name, array in before.items():
        if not np.array_equal(s.names[name], array, equal_nan=True):
            raise Wrong(
                "input-modified",
                tr(
                    "The kernel wrote to `{name}`; it may write to out alone.",
                    name=name,
                ),
            )
    result: Array = s.names["out"].numpy().astype(float)
    return result


def _outside(access: Any) -> Wrong:
    seq, kv_head, _ = access.program
    return Wrong(
        "reads-outside",
        tr(
            "The kernel touched memory that belongs to none of its arguments. On a GPU "
            "this is a crash, or somebody else's numbers. Print the offsets for the "
            "first block and compare them with paper."
        ),
        tr("elements of {name} from 0 on, within its size", name=access.tensor),
        tr("element {n}", n=int(access.elements[0])),
        tr("program instance ({seq}, {kv_head})", seq=seq, kv_head=kv_head),
    )


def _run(s: Script) -> Array:
    out = _launch(s)
    if np.isnan(out).all():
        raise Wrong(
            "nothing-useful-written",
            tr(
                "Every number of out is NaN. Either it was never written, or l is 0 or "
                "m is still `-inf` after the loop: `-inf - -inf` is NaN. Slots counted "
                "by `length % BLOCK_SIZE`? That is 0 when the last block is full."
            ),
            tr("finite numbers"),
            show(out[0, 0]),
        )
    return out


def _expect_right(s: Script) -> None:
    _expect_result(s, _run(s))


def _expect_result(s: Script, out: Array, atol: float = 1e-5) -> None:
    names = s.names
    k, v = (names[name].numpy()[None] for name in ("k_cache", "v_cache"))
    tables = names["block_tables"].numpy()
    for row, length in enumerate(names["seq_lens"].tolist()):
        table = [int(block) for block in tables[row, : -(-length // SIZE)]]
        p = Problem(k, v, table, length, 0, names["q"][row].numpy(), SCALE)
        right = attend(p)
        if np.allclose(out[row], right, rtol=1e-5, atol=atol):
            continue
        code, cause = name_kernel_flaw(p, tables, row, out[row], right) or (
            "wrong-numbers",
            tr("The numbers differ, and not in a known way."),
        )
        off = np.nan_to_num(np.abs(out[row] - right), nan=np.inf)
        wrong_heads = np.flatnonzero(off.max(axis=1) > atol).tolist()
        h, i = np.unravel_index(off.argmax(), off.shape)
        raise Wrong(
            code,
            cause,
            f"out[{row}, {h}, {i}] == {right[h, i]:.5f}",
            f"{out[row, h, i]:.5f}",
            tr(
                "sequence {row} of {length} tokens, query heads {heads}",
                row=row,
                length=length,
                heads=", ".join(map(str, wrong_heads)),
            ),
        )


def _program() -> str:
    return tr("09.6, “One program instance”")


def _layout() -> str:
    return tr("09.6, “Why the layout matters”")


def _loop() -> str:
    return tr("09.2, “Why softmax does not split”")


KERNEL_CASES = (
    Case(lambda: tr("one full block, somewhere in the cache"), _program, one_block),
    Case(lambda: tr("lengths around the block boundaries"), _loop, boundaries),
    Case(lambda: tr("6 query heads over 3 KV heads"), _program, heads),
    Case(lambda: tr("three sequences, tables padded with −1"), _program, batch),
    Case(
        lambda: tr("slots beyond the length are not loaded"),
        _program,
        nan_in_empty_slots,
    ),
    Case(
        lambda: tr("scores of several hundred, positive and negative"),
        _loop,
        large_scores,
    ),
    Case(
        lambda: tr("addresses beyond 32 bits"),
        _layout,
        far_block,
    ),
)
