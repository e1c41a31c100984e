"""Exercise 09.2: attention over pages, and over contiguous K and V."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.checks import lessons
from paged_kv.checks.exercise import Asked, Case, Exercise
from paged_kv.checks.flaws import FLAWS, Problem, attend, name_flaw
from paged_kv.checks.memory import peak_bytes
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence

Array = NDArray[Any]
HEADS = ((6, 3), (4, 2), (8, 1), (3, 3))  # query and KV heads
DIM = 8
SCALE = 0.2  # not 1 / sqrt(8): the argument must be used


def contiguous(s: Script) -> None:
    """Check reference_attention for some lengths and numbers of heads."""
    for seed, (n_heads, n_kv_heads) in enumerate(HEADS):
        for length in (7, 1):
            s.lines.clear()
            s.do(f"rng = np.random.default_rng({seed})")
            _random(s, "K, V", 2, length, n_kv_heads, DIM)
            _random(s, "q", n_heads, DIM)
            _call_reference(s)


def _call_reference(s: Script) -> None:
    K, V = s.names["K"].copy(), s.names["V"].copy()
    call = f"out = reference_attention(K, V, q, {SCALE})"
    q = _call(s, call)
    p = Problem(K[None, None], V[None, None], [0], len(K), 0, q, SCALE)
    _expect_unchanged(s, "K", K)
    _expect_unchanged(s, "V", V)
    _expect_result(s, p)


def paged(s: Script) -> None:
    """Check paged_attention around the block boundaries, layers and heads mixed."""
    for seed, (n_heads, n_kv_heads) in enumerate(HEADS):
        for length in (18, 10, 1, 3, 4, 5, 8):
            s.lines.clear()
            _sequence(s, seed, n_kv_heads, length)
            _random(s, "q", n_heads, DIM)
            for layer in (1, 0, 2):
                _call_paged(s, layer)


def paged_16(s: Script) -> None:
    """Check the exercise's own numbers: 40 tokens in blocks of 16, 4 and 2 heads."""
    _sequence(s, 40, n_kv_heads=2, length=40, block_size=16)
    _random(s, "q", 4, DIM)
    _call_paged(s, 0)


def _sequence(
    s: Script,
    seed: int,
    n_kv_heads: int,
    length: int,
    block_size: int = 4,
    dtype: str = "float32",
    junk: str = "rng.standard_normal((2, *pool.k.shape))",
) -> None:
    """Make a pool whose blocks were in use before, and a sequence in some of them."""
    s.do(f"rng = np.random.default_rng({seed})")
    s.do(
        f"pool = BlockPool(9, 3, {n_kv_heads}, {DIM}, block_size={block_size}, "
        f"dtype=np.{dtype})"
    )
    s.do(f"pool.k[:], pool.v[:] = {junk}  # what others left there")
    s.do("blocks = rng.permutation([pool.allocate() for _ in range(9)])")
    s.do("for block in blocks: pool.release(block)")
    s.do('seq = Sequence(pool, "a")')
    _random(s, "K, V", 2, 3, length, n_kv_heads, DIM)
    s.do("slots = seq.extend(K, V)")


def _random(s: Script, names: str, *shape: int, factor: str = "") -> None:
    s.do(f"{names} = rng.standard_normal({shape}, dtype=np.float32){factor}")


def _call_paged(s: Script, layer: int) -> None:
    pool, seq = s.names["pool"], s.names["seq"]
    k, v, table, length = pool.k.copy(), pool.v.copy(), [*seq.block_table], len(seq)
    q = _call(s, f"out = paged_attention(pool, seq, {layer}, q, {SCALE})")
    _expect_pool_unchanged(pool, k, v)
    if [*seq.block_table] != table or len(seq) != length:
        raise Wrong(
            "sequence-modified",
            tr("Attention only reads, and it changed the sequence."),
            f"seq.block_table == {table}, len(seq) == {length}",
            f"{show(seq.block_table)}, {show(len(seq))}",
        )
    # Right is what was appended, not what the pool holds: a broken write would pass.
    K, V = (s.names[name].astype(pool.dtype)[layer][None, None] for name in "KV")
    right = attend(Problem(K, V, [0], length, 0, q, SCALE))
    _expect_result(s, Problem(k, v, table, length, layer, q, SCALE), right)


def _expect_pool_unchanged(pool: BlockPool, k: Array, v: Array) -> None:
    for name, now, before in (("k", pool.k, k), ("v", pool.v, v)):
        if _identical(now, before):
            continue
        changed = (now != before) & ~(np.isnan(now) & np.isnan(before))
        layer, block, slot, *rest = np.argwhere(changed)[0].tolist()
        index = ", ".join(map(str, (layer, block, slot, *rest)))
        raise Wrong(
            "pool-modified",
            tr("Attention only reads, and it changed numbers in the pool."),
            f"pool.{name}[{index}] == {before[layer, block, slot, *rest]:.5f}",
            f"{now[layer, block, slot, *rest]:.5f}",
            tr("block {block}, slot {slot}", block=block, slot=slot),
        )


