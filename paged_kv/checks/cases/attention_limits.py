"""Attention: numbers and inputs at the edge, and memory."""

from __future__ import annotations

import numpy as np

from paged_kv.checks import lessons
from paged_kv.checks.cases.attention_flaws import Problem, attend
from paged_kv.checks.cases.attention_results import (
    DIM,
    SCALE,
    expect_right,
    make_sequence,
    random_arrays,
    result_of,
)
from paged_kv.checks.exercise import Case
from paged_kv.checks.memory import peak_bytes
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr


def large_scores(s: Script) -> None:
    """Check scores of several hundred, which overflow without the maximum."""
    for sign, code, cause in (
        (
            "+",
            "maximum-not-subtracted",
            tr(
                "exp of a score of several hundred is infinite. Subtract the maximum "
                "before exp."
            ),
        ),
        (
            "-",
            "maximum-starts-at-zero",
            tr(
                "All scores are negative here. A running maximum that starts at 0 "
                "stays there, and every exp is 0. Start at `-inf`."
            ),
        ),
    ):
        s.restart()
        make_sequence(s, 5, n_kv_heads=3, length=10)
        # Float32 holds the scores exactly: their rounding is not what is looked at.
        s.do("K = np.round(4 * np.abs(K)) / 4 + 9")
        s.do('seq.free(); seq = Sequence(pool, "b"); slots = seq.extend(K, V)')
        random_arrays(s, "q", 6, DIM)
        s.do(f"q = {sign}(np.round(np.abs(q)) + 20)")
        _expect_finite(s, "reference_attention(K[0], V[0], q, 1.0)", code, cause)
        _expect_finite(s, "paged_attention(pool, seq, 0, q, 1.0)", code, cause)


def spread_scores(s: Script) -> None:
    """Check scores hundreds apart, in one block and from block to block.

    Alike for all heads: to subtract one maximum from all of them is no mistake.
    """
    make_sequence(s, 11, n_kv_heads=3, length=18)
    s.do("K[:] = K[:, :, :1]")
    s.do('seq.free(); seq = Sequence(pool, "b"); slots = seq.extend(K, V)')
    s.do(f"q = 150 * rng.standard_normal({DIM}, dtype=np.float32)")
    s.do("q = np.tile(q, (6, 1))")
    code = "not-the-largest-score"
    cause = tr(
        "The scores lie hundreds apart here. Either what is subtracted before exp is "
        "not the largest so far, and exp overflows: `m_new` is the larger of m and the "
        "largest score of the block, over its tokens. Or a block is divided by its own "
        "sum, which is 0 far below the maximum: divide once, at the end."
    )
    _expect_finite(s, "reference_attention(K[0], V[0], q, 1.0)", code, cause)
    _expect_finite(s, "paged_attention(pool, seq, 0, q, 1.0)", code, cause)


def _expect_finite(s: Script, call: str, code: str, cause: str) -> None:
    s.do(f"out = {call}")
    K, V = s.names["K"], s.names["V"]
    p = Problem(K[:, None], V[:, None], [0], K.shape[1], 0, s.names["q"], 1.0)
    out = result_of(s, p)
    if not np.isfinite(out).all():
        raise Wrong(code, cause, tr("finite numbers"), show(out))
    if not np.allclose(out, attend(p), rtol=1e-3, atol=1e-3):
        raise Wrong(code, cause, show(attend(p)), show(out))


def nan_in_empty_slots(s: Script) -> None:
    """Check that NaN beyond the length does not reach the result."""
    make_sequence(s, 6, n_kv_heads=3, length=5, junk="np.nan, np.nan")
    random_arrays(s, "q", 6, DIM)
    s.do(f"out = paged_attention(pool, seq, 1, q, {SCALE})")
    if np.isnan(np.asarray(s.names["out"], float)).any():
        raise Wrong(
            "nan-from-empty-slots",
            tr(
                "The slots beyond `len(seq)` hold NaN here. They got the weight 0, but "
                "0 · NaN is NaN: leave those slots out of K and V, do not only mask "
                "their scores."
            ),
            tr("finite numbers"),
            show(s.names["out"]),
        )
    expect_right(s, 1)


def narrow_storage(s: Script) -> None:
    """Check that float16 storage is computed with in float32."""
    make_sequence(s, 7, n_kv_heads=3, length=10, dtype="float16")
    random_arrays(s, "q", 6, DIM)
    try:
        expect_right(s, 1)
    except Wrong as wrong:
        if wrong.code not in ("wrong-numbers", "result-not-float32"):
            raise
        raise Wrong(
            "computed-in-float16",
            tr(
                "The pool stores float16, and the computation was done in float16 too. "
                "Make m, l and acc float32, whatever `pool.dtype` is."
            ),
            wrong.expected,
            wrong.got,
            wrong.where,
        ) from None


