"""The experiment of SOSP'23: what the paper fixes is never tuned, and these come out.

The lessons compute the same numbers with the same calls.
"""

import math

import pytest

from paged_kv.serving import (
    ALPACA,
    SHAREGPT,
    BlockCounter,
    beam_search,
    paper,
    parallel_sampling,
    poisson_workload,
    simulate,
)

REQUESTS = {SHAREGPT: 7200, ALPACA: 12_000}
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@pytest.fixture(scope="module", params=[0, 1, 2])
def sharegpt(request):
    return run(SHAREGPT, request.param)


@pytest.fixture(scope="module", params=[0, 1, 2])
def alpaca(request):
    return run(ALPACA, request.param)


def run(lengths, seed):
    w = poisson_workload(lengths, paper.RATES[lengths], REQUESTS[lengths], seed=seed)
    allocators = [*[*paper.systems()][:3], BlockCounter(paper.NUM_SLOTS)]
    return {a.name: simulate(w, a, paper.ENGINE) for a in allocators}


def test_the_cache_has_the_papers_slots():
    assert paper.NUM_SLOTS == 15_728
    assert paper.SPEC.bytes_per_token() == 800 * 1024


def test_figure_2_every_share_is_within_5_points(sharegpt):
    for system, published in paper.FIGURE_2.items():
        shares = [100 * share for share in sharegpt[system].shares.values()]
        for ours, theirs in zip(shares, published, strict=True):
            assert math.isnan(theirs) or abs(ours - theirs) <= 5, (system, shares)


def test_figure_13_mean_batches_are_within_20_percent_on_sharegpt(sharegpt):
    for system, published in paper.FIGURE_13[SHAREGPT].items():
        assert sharegpt[system].mean_batch == pytest.approx(published, rel=0.20)


def test_figure_13_mean_batches_are_within_25_percent_on_alpaca(alpaca):
    for system, published in paper.FIGURE_13[ALPACA].items():
        assert alpaca[system].mean_batch == pytest.approx(published, rel=0.25)


def test_only_paging_preempts(sharegpt):
    assert sharegpt["Paged"].preemptions > 0
    assert not any(sharegpt[s].preemptions for s in paper.SYSTEMS[:3])


def test_what_the_engine_costs_beyond_the_roofline_is_what_little_says():
    for lengths in paper.RATES:
        implied = paper.implied_step(lengths)
        assert implied > 1.5 * paper.roofline_step(lengths)
        batch = paper.FIGURE_13[lengths]["Paged"]
        beyond = paper.ENGINE.overhead + batch * paper.ENGINE.overhead_per_request
        assert beyond == pytest.approx(implied - paper.roofline_step(lengths))
    assert paper.ENGINE.overhead > 0 < paper.ENGINE.overhead_per_request


def test_at_the_roofline_the_papers_own_batches_would_be_impossible():
    # All systems but Max would keep up with 30 requests/s, with equal batches.
    w = poisson_workload(ALPACA, 30, 3000)
    batches = [
        simulate(w, a, paper.ROOFLINE).mean_batch for a in [*paper.systems()][1:]
    ]
    assert batches[0] == pytest.approx(batches[2], rel=0.02)
    assert batches[2] < 0.5 * paper.FIGURE_13[ALPACA]["Paged"]


def test_rates_at_equal_latency():
    rates = {system: paper.highest_rate(system, limit=0.5) for system in paper.SYSTEMS}
    for system, (low, high) in paper.RATE_RATIOS.items():
        assert low <= rates["Paged"] / rates[system] <= high, rates
    assert rates["Orca (Max)"] < rates["Orca (Pow2)"] < rates["Orca (Oracle)"]


def test_figure_15a_parallel_sampling():
    w = poisson_workload(ALPACA, 1, 2000)
    for n, published in paper.FIGURE_15["parallel sampling"].items():
        assert 100 * parallel_sampling(w, n).saved == pytest.approx(published, abs=4)


def test_figure_15b_beam_search():
    w = poisson_workload(ALPACA, 1, 200)
    published = paper.FIGURE_15["beam search"]
    saved = {width: 100 * beam_search(w, width).saved for width in published}
    assert saved[2] < saved[4] < saved[6]
    # Neutral selection is a guess at which beams survive; it saves more than a real
    # model's beams did, the more so the more there are.
    for width, percent in published.items():
        assert 0 <= saved[width] - percent <= 11


def test_figure_18b_small_and_large_blocks_are_worse():
    for lengths, best in ((SHAREGPT, range(16, 129)), (ALPACA, range(16, 33))):
        latency, waste, batch = block_sizes(lengths)
        assert min(latency, key=latency.get) in best
        assert list(waste.values()) == sorted(waste.values())
        assert batch[256] < batch[16]


def block_sizes(lengths):
    w = poisson_workload(lengths, paper.RATES[lengths], 4000)
    latency, waste, batch = {}, {}, {}
    for size in BLOCK_SIZES:
        cost = paper.ENGINE.with_block_cost(size, paper.BLOCK_COST)
        r = simulate(w, BlockCounter(paper.NUM_SLOTS, size), cost)
        latency[size] = r.normalised_latency
        given = sum(r.shares[part] for part in ("tokens", "internal"))
        waste[size] = r.shares["internal"] / given
        batch[size] = r.mean_batch
    return latency, waste, batch