def _call(s: Script, line: str) -> Array:
    """Run `line` and return q as it was before."""
    q: Array = s.names["q"].copy()
    s.do(line)
    _expect_unchanged(s, "q", q)
    return q


def _identical(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b, equal_nan=True))


def _expect_unchanged(s: Script, name: str, before: Array) -> None:
    if not _identical(s.names[name], before):
        raise Wrong(
            "input-modified",
            tr(
                "Your code changes {name}, which belongs to the caller. Work on a "
                "copy: x = x * 2 in place of x *= 2.",
                name=name,
            ),
            show(before),
            show(s.names[name]),
        )


def _expect_result(s: Script, p: Problem, right: Array | None = None) -> None:
    right = attend(p) if right is None else right
    out = _result(s, p)
    if np.allclose(out, right, rtol=1e-5, atol=1e-5):
        return
    flaw = name_flaw(p, out, right)
    cause = FLAWS[flaw]() if flaw else tr("The numbers differ, and not in a known way.")
    difference = np.abs(out - right)
    heads = [h for h in range(len(right)) if not difference[h].max() <= 1e-5]
    h, i = np.unravel_index(np.nanargmax(np.nan_to_num(difference, nan=9.9)), out.shape)
    raise Wrong(
        flaw or "wrong-numbers",
        cause,
        f"out[{h}, {i}] == {right[h, i]:.5f}",
        f"{out[h, i]:.5f}",
        tr("wrong query heads: {heads}", heads=", ".join(map(str, heads))),
    )


def _result(s: Script, p: Problem) -> Array:
    out = s.names["out"]
    if out is None:
        raise Wrong(
            "returns-none",
            tr("The function returned nothing: add return."),
            f"out.shape == {p.q.shape}",
            "None",
        )
    array = np.asarray(out)
    if array.shape != p.q.shape:
        raise Wrong(
            "wrong-shape",
            tr("The result must have the shape of q, (n_heads, head_dim)."),
            f"out.shape == {p.q.shape}",
            str(array.shape),
        )
    if array.dtype.kind != "f":
        cause = tr("The result must hold real numbers of a float type.")
        raise Wrong("wrong-dtype", cause, "float32", str(array.dtype))
    return array.astype(float)


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
                "stays there, and every exp is 0. Start at -inf."
            ),
        ),
    ):
        s.lines.clear()
        _sequence(s, 5, n_kv_heads=3, length=10)
        s.do("K, V = np.abs(K) + 9, V")
        s.do('seq.free(); seq = Sequence(pool, "b"); slots = seq.extend(K, V)')
        s.do(f"q = {sign}(np.abs(rng.standard_normal((6, {DIM}))) + 20)")
        _expect_finite(s, "reference_attention(K[0], V[0], q, 1.0)", code, cause)
        _expect_finite(s, "paged_attention(pool, seq, 0, q, 1.0)", code, cause)


def _expect_finite(s: Script, call: str, code: str, cause: str) -> None:
    s.do(f"out = {call}")
    K, V = s.names["K"], s.names["V"]
    p = Problem(K[:, None], V[:, None], [0], K.shape[1], 0, s.names["q"], 1.0)
    out = _result(s, p)
    if not np.isfinite(out).all():
        raise Wrong(code, cause, tr("finite numbers"), show(out))
    if not np.allclose(out, attend(p), rtol=1e-3, atol=1e-3):
        raise Wrong(code, cause, show(attend(p)), show(out))


def nan_in_empty_slots(s: Script) -> None:
    """Check that NaN beyond the length does not reach the result."""
    _sequence(s, 6, n_kv_heads=3, length=5, junk="np.nan, np.nan")
    _random(s, "q", 6, DIM)
    s.do(f"out = paged_attention(pool, seq, 1, q, {SCALE})")
    if np.isnan(np.asarray(s.names["out"], float)).any():
        raise Wrong(
            "nan-from-empty-slots",
            tr(
                "The slots beyond len(seq) hold NaN here. They got the weight 0, but "
                "0 · NaN is NaN: leave those slots out of K and V, do not only mask "
                "their scores."
            ),
            tr("finite numbers"),
            show(s.names["out"]),
        )
    _call_paged(s, 1)


def narrow_storage(s: Script) -> None:
    """Check that float16 storage is computed with in float32."""
    _sequence(s, 7, n_kv_heads=3, length=10, dtype="float16")
    _random(s, "q", 6, DIM)
    try:
        _call_paged(s, 1)
    except Wrong as wrong:
        if wrong.code != "wrong-numbers":
            raise
        raise Wrong(
            "computed-in-float16",
            tr(
                "The pool stores float16, and the computation was done in float16 too. "
                "Make m, l and acc float32, whatever pool.dtype is."
            ),
            wrong.expected,
            wrong.got,
            wrong.where,
        ) from None


