"""Attention: the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.checks import lessons
from paged_kv.checks.cases.attention_causes import CAUSES, lesson_of
from paged_kv.checks.cases.attention_flaws import Problem, attend, name_flaw
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr
from paged_kv.pool import BlockPool

Array = NDArray[Any]


HEADS = ((6, 3), (4, 2), (8, 1), (3, 3))  # query and KV heads
DIM = 8
SCALE = 0.2  # not 1 / sqrt(8): the argument must be used


def contiguous(s: Script) -> None:
    """Check reference_attention for some lengths and numbers of heads."""
    for seed, (n_heads, n_kv_heads) in enumerate(HEADS):
        for length in (7, 1):
            s.restart()
            s.do(f"rng = np.random.default_rng({seed})")
            random_arrays(s, "K, V", 2, length, n_kv_heads, DIM)
            random_arrays(s, "q", n_heads, DIM)
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
            s.restart()
            make_sequence(s, seed, n_kv_heads, length)
            random_arrays(s, "q", n_heads, DIM)
            for layer in (2, 0, 1):
                expect_right(s, layer)


def paged_16(s: Script) -> None:
    """Check the exercise's own numbers: 40 tokens in blocks of 16, 4 and 2 heads."""
    make_sequence(s, 40, n_kv_heads=2, length=40, block_size=16)
    random_arrays(s, "q", 4, DIM)
    expect_right(s, 0)


def make_sequence(
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
    s.do(f"pool.k[:], pool.v[:] = {junk}", tr("what others left there"))
    s.do("blocks = rng.permutation([pool.allocate() for _ in range(9)])")
    s.do("for block in blocks: pool.release(block)")
    s.do('seq = Sequence(pool, "a")')
    random_arrays(s, "K, V", 2, 3, length, n_kv_heads, DIM)
    s.do("slots = seq.extend(K, V)")


def random_arrays(s: Script, names: str, *shape: int) -> None:
    """Make arrays of one shape: `names` is "q", or "K, V" with 2 in front."""
    s.do(f"{names} = rng.standard_normal({shape}, dtype=np.float32)")


def expect_right(s: Script, layer: int) -> None:
    """Call paged_attention; raise Wrong when it errs or changes anything."""
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
                "Your code changes `{name}`, which belongs to the caller. Work on a "
                "copy: `x = x * 2` in place of `x *= 2`.",
                name=name,
            ),
            show(before),
            show(s.names[name]),
        )


def _expect_result(s: Script, p: Problem, right: Array | None = None) -> None:
    right = attend(p) if right is None else right
    out = result_of(s, p)
    if np.allclose(out, right, rtol=1e-5, atol=1e-5):
        return
    flaw = name_flaw(p, out, right)
    if flaw:
        cause = CAUSES[flaw]()
    elif np.isnan(out).any():
        flaw = "nan-in-result"
        cause = tr(
            "NaN comes from infinity minus infinity, or times 0. m is `-inf` before "
            "the first block: `exp(m - m_new)` and `exp(S - m_new)` are finite then, "
            "`exp(m_new - m)` and `exp(S - m)` are not."
        )
    else:
        cause = tr("The numbers differ, and not in a known way.")
    difference = np.where(np.isfinite(out), np.abs(out - right), np.inf)
    heads = np.flatnonzero(difference.max(axis=1) > 1e-5).tolist()
    h, i = np.unravel_index(difference.argmax(), out.shape)
    raise Wrong(
        flaw or "wrong-numbers",
        cause,
        f"out[{h}, {i}] == {right[h, i]:.5f}",
        f"{out[h, i]:.5f}",
        tr("wrong query heads: {heads}", heads=", ".join(map(str, heads))),
        lesson_of(flaw or ""),
    )


def result_of(s: Script, p: Problem) -> Array:
    """Return `out` in float64; raise Wrong when it cannot be a result."""
    out = s.names["out"]
    if out is None:
        raise Wrong(
            "returns-none",
            tr("The function returned nothing: add return."),
            f"out.shape == {p.q.shape}",
            "None",
        )
    if isinstance(out, list | tuple):
        cause = tr("The result must be one array of the shape of q.")
        raise Wrong(
            "result-not-array", cause, f"out.shape == {p.q.shape}", type(out).__name__
        )
    array = np.asarray(out)
    if array.shape != p.q.shape:
        raise Wrong(
            "wrong-shape",
            tr("The result must have the shape of q, `(n_heads, head_dim)`."),
            f"out.shape == {p.q.shape}",
            str(array.shape),
        )
    if array.dtype.kind != "f":
        cause = tr("The result must hold real numbers of a float type.")
        raise Wrong("wrong-dtype", cause, "float32", str(array.dtype))
    if array.itemsize < 4:
        cause = tr("The result is rounded to three digits: give it back in float32.")
        raise Wrong("result-not-float32", cause, "float32", str(array.dtype))
    return array.astype(float)


RESULT_CASES = (
    Case(
        lambda: tr("`reference_attention` is the textbook's, for any grouping"),
        lessons.online_softmax,
        contiguous,
    ),
    Case(
        lambda: tr("`paged_attention` at block boundaries, in all layers and heads"),
        lessons.online_softmax,
        paged,
    ),
    Case(
        lambda: tr("40 tokens in blocks of 16, 4 query and 2 KV heads"),
        lessons.online_softmax,
        paged_16,
    ),
)
