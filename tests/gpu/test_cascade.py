"""Two levels and a merge are the same as one level."""

import pytest
import torch

from paged_kv import Sequence
from paged_kv.gpu import (
    TorchBlockPool,
    batch_tables,
    cascade_decode,
    common_blocks,
    merge_states,
    paged_attention_decode,
)
from paged_kv.gpu import cascade as module

from .batches import BACKENDS

HEADS, KV_HEADS, DIM = 6, 3, 64


def forks(prompt, suffixes, dtype=torch.float32):
    """Return forks of one prompt, each with its own suffix, as a batch."""
    pool = TorchBlockPool(40, 1, KV_HEADS, DIM, dtype=dtype)
    pool.k.fill_(torch.nan)
    pool.v.fill_(torch.nan)
    base = Sequence(pool, "base")
    base.extend(*torch.randn(2, 1, prompt, KV_HEADS, DIM))
    seqs = []
    for n in suffixes:
        seqs.append(base.fork(n))
        seqs[-1].extend(*torch.randn(2, 1, n, KV_HEADS, DIM))
    q = torch.randn(len(seqs), HEADS, DIM)
    return (q, pool.k[0], pool.v[0], *batch_tables(seqs), 0.2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("prompt", "suffixes", "shared"),
    [
        (48, [1, 20, 16], 3),
        (50, [3, 1], 3),  # a partial block of the prompt is copied, not shared
        (48, [0, 5], 3),  # nothing of its own: the suffix is the empty state
        (9, [3, 4], 0),
        (33, [40], 4),  # one sequence shares everything with itself
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_cascade_equals_plain_decode(backend, prompt, suffixes, shared, dtype):
    batch = forks(prompt, suffixes, dtype)
    assert common_blocks(batch[3], batch[4], 16) == shared
    plain = paged_attention_decode(*batch, backend="torch", return_lse=True)
    for given in (None, shared, shared // 2):
        got = cascade_decode(
            *batch, shared_blocks=given, backend=backend, return_lse=True
        )
        torch.testing.assert_close(got, plain, atol=2e-5, rtol=1e-5)


def test_the_prefix_is_read_once(monkeypatch):
    batch = forks(48, [4, 4, 4, 4])
    lengths = []
    attend = module.attend_pages

    def noted(q, k, v, table, length, **options):
        lengths.append((q.shape[1], length))
        return attend(q, k, v, table, length, **options)

    monkeypatch.setattr(module, "attend_pages", noted)
    cascade_decode(*batch, backend="torch")
    group = HEADS // KV_HEADS
    assert lengths == [(4 * group, 48)]


def test_a_block_counts_as_shared_only_if_all_rows_fill_it():
    tables = torch.tensor([[4, 2, 9], [4, 2, -1]], dtype=torch.int32)
    for lengths, shared in (([48, 32], 2), ([48, 31], 1), ([15, 32], 0)):
        assert common_blocks(tables, torch.tensor(lengths), 16) == shared


def test_an_empty_batch():
    batch = forks(16, [])
    assert cascade_decode(*batch).shape == (0, HEADS, DIM)
    assert cascade_decode(*batch, shared_blocks=0).shape == (0, HEADS, DIM)
    with pytest.raises(ValueError, match="does not begin with 1 full blocks"):
        cascade_decode(*batch, shared_blocks=1)


class TestMerge:
    def states(self, *lengths):
        batch = forks(0, lengths)
        return paged_attention_decode(*batch, return_lse=True)

    def test_empty_is_the_identity(self):
        out, lse = self.states(5, 20)
        empty = torch.zeros_like(out), torch.full_like(lse, -torch.inf)
        for pair in ((out, lse, *empty), (*empty, out, lse)):
            merged = merge_states(*pair)
            assert torch.equal(merged[0], out)
            assert torch.equal(merged[1], lse)

    def test_two_empties_are_empty(self):
        out, lse = torch.zeros(2, 3, 4), torch.full((2, 3), -torch.inf)
        merged = merge_states(out, lse, out, lse)
        assert torch.equal(merged[0], out)
        assert torch.equal(merged[1], lse)

    def test_any_order(self):
        a, b, c = (self.states(n) for n in (5, 40, 1))
        left = merge_states(*merge_states(*a, *b), *c)
        right = merge_states(*a, *merge_states(*c, *b))
        torch.testing.assert_close(left, right)