def float32_result(s: Script) -> None:
    """Check that a float64 scale does not turn everything into float64."""
    _sequence(s, 9, n_kv_heads=3, length=5)
    _random(s, "q", 6, DIM)
    for call in (
        "reference_attention(K[0], V[0], q, np.float64(0.2))",
        "paged_attention(pool, seq, 0, q, np.float64(0.2))",
    ):
        s.do(f"out = {call}")
        s.expect(
            "np.asarray(out).dtype",
            np.dtype(np.float32),
            "result-not-float32",
            tr(
                "The result must be float32. A numpy number of type float64, such as "
                "this scale, turns every float32 array it meets into float64: take "
                "float(scale)."
            ),
        )


def refusals(s: Script) -> None:
    """Check that an empty sequence and a q that does not fit are refused."""
    s.do("rng = np.random.default_rng(10)")
    s.do(f"pool = BlockPool(4, 1, 3, {DIM})")
    s.do('seq = Sequence(pool, "empty")')
    _random(s, "q", 6, DIM)
    out, error = s.attempt("paged_attention(pool, seq, 0, q, 0.2)  # no tokens")
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
    for shape in ((5, DIM), (6, DIM - 1)):
        _random(s, "q", *shape)
        out, error = s.attempt("paged_attention(pool, seq, 0, q, 0.2)  # q too small")
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
    n_tokens, block_size, n_kv_heads, dim = 4096, 16, 2, 256
    s.do("rng = np.random.default_rng(8)")
    s.do(f"pool = BlockPool({n_tokens // block_size}, 1, {n_kv_heads}, {dim})")
    s.do('seq = Sequence(pool, "long")')
    s.do(f"slots = seq.reserve({n_tokens})")
    s.do("pool.k[:] = pool.v[:] = rng.random(pool.k.shape, dtype=np.float32)")
    s.do(f"q = rng.random((4, {dim}), dtype=np.float32)")
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
            tr("a few blocks at a time, {size} KiB each", size=whole >> 18),
            tr("{size} MiB allocated at one time", size=peak >> 20),
        )


def _hints() -> tuple[str, str, str]:
    return (
        tr(
            "Begin with reference_attention: it is the definition, softmax over the "
            "tokens and a weighted sum of V. Then ask what has to be remembered so "
            "that the tokens may come in portions."
        ),
        tr(
            "For each query head three things are remembered between blocks: the "
            "largest score so far (m), the sum of exp(score - m) (l), and the weighted "
            "sum of V (acc). When m grows, l and acc are relative to the old m.\n\n"
            "Block i of the sequence holds min(block_size, len(seq) - i * block_size) "
            "tokens. Heads are grouped by q.reshape(n_kv_heads, group, head_dim)."
        ),
        tr(
            "The loop, with the middle left for you:\n\n"
            "    for i, block in enumerate(seq.block_table):\n"
            "        n = min(pool.block_size, len(seq) - i * pool.block_size)\n"
            "        K = pool.k[layer, block, :n]     # V likewise\n"
            "        S = ...            # (n_kv_heads, group, n), times scale\n"
            "        m_new = np.maximum(m, S.max(axis=-1, keepdims=True))\n"
            "        # alpha, P, then l and acc; the formulas stand in the lesson\n"
            "        m = m_new\n\n"
            "After the loop divide once, and give back the shape of q."
        ),
    )


ATTENTION = Exercise(
    id="09.2",
    title=lambda: tr("attention over pages"),
    asked=(Asked("paged_attention"), Asked("reference_attention")),
    given={"BlockPool": BlockPool, "Sequence": Sequence},
    cases=(
        Case(
            lambda: tr("reference_attention is the textbook's, for any grouping"),
            lessons.attention,
            contiguous,
        ),
        Case(
            lambda: tr("paged_attention at block boundaries, in all layers and heads"),
            lessons.online_softmax,
            paged,
        ),
        Case(
            lambda: tr("40 tokens in blocks of 16, 4 query and 2 KV heads"),
            lessons.online_softmax,
            paged_16,
        ),
        Case(
            lambda: tr("scores of several hundred, positive and negative"),
            lessons.online_softmax,
            large_scores,
        ),
        Case(
            lambda: tr("slots beyond the length are not read"),
            lessons.attention,
            nan_in_empty_slots,
        ),
        Case(
            lambda: tr("float16 storage is computed with in float32"),
            lessons.attention,
            narrow_storage,
        ),
        Case(
            lambda: tr("the result is float32, whatever type scale has"),
            lessons.attention,
            float32_result,
        ),
        Case(
            lambda: tr("an empty sequence and a q that does not fit are refused"),
            lessons.attention,
            refusals,
        ),
        Case(
            lambda: tr("K of the whole sequence is never in one array"),
            lessons.attention,
            block_by_block,
        ),
    ),
    hints=_hints,
    not_verified=lambda: (
        tr("speed"),
        tr("more than one query per sequence (prefill)"),
    ),
)
