"""Attention of one query head over a block table, block by block and kept for view."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paged_kv.attention import reference_attention
from paged_kv.spec import whole

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Block:
    """One block as the query finds it.

    Attributes
    ----------
    physical, first, valid : int
        Its id, the position of its first token, and how many slots hold a token.
    scores, values : ndarray of float32, shapes (block_size,), (block_size, head_dim)
        Of every slot, also of those that hold no token of this sequence.
    """

    physical: int
    first: int
    valid: int
    scores: Array
    values: Array


@dataclass(frozen=True)
class Step:
    """The running state before and after one block.

    Attributes
    ----------
    block : Block
    read : int
        Slots that count: the valid ones, or all when there is no mask.
    m_before, m, l_before, l : float
        Running maximum and running denominator.
    factor : float
        ``exp(m_before - m)``, by which the earlier sums must be scaled.
    alpha : float
        By which they were scaled: `factor`, or 1 without rescaling.
    weights : ndarray of float32, shape (block_size,)
        ``exp(score - m)``; 0 where a slot is masked.
    scaled, added, acc : ndarray of float32, shape (head_dim,)
        Earlier sums after scaling, what this block adds, and both together.
    """

    block: Block
    read: int
    m_before: float
    m: float
    l_before: float
    l: float
    factor: float
    alpha: float
    weights: Array
    scaled: Array
    added: Array
    acc: Array


@dataclass(frozen=True)
class Trace:
    """All steps of one run, and what it comes to.

    Attributes
    ----------
    steps : tuple of Step
    out : ndarray of float32, shape (head_dim,)
        ``acc / l`` after the last block.
    """

    steps: tuple[Step, ...]
    out: Array


class Reading:
    """One query head and the blocks that it reads, as they are now.

    Parameters
    ----------
    pool, seq
        The student's or ours; only ``k``, ``v``, ``block_size``, ``block_table`` and
        the length are read.
    layer : int
    q : array_like, shape (n_heads, head_dim)
    scale : float, optional
        ``1 / sqrt(head_dim)`` when not given.
    head : int
        Query head.

    Attributes
    ----------
    blocks : tuple of Block
    truth : ndarray of float32, shape (head_dim,)
        Softmax over all tokens at once, computed the other way.
    length, head, kv_head : int

    Raises
    ------
    ValueError
        For shapes that do not fit, a layer or head that does not exist, an empty
        sequence, or a block table that is too short or leaves the pool.
    """

    def __init__(
        self,
        pool: Any,
        seq: Any,
        layer: int,
        q: ArrayLike,
        scale: float | None = None,
        head: int = 0,
    ) -> None:
        n_layers, _, size, n_kv_heads, head_dim = np.shape(pool.k)
        self.length = len(seq)
        if not self.length:
            raise ValueError("the sequence is empty: nothing to attend to")
        _index("layer", layer, n_layers)
        table = _table(seq, size, len(pool.k[layer]))
        if scale is None:
            scale = 1 / math.sqrt(head_dim)
        K, V = (
            np.asarray(part[layer, table], np.float32).reshape(-1, n_kv_heads, head_dim)
            for part in (pool.k, pool.v)
        )
        # Checks q and scale as well.
        truth = reference_attention(K[: self.length], V[: self.length], q, scale)
        _index("head", head, len(truth))
        self.head = head
        self.kv_head = head // (len(truth) // n_kv_heads)
        self.truth = truth[head]
        query = np.asarray(q, np.float32)[head] * np.float32(scale)
        with np.errstate(invalid="ignore", over="ignore"):
            scores = K[:, self.kv_head] @ query
        self.blocks = tuple(
            Block(
                physical,
                i * size,
                min(size, self.length - i * size),
                scores[i * size : (i + 1) * size],
                V[i * size : (i + 1) * size, self.kv_head],
            )
            for i, physical in enumerate(table)
        )

    @property
    def block_size(self) -> int:
        """Slots in a block."""
        return len(self.blocks[0].scores)

    def trace(self, rescale: bool = True, mask: bool = True) -> Trace:
        """Walk the blocks with an online softmax, whole or with a part left out.

        Parameters
        ----------
        rescale : bool
            Whether a new maximum scales the earlier sums.
        mask : bool
            Whether slots beyond the last token are left out.
        """
        m, l = np.float32(-np.inf), np.float32(0)
        acc = np.zeros_like(self.truth)
        steps = []
        # Stale slots may hold anything, NaN included; the picture shows what follows.
        with np.errstate(invalid="ignore", over="ignore"):
            for block in self.blocks:
                read = block.valid if mask else len(block.scores)
                S = block.scores[:read]
                m_new = np.maximum(m, S.max())
                factor = np.exp(m - m_new)
                alpha = factor if rescale or not block.first else np.float32(1)
                P = np.exp(S - m_new)
                l_new, scaled = l * alpha + P.sum(), acc * alpha
                added = P @ block.values[:read]
                weights = np.zeros_like(block.scores)
                weights[:read] = P
                acc = scaled + added
                steps.append(
                    Step(
                        block,
                        read,
                        float(m),
                        float(m_new),
                        float(l),
                        float(l_new),
                        float(factor),
                        float(alpha),
                        weights,
                        scaled,
                        added,
                        acc,
                    )
                )
                m, l = m_new, l_new
            return Trace(tuple(steps), acc / l)

    def error(self, trace: Trace) -> float:
        """Return the largest difference between a run's output and the truth."""
        return float(np.abs(trace.out - self.truth).max())


def _index(name: str, value: int, count: int) -> None:
    if whole(name, value, 0) >= count:
        raise ValueError(f"{name} {value} does not exist: there are {count}")


def _table(seq: Any, block_size: int, num_blocks: int) -> list[int]:
    needed = -(-len(seq) // block_size)
    table = [int(block) for block in seq.block_table[:needed]]
    if len(table) < needed:
        raise ValueError(
            f"{len(seq)} tokens need {needed} blocks of {block_size}, the block table "
            f"has {len(table)}"
        )
    if not 0 <= min(table) <= max(table) < num_blocks:
        raise ValueError(f"block ids outside 0…{num_blocks - 1}: {table}")
    return table
