import numpy as np
import pytest

from paged_kv import BlockPool
from paged_kv.serving import Workload, beam_search, parallel_sampling, sharing


def requests(*pairs):
    prompt, output = np.array(pairs).T
    return Workload(np.zeros(len(pairs)), prompt, output)


@pytest.mark.parametrize(
    ("prompt", "output", "n", "used", "unshared"),
    [
        (
            16,
            16,
            2,
            16 * 3,
            16 * 4,
        ),  # one block of prompt, answers apart
        (32, 1, 3, 2 + 3, 3 * 3),
        (15, 1, 2, 2, 2),  # no full block to share
        (20, 14, 4, 12 * 5 + 2 * 9, 12 * 8 + 2 * 12),  # tails are copied, then grow
        (40, 7, 1, 7 * 3, 7 * 3),
    ],
)
def test_parallel_sampling_shares_the_full_blocks_of_the_prompt(
    prompt, output, n, used, unshared
):
    shared = parallel_sampling(requests((prompt, output)), n)
    assert shared == (used, unshared)
    assert shared.saved == 1 - used / unshared


def test_requests_add_up():
    one, other = requests((20, 14)), requests((5, 40))
    both = requests((20, 14), (5, 40))
    parts = [parallel_sampling(w, 3) for w in (one, other)]
    assert parallel_sampling(both, 3) == tuple(map(sum, zip(*parts, strict=True)))


def test_one_beam_shares_nothing_and_more_beams_share_their_ancestors():
    w = requests((20, 200))
    assert beam_search(w, 1).saved == 0
    # Neutral beams meet after about twice their number of tokens, so of 200 most
    # are common, unlike those of parallel samples.
    assert beam_search(w, 2).saved > 0.4 > 4 * parallel_sampling(w, 2).saved
    assert beam_search(w, 4, seed=1) == beam_search(w, 4, seed=1)


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_no_block_is_lost(monkeypatch, block_size):
    pools = []

    class Watched(BlockPool):
        def __init__(self, *args):
            super().__init__(*args)
            pools.append(self)

    monkeypatch.setattr(sharing, "BlockPool", Watched)
    w = requests((7, 30), (16, 16))
    parallel_sampling(w, 3, block_size=block_size)
    beam_search(w, 3, block_size=block_size)
    for pool in pools:
        pool.check()
        assert pool.used == 0
        assert pool.peak > 0


@pytest.mark.parametrize("n", [0, -1, 1.5])
def test_a_number_of_answers_is_a_whole_one(n):
    with pytest.raises(ValueError, match="n must be"):
        parallel_sampling(requests((1, 1)), n)
