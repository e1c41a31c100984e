"""The flaws of `attention_flaws`, in words for a student."""

from __future__ import annotations

from collections.abc import Callable

from paged_kv.checks import lessons
from paged_kv.messages import tr

CAUSES: dict[str, Callable[[], str]] = {
    "table-ignored": lambda: tr(
        "It read the blocks 0, 1, 2 …: the block table was not used. Logical block i "
        "is the physical block `seq.block_table[i]`."
    ),
    "layer-ignored": lambda: tr("It read layer 0, whatever the argument layer says."),
    "layer-of-k-ignored": lambda: tr("K is read from layer 0, V from the right layer."),
    "layer-of-v-ignored": lambda: tr("V is read from layer 0, K from the right layer."),
    "k-and-v-swapped": lambda: tr(
        "K and V are swapped: the scores must come from K, the weighted sum from V."
    ),
    "values-from-k": lambda: tr("It sums up K with the weights; sum up V."),
    "scores-from-v": lambda: tr("It computes the scores from V; they come from K."),
    "heads-tiled": lambda: tr(
        "Query head h read KV head `h % n_kv_heads`. Groups are neighbours: head h "
        "reads KV head `h // (n_heads // n_kv_heads)`."
    ),
    "heads-grouped-backwards": lambda: tr(
        "q was grouped as `(group, n_kv_heads)`, and neighbouring heads belong to one "
        "group: `q.reshape(n_kv_heads, group, head_dim)`, without a transpose."
    ),
    "one-kv-head": lambda: tr("All query heads read KV head 0."),
    "head-divided-by-kv-heads": lambda: tr(
        "Query head h read KV head `h // n_kv_heads`. Divide by the size of a group: "
        "`h // (n_heads // n_kv_heads)`."
    ),
    "head-modulo-group": lambda: tr(
        "Query head h read KV head `h % group`. Groups are neighbours: head h reads KV "
        "head `h // group`."
    ),
    "heads-out-of-order": lambda: tr(
        "The numbers are right, but they stand in the rows of other heads: look at the "
        "last reshape."
    ),
    "scale-missing": lambda: tr("The scores are not multiplied by scale."),
    "scale-on-result": lambda: tr(
        "The result is multiplied by scale, and the scores are not: scale belongs "
        "inside exp."
    ),
    "scale-twice": lambda: tr("The scores are multiplied by scale twice."),
    "scale-inverted": lambda: tr("The scores are divided by scale; multiply by it."),
    "scores-negated": lambda: tr(
        "The scores have the wrong sign: exp must grow with the score."
    ),
    "scale-and-sqrt": lambda: tr(
        "The scores are multiplied by scale and divided by `sqrt(head_dim)` as well: "
        "scale is all there is."
    ),
    "scale-argument-ignored": lambda: tr(
        "It uses `1 / sqrt(head_dim)` in place of the argument scale."
    ),
    "tail-not-masked": lambda: tr(
        "All slots of the last block were read, also those beyond `len(seq)`: somebody "
        "else's old tokens. Only the first `len(seq) - i * block_size` slots count."
    ),
    "mask-is-zero": lambda: tr(
        "The scores of the empty slots were set to 0, and `exp(0)` is a weight like "
        "any other. Leave those slots out, or set their scores to `-inf`."
    ),
    "one-slot-too-many": lambda: tr("It reads one slot beyond the last token."),
    "last-token-lost": lambda: tr("The last token of the last block was left out."),
    # Before the lost blocks: a table may begin or end with block 0.
    "block-zero-skipped": lambda: tr(
        "Block 0 was left out. Its id counts as false in `if block`, and yet it is a "
        "block like any other."
    ),
    "tail-lost": lambda: tr(
        "Only full blocks were read: the tokens of the last, partial block are missing."
    ),
    "last-block-lost": lambda: tr(
        "The last block is missing. When it is full, `len(seq) % block_size` is 0, and "
        "all of its slots count."
    ),
    "mask-in-every-block": lambda: tr(
        "The mask of the last block was applied to every block; the others are full."
    ),
    "table-order-lost": lambda: tr(
        "The blocks were not read in the order of the table, so the mask fell on "
        "another block than the last."
    ),
    "first-block-only": lambda: tr("Only the first block was read."),
    "last-block-only": lambda: tr(
        "The result is that of the last block alone: the running values are set anew "
        "in every block, or `m = m_new` is missing at its end."
    ),
    "first-block-lost": lambda: tr("The first block was left out."),
    "block-size-hard-coded": lambda: tr(
        "It counts with 16 tokens per block; read `pool.block_size`."
    ),
    "no-rescale": lambda: tr(
        "When the running maximum grows, l and acc still refer to the old one. "
        "Multiply both by `exp(m - m_new)` before adding the block."
    ),
    "accumulator-not-rescaled": lambda: tr(
        "l is rescaled when the maximum grows, acc is not."
    ),
    "denominator-not-rescaled": lambda: tr(
        "acc is rescaled when the maximum grows, l is not."
    ),
    "rescaled-twice": lambda: tr(
        "l and acc are rescaled twice per block; once is right."
    ),
    "rescale-inverted": lambda: tr(
        "The factor is `exp(m_new - m)`; the right one is `exp(m - m_new)`, at most 1."
    ),
    "rescaled-too-late": lambda: tr(
        "l and acc are multiplied by `exp(m - m_new)` after the block was added. The "
        "block refers to m_new already: rescale first, then add."
    ),
    "denominator-rescaled-late": lambda: tr(
        "l is multiplied by `exp(m - m_new)` after the block was added. The block "
        "refers to m_new already: rescale first, then add."
    ),
    "accumulator-rescaled-late": lambda: tr(
        "acc is multiplied by `exp(m - m_new)` after the block was added. The block "
        "refers to m_new already: rescale first, then add."
    ),
    "divided-in-every-block": lambda: tr(
        "acc is divided by l in every block. Divide once, after the last block."
    ),
    "divided-at-the-end-too": lambda: tr(
        "acc is divided by l in every block and at the end once more. Divide once, "
        "after the last block."
    ),
    "blocks-averaged": lambda: tr(
        "Each block has a softmax of its own, and the blocks are averaged. The "
        "denominator runs over all tokens of the sequence."
    ),
    "blocks-summed": lambda: tr(
        "Each block has a softmax of its own, and the blocks are added up. The "
        "denominator runs over all tokens of the sequence."
    ),
    "weights-normalised-in-block": lambda: tr(
        "The weights of every block are divided by their sum: each block counts the "
        "same then. Divide once, after the last block."
    ),
    "not-normalised": lambda: tr("The division by the sum of the weights is missing."),
    "no-softmax": lambda: tr("The scores themselves are the weights; apply exp."),
    "softmax-over-heads": lambda: tr(
        "The softmax runs over the heads; it must run over the tokens of each head."
    ),
    "softmax-over-group": lambda: tr(
        "The softmax runs over the heads of a group; it must run over the tokens of "
        "each head, the last axis of the scores."
    ),
    "softmax-over-everything": lambda: tr(
        "The denominator adds up all heads; each head has its own."
    ),
    "weights-averaged": lambda: tr(
        "The denominator is the mean of the weights; it is their sum."
    ),
    "denominators-added": lambda: tr(
        "acc is divided by the sum of l over all heads; each head has an l of its own."
    ),
}

_HEADS = (
    *("heads-tiled", "heads-grouped-backwards", "heads-out-of-order", "one-kv-head"),
    *("head-divided-by-kv-heads", "head-modulo-group"),
)
_SLOTS = (
    *("table-ignored", "table-order-lost", "block-size-hard-coded"),
    "block-zero-skipped",
    *("tail-not-masked", "mask-is-zero", "mask-in-every-block", "one-slot-too-many"),
    *("tail-lost", "last-token-lost", "first-block-lost", "last-block-lost"),
)


def lesson_of(flaw: str) -> str:
    """Return where a flaw is taught, or "" for the place of the case that found it."""
    if flaw in _HEADS:
        return lessons.heads()
    return lessons.slots() if flaw in _SLOTS else ""
