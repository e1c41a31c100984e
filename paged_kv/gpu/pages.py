"""Attention over the pages of one sequence in torch: gather a little, use it, go on.

Queries stand as (n_kv_heads, rows, head_dim): all rows of a KV head meet its keys in
one matrix product. A row is a query head in decode, a query head of one token in
prefill, a query head of one request in cascade attention. That is why there is one
function for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

# Bytes of K, as float32, that are gathered at once. Scattered pages become a contiguous
# piece that stays in the processor's cache until it is used; smaller pieces cost more
# calls, larger ones leave the cache.
BYTES_AT_ONCE = 2 << 20


class PageReader:
    """Reads pages as float32 rows, always into the same memory.

    Parameters
    ----------
    cache : Tensor, shape (num_blocks, block_size, n_kv_heads, head_dim)
        What is going to be read; another cache of this shape and type may be read too.

    Attributes
    ----------
    pages_at_once : int
        The most pages that one `read` takes.
    """

    def __init__(self, cache: torch.Tensor) -> None:
        self.pages_at_once = max(1, BYTES_AT_ONCE // (4 * cache[0].numel()))
        shape = (self.pages_at_once, *cache.shape[1:])
        self._stored = cache.new_empty(shape)
        self._exact = self._stored
        if cache.dtype != torch.float32:
            self._exact = torch.empty(shape, device=cache.device)

    def read(
        self,
        cache: torch.Tensor,
        blocks: torch.Tensor,
        tokens: int,
        scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the first `tokens` rows of `blocks`; valid until the next call.

        Rows beyond them are never looked at, so they may hold anything, NaN included.

        Parameters
        ----------
        cache : Tensor
        blocks : Tensor of int32, shape (n,)
        tokens : int
            At most n · block_size.
        scale : Tensor of float32, shape (num_blocks, n_kv_heads), optional
            What int8 codes are multiplied by.

        Returns
        -------
        Tensor of float32, shape (tokens, n_kv_heads, head_dim)
        """
        n = len(blocks)
        rows = torch.index_select(cache, 0, blocks, out=self._stored[:n])
        if self._exact is not self._stored:
            rows = self._exact[:n].copy_(rows)
        if scale is not None:
            rows.mul_(scale[blocks][:, None, :, None])
        return rows.view(-1, *rows.shape[2:])[:tokens]


class OnlineSoftmax:
    """The running maximum, denominator and weighted sum of n_kv_heads · rows queries.

    The loop of lecture 09.2 for many rows at once; starts as the empty state.
    """

    def __init__(self, n_kv_heads: int, rows: int, dim: int, like: torch.Tensor):
        self.m = like.new_full((n_kv_heads, rows, 1), -torch.inf)
        self.l = torch.zeros_like(self.m)
        self.acc = like.new_zeros((n_kv_heads, rows, dim))

    def add(self, S: torch.Tensor, V: torch.Tensor) -> None:
        """Take in more tokens: scores (n_kv_heads, rows, t), values (t, n_kv_heads, d).

        Every row must have seen a token by then. `S` is overwritten.
        """
        m_new = torch.maximum(self.m, S.amax(-1, keepdim=True))
        P = S.sub_(m_new).exp_()
        alpha = self.m.sub_(m_new).exp_()
        self.l.mul_(alpha).add_(P.sum(-1, keepdim=True))
        self.acc.mul_(alpha).baddbmm_(P, V.transpose(0, 1))
        self.m = m_new

    def finish(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return out (n_kv_heads, rows, dim) and lse (n_kv_heads, rows)."""
        out = self.acc / torch.where(self.l > 0, self.l, 1)
        return out, (self.m + self.l.log()).squeeze(-1)


def group_heads(q: torch.Tensor, n_kv_heads: int, scale: float) -> torch.Tensor:
    """Return q · scale in float32 as (len(q), n_kv_heads, group, head_dim)."""
    n, n_heads, head_dim = q.shape
    scaled = q.float() * float(scale)
    return scaled.reshape(n, n_kv_heads, n_heads // n_kv_heads, head_dim)


def attend_pages(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    table: torch.Tensor,
    length: int,
    *,
    positions: torch.Tensor | None = None,
    v_dim: int = 0,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    reader: PageReader | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of many rows over the first `length` tokens of one sequence.

    Parameters
    ----------
    q : Tensor of float32, shape (n_kv_heads, rows, head_dim)
        Already multiplied by the scale.
    k_cache, v_cache : Tensor, shape (num_blocks, block_size, n_kv_heads, head_dim)
    table : Tensor of int32, shape (at least ceil(length / block_size),)
    length : int
        0 gives the empty state.
    positions : Tensor of int, shape (rows,), optional
        The last token that each row may see; all of them when not given.
    v_dim : int
        When not 0, the values are the first `v_dim` elements of the keys (MLA), which
        are read once; `v_cache` is not read.
    k_scale, v_scale : Tensor, optional
        As `PageReader.read`.
    reader : PageReader, optional
        Its memory is used again by the next sequence.

    Returns
    -------
    out : Tensor of float32, shape (n_kv_heads, rows, head_dim or v_dim)
    lse : Tensor of float32, shape (n_kv_heads, rows)
    """
    reader = reader or PageReader(k_cache)
    n_kv_heads, rows, head_dim = q.shape
    softmax = OnlineSoftmax(n_kv_heads, rows, v_dim or head_dim, q)
    step = reader.pages_at_once
    for start, blocks, tokens in _pieces(table, length, k_cache.shape[1], step):
        K = reader.read(k_cache, blocks, tokens, k_scale)
        S = torch.bmm(q, K.permute(1, 2, 0))
        if positions is not None:
            seen = torch.arange(start, start + tokens, device=q.device)
            S.masked_fill_(seen > positions[:, None], -torch.inf)
        # K has been used: V may take its place in the reader's memory.
        V = K[..., :v_dim] if v_dim else reader.read(v_cache, blocks, tokens, v_scale)
        softmax.add(S, V)
    return softmax.finish()


def merge_states(
    out_a: torch.Tensor, lse_a: torch.Tensor, out_b: torch.Tensor, lse_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention over the tokens of both parts; exact, any order.

    Parameters
    ----------
    out_a, out_b : Tensor of float32, shape (…, head_dim)
    lse_a, lse_b : Tensor of float32, shape (…)
        −inf over no tokens.
    """
    top = torch.maximum(lse_a, lse_b)
    shift = torch.where(torch.isneginf(top), 0, top)  # −inf − −inf is NaN
    a, b = (lse_a - shift).exp(), (lse_b - shift).exp()
    total = a + b
    divisor = torch.where(total > 0, total, 1)
    out = out_a * (a / divisor)[..., None] + out_b * (b / divisor)[..., None]
    return out, shift + total.log()


def _pieces(
    table: torch.Tensor, length: int, block_size: int, step: int
) -> Iterator[tuple[int, torch.Tensor, int]]:
    """Yield the first token, the blocks and the number of tokens of each piece.

    Iterates ceil(length / block_size) entries: more may stand in the table.
    """
    needed = -(-length // block_size)
    for first in range(0, needed, step):
        start = first * block_size
        blocks = table[first : min(first + step, needed)]
        yield start, blocks, min(len(blocks) * block_size, length - start)
