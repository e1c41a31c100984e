"""Exercise 09.6: the inner loop of a Triton kernel."""

from __future__ import annotations

from paged_kv.checks.cases.kernel_runs import KERNEL_CASES
from paged_kv.checks.exercise import Asked, Exercise
from paged_kv.checks.script import Script, Wrong
from paged_kv.messages import tr


def _explain(error: BaseException, _: Script) -> Wrong | None:
    """Say what Triton means where it speaks of its own insides."""
    text = str(error)
    if "reduction dimensions" in text:
        return Wrong(
            "dot-shapes",
            tr(
                "`tl.dot(a, b)` multiplies (M, K) by (K, N). q is (GROUP, HEAD_DIM) "
                "and a block of K is (BLOCK_SIZE, HEAD_DIM): turn it with `tl.trans`. "
                "P is (GROUP, BLOCK_SIZE) and a block of V (BLOCK_SIZE, HEAD_DIM): "
                "they fit as they are, P first."
            ),
        )
    if "make_shape_compatible" in text:
        return Wrong(
            "shapes-incompatible",
            tr(
                "Two shapes do not broadcast: {error}. A value per row needs "
                "`[:, None]`, a value per column `[None, :]`.",
                error=text.rpartition(": ")[2],
            ),
        )
    if "to_tensor" in text or "unsupported operand type(s) for @" in text:
        return Wrong(
            "not-tritons-language",
            tr(
                "A kernel speaks Triton's language only: `tl.exp`, `tl.maximum`, "
                "`tl.dot`, not numpy's functions and not `@`."
            ),
        )
    return None


def _hints() -> tuple[str, str, str]:
    return (
        tr(
            "The body of the loop is that of exercise 09.2. What is new is where K and "
            "V come from: you compute the addresses of a whole block at once, as an "
            "array of offsets.\n\n"
            "Begin with one load: the physical number of logical block i."
        ),
        tr(
            "See the cache as rows of `HEAD_DIM` numbers. Token n of the cache (block "
            "· BLOCK_SIZE + slot) has `N_KV_HEADS` rows, one per head. So the rows of "
            "this block and head are an array of length BLOCK_SIZE, and "
            "`rows[:, None] * HEAD_DIM + d[None, :]` are the offsets.\n\n"
            "Slots that do not count: not loaded (`mask=`, `other=0`), and their "
            "scores `-inf`."
        ),
        tr(
            "The body, with gaps:\n\n"
            "    block = tl.load(...).to(tl.int64)\n"
            "    valid = ...                      # (BLOCK_SIZE,) of bool\n"
            "    offsets = ...                    # (BLOCK_SIZE, HEAD_DIM)\n"
            "    k = tl.load(k_ptr + offsets, mask=..., other=0)\n"
            "    S = ...                          # (GROUP, BLOCK_SIZE)\n"
            "    m_new = tl.maximum(m, tl.max(S, 1))\n"
            "    # alpha, P, l; load v; acc; m: as in 09.2"
        ),
    )


PAGED_KERNEL = Exercise(
    id="09.6",
    title=lambda: tr("the inner loop of a Triton kernel"),
    asked=(Asked("paged_decode"),),
    cases=KERNEL_CASES,
    hints=_hints,
    not_verified=lambda: (
        tr("speed: the interpreter runs a kernel in Python"),
        tr("a compiled run: `tl.dot` wants at least 16 rows on a GPU"),
    ),
    explain=_explain,
    optional=True,
)
