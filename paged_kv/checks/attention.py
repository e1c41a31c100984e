"""Exercise 09.2: attention over pages, and over contiguous K and V."""

from __future__ import annotations

from paged_kv.checks import lessons
from paged_kv.checks.cases.attention_limits import LIMIT_CASES
from paged_kv.checks.cases.attention_results import RESULT_CASES
from paged_kv.checks.exercise import Asked, Exercise
from paged_kv.checks.script import Script, Wrong
from paged_kv.messages import tr
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence


def _explain(error: BaseException, s: Script) -> Wrong | None:
    text = str(error)
    shapes = ("broadcast", "mismatch", "reshape", "not aligned", "shape")
    if isinstance(error, ValueError) and any(word in text for word in shapes):
        return _shapes_do_not_fit(s)
    if "seq" not in s.names or not isinstance(error, IndexError | ValueError):
        return None
    length, size = s.ask("len(seq)"), s.ask("pool.block_size")
    empty_block, outside = "zero-size array" in text, text == "list index out of range"
    if length % size == 0 and (empty_block or outside):
        return Wrong(
            "full-last-block",
            tr(
                "The sequence has {length} tokens in blocks of {size}: its last block "
                "is full. `len(seq) % block_size` is 0 then, and `len(seq) // "
                "block_size` already counts all blocks.",
                length=length,
                size=size,
            ),
            lesson=lessons.slots(),
        )
    if outside:
        return Wrong(
            "token-for-block",
            tr(
                "The table has an entry for each block, {n} here, and not for each "
                "token: `block_table[i]` is the block of the tokens from `i * "
                "block_size` on.",
                n=len(s.ask("seq.block_table")),
            ),
            lesson=lessons.slots(),
        )
    if "axis 0" in text or "axis 1" in text:
        return Wrong(
            "axes-out-of-order",
            tr(
                "The indices are in the wrong order. `pool.k` and `pool.v` begin with "
                "layer, block, slot: `pool.k[layer, block, :n]`."
            ),
            lesson=lessons.slots(),
        )
    return None


def _shapes_do_not_fit(s: Script) -> Wrong:
    q = s.ask("q.shape")
    K = s.ask("pool.k[0, 0].shape" if "seq" in s.names else "K.shape")
    return Wrong(
        "shapes-do-not-fit",
        tr(
            "Two arrays do not fit together. Here q has the shape {q}, and K and V "
            "{K}: tokens, KV heads, head_dim. Query heads go in groups of {group} "
            "for each KV head: `q.reshape(n_kv_heads, group, head_dim)`, and K as it "
            "is.",
            q=q,
            K=K,
            group=q[0] // K[1],
        ),
        lesson=lessons.heads(),
    )


def _hints() -> tuple[str, str, str]:
    return (
        tr(
            "Begin with `reference_attention`: it is the definition, softmax over the "
            "tokens and a weighted sum of V. Then ask what has to be remembered so "
            "that the tokens may come in portions."
        ),
        tr(
            "For each query head three things are remembered between blocks: the "
            "largest score so far (m), the sum of `exp(score - m)` (l), and the "
            "weighted sum of V (acc). When m grows, l and acc are relative to the old "
            "m.\n"
            "\n"
            "Block i of the sequence holds `min(block_size, len(seq) - i * "
            "block_size)` tokens. Heads are grouped by `q.reshape(n_kv_heads, group, "
            "head_dim)`."
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
    cases=(*RESULT_CASES, *LIMIT_CASES),
    hints=_hints,
    explain=_explain,
    not_verified=lambda: (
        tr("speed"),
        tr("more than one query per sequence (prefill)"),
        tr("the exact types of the exceptions"),
        tr("differences below 0.00001: they are rounding"),
    ),
)
