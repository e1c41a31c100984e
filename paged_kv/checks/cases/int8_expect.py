"""What the cases of exercise 09.5 expect, and the diagnosis where it does not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.checks.cases.int8_flaws import (
    BLOCK_FLAWS,
    DIM,
    HEADS,
    one_scale_cause,
)
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr

Array = NDArray[Any]


def expect_form(s: Script, name: str, shape: tuple[int, ...], dtype: type) -> None:
    """Raise Wrong unless `name` has this shape and type."""
    value = np.asarray(s.names[name])
    if value.shape != shape:
        cause = tr("{name} has the wrong shape.", name=name)
        raise Wrong(f"{name}-wrong-shape", cause, str(shape), str(value.shape))
    if value.dtype != dtype:
        wanted = np.dtype(dtype).name
        cause = tr("{name} must be of type {dtype}.", name=name, dtype=wanted)
        if dtype is np.int8:
            cause += " " + tr("An int8 code takes one byte; that is what is saved.")
        raise Wrong(f"{name}-not-{wanted}", cause, wanted, str(value.dtype))


def expect_scale_form(s: Script, name: str, shape: tuple[int, ...]) -> None:
    """Raise Wrong unless there is one float32 scale per head."""
    n, heads, dim = shape
    got = np.shape(s.names[name])
    if got != (1, heads, 1):
        codes: dict[tuple[int, ...], tuple[str, str]] = {
            (n, heads, 1): (
                "scale-per-token",
                tr("Each token has its own scale. One is asked for per head."),
            ),
            (1, heads, dim): (
                "scale-per-channel",
                tr("Each channel has its own scale. One is asked for per head."),
            ),
        }
        if np.size(s.names[name]) == 1:
            codes[got] = (
                "one-scale-for-all-heads",
                one_scale_cause(),
            )
        unknown = (
            "scale-wrong-shape",
            tr("scale must have one number per head; `keepdims=True` keeps the axes."),
        )
        code, cause = codes.get(got, unknown)
        raise Wrong(code, cause, f"scale.shape == (1, {heads}, 1)", str(got))
    expect_form(s, name, (1, heads, 1), np.float32)


def expect_length(s: Script, n: int, block_size: int) -> None:
    """Raise Wrong unless the cache counts n tokens."""
    got = s.do("len(cache)")
    if got == n:
        return
    code, cause = "wrong-length", tr("`len(cache)` is the number of tokens appended.")
    if block_size != 16 and got == n // block_size * 16 + n % block_size:
        code, cause = (
            "block-size-hard-coded",
            tr(
                "`len(cache)` counts 16 tokens for each block; the blocks of this "
                "cache hold {size}.",
                size=block_size,
            ),
        )
    elif n and isinstance(got, int) and got > n:
        code, cause = _twice()
    raise Wrong(code, cause, f"len(cache) == {n}", show(got))


def _pairs_cause() -> str:
    return tr("`cache.blocks` holds a pair `(codes, scale)` for each full block.")


def _twice() -> tuple[str, str]:
    return "tail-not-emptied", tr(
        "Tokens are counted twice: they are in the block that became full, and still "
        "in the tail. Empty the tail when its block is coded."
    )


def expect_blocks(s: Script, n: int) -> None:
    """Raise Wrong unless the cache has coded n blocks."""
    got = len(s.do("cache.blocks"))
    if got == n:
        return
    code, cause = (
        "wrong-number-of-blocks",
        _pairs_cause(),
    )
    if got == n - 1 and n:
        code, cause = (
            "coded-late",
            tr(
                "The last block is full and not coded yet. Code it in the append that "
                "fills it: there may be no other."
            ),
        )
    if not got:
        code, cause = (
            "never-coded",
            tr(
                "A block is full and `cache.blocks` is empty. Right after the "
                "append that fills it, quantise it and add `(codes, scale)` to "
                "`cache.blocks`."
            ),
        )
    if got > n:
        code, cause = (
            "coded-early",
            tr(
                "A block was coded before it was full. Until then its tokens stay "
                "exact: the next one may be larger and change the scale."
            ),
        )
    raise Wrong(code, cause, f"len(cache.blocks) == {n}", show(got))


def expect_block(s: Script, i: int, block_size: int) -> None:
    """Raise Wrong unless block i is a pair of codes and scales of the right form."""
    block = s.ask(f"cache.blocks[{i}]")
    if not isinstance(block, tuple | list) or len(block) != 2:
        cause = _pairs_cause()
        raise Wrong("not-a-pair", cause, "codes, scale", show(block))
    s.do(f"codes, scale = cache.blocks[{i}]")
    expect_form(s, "codes", (block_size, HEADS, DIM), np.int8)
    expect_scale_form(s, "scale", (block_size, HEADS, DIM))


def _read(s: Script, n: int) -> Array:
    s.do("read = cache.read()")
    got = np.shape(s.names["read"])
    if got != (n, HEADS, DIM):
        code, cause = "read-wrong-shape", tr("{name} has the wrong shape.", name="read")
        if got[1:] == (HEADS, DIM):
            code, cause = (
                ("tail-not-read", tr("Tokens are missing: read blocks and tail."))
                if got[0] < n
                else _twice()
            )
        raise Wrong(code, cause, f"read.shape == {(n, HEADS, DIM)}", str(got))
    expect_form(s, "read", (n, HEADS, DIM), np.float32)
    return np.asarray(s.names["read"])


def expect_exact(s: Script, first: int, tail: Array) -> None:
    """Check that what follows token `first` reads back as it was appended."""
    read = _read(s, first + len(tail))[first:]
    if np.array_equal(read, tail):
        return
    code, cause = "tail-wrong", tr("The tail does not read as it was appended.")
    if np.abs(read - tail).max() < 0.05 * np.abs(tail).max():
        code, cause = (
            "tail-not-exact",
            tr(
                "The tokens of a block that is not full come back rounded. Keep them "
                "exact, in float32: they are quantised once, when the block is full."
            ),
        )
    raise Wrong(code, cause, *at(read, tail, "read", first))


def expect_read(s: Script, n: int, bs: int) -> None:
    """Check blocks against the error bound, the tail bit by bit."""
    K, read = s.names["K"][:n], _read(s, n)
    for start in range(0, n - n % bs, bs):
        block, got = K[start : start + bs], read[start : start + bs]
        bound = np.abs(block).max(axis=(0, 2), keepdims=True) / 254
        if (np.abs(got - block) <= bound * (1 + 1e-3)).all():
            continue
        for code, (simulate, explain) in BLOCK_FLAWS.items():
            if np.allclose(got, simulate(block, K[:bs]), rtol=1e-3, atol=1e-5):
                raise Wrong(code, explain(), *at(got, block, "read", start))
        unknown = tr(
            "A full block must come back within `amax / 254` of each head, "
            "and this one does not."
        )
        raise Wrong("error-too-large", unknown, *at(got, block, "read", start))
    if n % bs:
        expect_exact(s, n - n % bs, K[n - n % bs :])


def raise_flaw(
    flaws: dict[str, tuple[Callable[[Array], Array], Callable[[], str]]],
    given: Array,
    got: Array,
    right: Array,
    unknown: str,
    name: str,
) -> None:
    """Raise Wrong with the flaw of `flaws` that gives the numbers of `got`."""
    for code, (simulate, explain) in flaws.items():
        if np.allclose(got, simulate(given), rtol=1e-3):
            raise Wrong(code, explain(), *at(got, right, name))
    cause = tr("The formulas stand in the exercise: scale, then codes.")
    raise Wrong(unknown, cause, *at(got, right, name))


def at(got: Array, right: Array, name: str, first: int = 0) -> tuple[str, str, str]:
    """Return expected, got and place of the largest difference."""
    got, right = np.asarray(got, float), np.asarray(right, float)
    difference = np.nan_to_num(np.abs(got - right), nan=np.inf)
    t, h, i = np.unravel_index(difference.argmax(), right.shape)
    place = tr("token {token}, head {head}", token=int(t) + first, head=int(h))
    expected = f"{name}[{t + first}, {h}, {i}] == {right[t, h, i]:.5g}"
    return expected, f"{got[t, h, i]:.5g}", place