def float32_result(s: Script) -> None:
    """Check that a float64 scale does not turn everything into float64."""
    make_sequence(s, 9, n_kv_heads=3, length=5)
    random_arrays(s, "q", 6, DIM)
    for call in (
        "reference_attention(K[0], V[0], q, np.float64(0.2))",
        "paged_attention(pool, seq, 0, q, np.float64(0.2))",
    ):
        s.do(f"out = {call}")
        plain = call.replace("np.float64(0.2)", "0.2")
        s.expect(
            "np.asarray(out).dtype",
            np.dtype(np.float32),
            "result-not-float32",
            tr(
                "The result must be float32. A numpy number of type float64, such as "
                "this scale, turns every float32 array it meets into float64: take "
                "`float(scale)`."
            )
            if s.ask(f"np.asarray({plain}).dtype") == np.float32
            else tr(
                "The result must be float32, whatever type scale has. `np.zeros` and "
                "`np.full` make float64 unless they are given a dtype."
            ),
        )


def refusals(s: Script) -> None:
    """Check that an empty sequence and a q that does not fit are refused."""
    s.do("rng = np.random.default_rng(10)")
    s.do(f"pool = BlockPool(4, 1, 3, {DIM})")
    s.do('seq = Sequence(pool, "empty")')
    random_arrays(s, "q", 6, DIM)
    out, error = s.attempt("paged_attention(pool, seq, 0, q, 0.2)", tr("no tokens"))
    if error is None:
        raise Wrong(
            "empty-sequence-accepted",
            tr(
                "The sequence has no tokens, there is nothing to average, and a result "
                "was returned. Raise ValueError."
            ),
            "ValueError",
            show(out),
        )
    s.do("_ = seq.extend(*rng.standard_normal((2, 1, 5, 3, 8)))")
    # The last one has as many numbers as 6 heads: a reshape alone does not notice.
    for shape in ((5, DIM), (6, DIM - 1), (3, 2 * DIM)):
        random_arrays(s, "q", *shape)
        out, error = s.attempt(
            "paged_attention(pool, seq, 0, q, 0.2)", tr("q does not fit")
        )
        if error is None:
            raise Wrong(
                "wrong-q-accepted",
                tr(
                    "q of shape {shape} does not fit 3 KV heads of {dim} numbers, and "
                    "a result was returned. Raise ValueError.",
                    shape=shape,
                    dim=DIM,
                ),
                "ValueError",
                show(out),
            )


def block_by_block(s: Script) -> None:
    """Check that the whole K of a long sequence is never in one array."""
    # Small enough for a loop over single numbers: speed is not asked for.
    n_tokens, block_size, n_kv_heads, dim = 3072, 16, 2, 256
    s.do("rng = np.random.default_rng(8)")
    s.do(f"pool = BlockPool({n_tokens // block_size}, 1, {n_kv_heads}, {dim})")
    s.do('seq = Sequence(pool, "long")')
    s.do(f"slots = seq.reserve({n_tokens})")
    s.do("pool.k[:] = pool.v[:] = rng.random(pool.k.shape, dtype=np.float32)")
    s.do(f"q = rng.random(({n_kv_heads}, {dim}), dtype=np.float32)")
    line = "out = paged_attention(pool, seq, 0, q, 0.01)"
    peak = peak_bytes(lambda: s.do(line))
    whole = s.names["pool"].k.nbytes
    if peak > 0.9 * whole:
        raise Wrong(
            "whole-k-gathered",
            tr(
                "K of the whole sequence was put into one array. A sequence can be "
                "larger than the memory that is left: read a block, use it, go on to "
                "the next."
            ),
            tr(
                "a few blocks at a time, {size} KiB each",
                size=whole * block_size // n_tokens >> 10,
            ),
            tr("{size} MiB allocated at one time", size=peak >> 20),
        )


LIMIT_CASES = (
    Case(
        lambda: tr("scores of several hundred, positive and negative"),
        lessons.online_softmax,
        large_scores,
    ),
    Case(
        lambda: tr("scores that lie hundreds apart"),
        lessons.online_softmax,
        spread_scores,
    ),
    Case(
        lambda: tr("slots beyond the length are not read"),
        lessons.slots,
        nan_in_empty_slots,
    ),
    Case(
        lambda: tr("float16 storage is computed with in float32"),
        lessons.slots,
        narrow_storage,
    ),
    Case(
        lambda: tr("the result is float32, whatever type scale has"),
        lessons.slots,
        float32_result,
    ),
    Case(
        lambda: tr("an empty sequence and a q that does not fit are refused"),
        lessons.slots,
        refusals,
    ),
    Case(
        lambda: tr("K of the whole sequence is never in one array"),
        lessons.slots,
        block_by_block,
    ),
)
