"""Cases of exercise 09.5: the two functions."""

from __future__ import annotations

import numpy as np

from paged_kv.checks.cases.int8_expect import (
    at,
    expect_form,
    expect_scale_form,
    raise_flaw,
)
from paged_kv.checks.cases.int8_flaws import CODE_FLAWS, DIM, HEADS, SCALE_FLAWS
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr


def codes_and_scale(s: Script) -> None:
    """Check quantize_block_int8 on heads of very different size."""
    _random_block(s)
    _call(s, "result = quantize_block_int8(K)")
    result = s.names["result"]
    if not isinstance(result, tuple | list) or len(result) != 2:
        cause = tr("`quantize_block_int8` must return two things: `codes, scale`.")
        raise Wrong("not-a-pair", cause, "codes, scale", show(result))
    s.do("codes, scale = result")
    expect_form(s, "codes", (5, HEADS, DIM), np.int8)
    expect_scale_form(s, "scale", (5, HEADS, DIM))
    K, codes, scale = s.names["K"], s.names["codes"], s.names["scale"]
    right = np.abs(K).max(axis=(0, 2), keepdims=True) / 127
    if not np.allclose(scale, right, rtol=1e-4):
        raise_flaw(SCALE_FLAWS, K, scale, right, "wrong-scale", "scale")
    if np.abs(codes - K / right).max() > 0.5 + 1e-3:
        rounded = np.round(K / right)
        raise_flaw(CODE_FLAWS, K / right, codes, rounded, "wrong-codes", "codes")


def reads_back(s: Script) -> None:
    """Check dequantize_block_int8, and the error of the round trip."""
    _random_block(s)
    s.do("codes, scale = quantize_block_int8(K)")
    _call(s, "back = dequantize_block_int8(codes, scale)")
    expect_form(s, "back", (5, HEADS, DIM), np.float32)
    back, codes, scale = (s.names[name] for name in ("back", "codes", "scale"))
    right = codes * scale
    if not np.allclose(back, right, rtol=1e-4, atol=1e-6):
        code, cause = (
            "wrong-read",
            tr("A value that reads back is its code times the scale of its head."),
        )
        if np.allclose(back, codes):
            code, cause = "scale-not-applied", tr("The scale was not used.")
        elif np.allclose(back, codes / scale, rtol=1e-3):
            code, cause = "divided-by-scale", tr("Multiply by the scale, not divide.")
        raise Wrong(code, cause, *at(back, right, "back"))


def zeros(s: Script) -> None:
    """Check a head in which every element is 0, beside others."""
    _random_block(s)
    s.do("K[:, 1] = 0")
    s.do("back = dequantize_block_int8(*quantize_block_int8(K))")
    back = np.asarray(s.names["back"])
    if not (back[:, 1] == 0).all():
        raise Wrong(
            "zero-head-not-zero",
            tr(
                "All of head 1 is zero, so its scale is 0, and `0 / 0` is NaN. "
                "Divide by something else there: every code is 0 anyway."
            ),
            "back[:, 1] == 0",
            show(back[0, 1]),
        )


def _random_block(s: Script) -> None:
    s.do("rng = np.random.default_rng(5)")
    s.do(f"K = rng.standard_normal((5, {HEADS}, {DIM}), dtype=np.float32)")
    s.do("K[:, 1] *= 10; K[:, 2] *= 0.1; K[3, 1, 2] = -40")


def _call(s: Script, line: str) -> None:
    """Run a line and make sure that K is what it was."""
    before = s.names["K"].copy()
    s.do(line)
    if not np.array_equal(before, s.names["K"]):
        cause = tr("Your code changes K, which belongs to the caller. Work on a copy.")
        raise Wrong("input-modified", cause, show(before), show(s.names["K"]))


def _lesson() -> str:
    return tr("09.5, “The error bound”")


FUNCTION_CASES = (
    Case(
        lambda: tr("codes are int8, with one float32 scale per head"),
        _lesson,
        codes_and_scale,
    ),
    Case(
        lambda: tr("a block reads back as code · scale"),
        _lesson,
        reads_back,
    ),
    Case(lambda: tr("a head of zeros reads back as zeros"), _lesson, zeros),
)
