"""What attention gives when it is computed wrongly, in each way students do it.

A wrong result is compared with the result of each of these mistakes: equal numbers name
the mistake, whatever the code looks like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.checks.cases.attention_causes import CAUSES
from paged_kv.checks.cases.attention_softmax import block_sums, finish, update

Array = NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """Attention of one query over blocks; contiguous K and V are one large block.

    Attributes
    ----------
    k, v : ndarray, shape (n_layers, num_blocks, block_size, n_kv_heads, head_dim)
        With whatever stands in the slots beyond `length`.
    table : list of int
    length, layer : int
    q : ndarray, shape (n_heads, head_dim)
    scale : float
    """

    k: Array
    v: Array
    table: list[int]
    length: int
    layer: int
    q: Array
    scale: float


def attend(p: Problem, flaw: str = "", shift: str = "head") -> Array:
    """Return the attention in float64, right or with one flaw of `CAUSES`.

    `shift` is what is subtracted from the scores before exp: the maximum of each head
    ("head"), of all heads ("all") or nothing ("none"). A right result does not depend
    on it, the results of some flaws do.
    """
    with np.errstate(all="ignore"):
        return _attend(p, flaw, shift)


def _attend(p: Problem, flaw: str, shift: str) -> Array:
    n_heads, head_dim = p.q.shape
    n_kv_heads = p.k.shape[3]
    kv_head = np.arange(n_heads) // (n_heads // n_kv_heads)
    if flaw in ("heads-tiled", "heads-grouped-backwards"):
        kv_head = np.arange(n_heads) % n_kv_heads
    elif flaw == "one-kv-head":
        kv_head = np.zeros(n_heads, int)
    elif flaw == "head-divided-by-kv-heads":
        kv_head = np.minimum(np.arange(n_heads) // n_kv_heads, n_kv_heads - 1)
    elif flaw == "head-modulo-group":
        group = n_heads // n_kv_heads
        kv_head = np.minimum(np.arange(n_heads) % group, n_kv_heads - 1)
    layer_k = 0 if flaw in ("layer-ignored", "layer-of-k-ignored") else p.layer
    layer_v = 0 if flaw in ("layer-ignored", "layer-of-v-ignored") else p.layer
    m = np.full((n_heads, 1), -np.inf)
    l = np.zeros((n_heads, 1))
    acc = np.zeros((n_heads, head_dim))
    for block, slots, is_last in _slots(p, flaw):
        K = p.k[layer_k, block, slots].astype(float)[:, kv_head]
        V = p.v[layer_v, block, slots].astype(float)[:, kv_head]
        if flaw == "k-and-v-swapped":
            K, V = V, K
        elif flaw == "values-from-k":
            V = K
        elif flaw == "scores-from-v":
            K = V
        S = np.einsum("hd,thd->ht", p.q.astype(float), K) * _scale(p, flaw)
        if flaw == "mask-is-zero" and is_last:
            S[:, p.length - (len(p.table) - 1) * p.k.shape[2] :] = 0
        m_new = np.maximum(m, _shift(S, shift))
        alpha = np.exp(m - m_new)
        P = S if flaw == "no-softmax" else np.exp(S - m_new)
        added, weighted = block_sums(flaw, P, V, n_heads // n_kv_heads)
        l, acc = update(flaw, l, acc, alpha, added, weighted)
        m = m_new
    out = finish(flaw, l, acc, len(p.table))
    if flaw == "scale-on-result":
        return out * p.scale
    if flaw in ("heads-out-of-order", "heads-grouped-backwards"):
        rows = n_kv_heads if flaw == "heads-out-of-order" else n_heads // n_kv_heads
        by_group = out.reshape(rows, -1, head_dim).swapaxes(0, 1)
        return by_group.reshape(n_heads, head_dim)
    return out


def _slots(p: Problem, flaw: str) -> list[tuple[int, slice, bool]]:
    """Return the blocks to be read, the slots in each, and whether it is the last."""
    size, table = p.k.shape[2], list(p.table)
    if flaw == "table-ignored":
        table = list(range(len(table)))
    elif flaw == "table-order-lost":
        table = sorted(table)
    elif flaw == "tail-lost":
        table = table[: p.length // size] or table
    elif flaw == "first-block-only":
        table = table[:1]
    elif flaw == "last-block-lost":
        table = table[:-1] or table
    elif flaw == "block-size-hard-coded":
        table = table[: -(-p.length // 16)]
    read = []
    for i, block in enumerate(table):
        is_last = i == len(p.table) - 1
        if flaw == "first-block-lost" and i == 0 and not is_last:
            continue
        if flaw == "block-zero-skipped" and block == 0 and len(table) > 1:
            continue
        valid = min(size, p.length - i * size)
        if flaw == "block-size-hard-coded":
            valid = p.length - i * 16
        if flaw in ("tail-not-masked", "mask-is-zero"):
            valid = size
        elif flaw == "last-token-lost" and is_last:
            valid = max(valid - 1, 1)
        elif flaw == "one-slot-too-many" and is_last:
            valid += 1
        elif flaw == "mask-in-every-block":
            valid = p.length % size or size
        read.append((block, slice(valid), is_last))
    return read


def _shift(S: Array, shift: str) -> Array:
    maxima: Array = S.max(axis=1, keepdims=True)
    if shift == "all":
        return np.full_like(maxima, maxima.max())
    return maxima if shift == "head" else np.zeros_like(maxima)


def _scale(p: Problem, flaw: str) -> float:
    own: dict[str, float] = {
        "scale-missing": 1.0,
        "scale-on-result": 1.0,
        "scale-twice": p.scale**2,
        "scale-inverted": 1 / p.scale,
        "scores-negated": -p.scale,
        "scale-and-sqrt": p.scale * p.q.shape[1] ** -0.5,
        "scale-argument-ignored": p.q.shape[1] ** -0.5,
    }
    return own.get(flaw, p.scale)


def name_flaw(p: Problem, out: Array, right: Array) -> str | None:
    """Return the flaw that gives the numbers of `out`, if there is one.

    It must explain the difference from `right`, up to a twentieth of it.
    """
    close = 0.05 * np.nanmax(np.abs(out - right), initial=0)
    for flaw in CAUSES:
        for shift in ("head", "all", "none"):
            wrong = attend(p, flaw, shift)
            if np.allclose(wrong, out, rtol=0, atol=min(close, 1e-3), equal_nan=True):
                return flaw
    return None
