"""The softmax of a block and from block to block, right or with a flaw of `CAUSES`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def block_sums(flaw: str, P: Array, V: Array, group: int) -> tuple[Any, Array]:
    """Return a block's share of the denominator and of the weighted sum of V.

    Parameters
    ----------
    P : ndarray, shape (n_heads, tokens)
    V : ndarray, shape (tokens, n_heads, head_dim)
    group : int
        Query heads for each KV head.
    """
    added: Any = P.sum(axis=1, keepdims=True)
    if flaw == "softmax-over-heads":
        P, added = P / P.sum(axis=0), 1.0
    elif flaw == "softmax-over-group":
        sums = P.reshape(-1, group, P.shape[1]).sum(axis=1)
        P, added = P / sums.repeat(group, axis=0), 1.0
    elif flaw == "weights-averaged":
        added = P.mean(axis=1, keepdims=True)
    elif flaw == "softmax-over-everything":
        added = np.full_like(added, P.sum())
    return added, np.einsum("ht,thd->hd", P, V)


def update(
    flaw: str,
    l: Any,
    acc: Array,
    alpha: Array,
    added: Any,
    weighted: Array,
) -> tuple[Any, Array]:
    """Return the denominator and the accumulator after a block."""
    if flaw in ("no-rescale", "softmax-over-heads", "softmax-over-group"):
        return l + added, acc + weighted
    if flaw == "accumulator-not-rescaled":
        return l * alpha + added, acc + weighted
    if flaw == "denominator-not-rescaled":
        return l + added, acc * alpha + weighted
    if flaw == "rescaled-twice":
        return l * alpha**2 + added, acc * alpha**2 + weighted
    if flaw == "weights-normalised-in-block":
        return l * alpha + 1, acc * alpha + weighted / added
    if flaw == "rescale-inverted":
        first = alpha == 0
        alpha = np.where(first, 0, 1 / np.where(first, 1, alpha))
        return l * alpha + added, acc * alpha + weighted
    if flaw in ("blocks-averaged", "blocks-summed"):
        return l, acc + weighted / added
    if flaw == "last-block-only":
        return added, weighted
    if flaw == "rescaled-too-late":
        return (l + added) * alpha, (acc + weighted) * alpha
    if flaw == "denominator-rescaled-late":
        return (l + added) * alpha, acc * alpha + weighted
    if flaw == "accumulator-rescaled-late":
        return l * alpha + added, (acc + weighted) * alpha
    if flaw in ("divided-in-every-block", "divided-at-the-end-too"):
        l = l * alpha + added
        return l, (acc * alpha + weighted) / l
    return l * alpha + added, acc * alpha + weighted


def finish(flaw: str, l: Any, acc: Array, n_blocks: int) -> Array:
    """Return the result after the last block."""
    if flaw == "blocks-averaged":
        return acc / n_blocks
    if flaw == "denominators-added":
        result: Array = acc / l.sum()
        return result
    undivided = (
        *("not-normalised", "no-softmax", "divided-in-every-block", "blocks-summed"),
        *("softmax-over-heads", "softmax-over-group"),
    )
    return acc if flaw in undivided else acc / l
