import io
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_kv import KVCacheSpec
from paged_kv.serving import (
    ALPACA,
    BlockCounter,
    CostModel,
    MaxReservation,
    OracleReservation,
    PagedAllocator,
    Workload,
    poisson_workload,
    simulate,
)
from paged_kv.serving.simulator import _iterations_to_cover
from tests.serving.naive import serve_paged


def workload(*requests):
    arrival, prompt, output = zip(*requests, strict=True)
    return Workload(np.array(arrival, float), np.array(prompt), np.array(output))


some_requests = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.001, 0.01, 0.1, 2.0]),
        st.integers(1, 60),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(
    requests=some_requests,
    block_size=st.sampled_from([1, 3, 16]),
    watermark=st.sampled_from([0.0, 0.1]),
    max_batch=st.sampled_from([1, 3, 256]),
    maker=st.sampled_from([BlockCounter, PagedAllocator]),
)
def test_events_give_what_walking_token_by_token_gives(
    requests, block_size, watermark, max_batch, maker
):
    cost = CostModel(5e6, 2e3, 1e9, 1e-5, 2e-3, 1e-4)
    gaps, prompt, output = zip(*requests, strict=True)
    w = Workload(np.cumsum(gaps), np.array(prompt), np.array(output))
    slots = 200
    r = simulate(w, maker(slots, block_size, watermark), cost, max_batch=max_batch)
    finish, batches, held, preemptions = serve_paged(
        w, slots, block_size, watermark, cost, max_batch
    )
    np.testing.assert_allclose(r.finish, finish, rtol=1e-9)
    assert r.preemptions == preemptions
    assert r.iterations == len(batches)
    assert r.mean_batch == pytest.approx(np.mean(batches))
    assert sum(r.shares.values()) == pytest.approx(1)


def test_shares_are_those_of_the_iterations_in_which_somebody_waits(cost):
    # Alone for a while, then two that do not fit together.
    w = workload((0, 10, 30), (5, 70, 40), (5, 70, 40))
    r = simulate(w, BlockCounter(128, 16, 0), cost)
    _, batches, held, _ = serve_paged(w, 128, 16, 0, cost, 256)
    while_waiting = held[30:70]  # the second runs, the third waits
    assert set(batches) == {1}
    tokens, empty = (np.mean(column) for column in zip(*while_waiting, strict=True))
    assert r.shares["tokens"] == pytest.approx(tokens / 128)
    assert r.shares["internal"] == pytest.approx(empty / 128)
    assert r.shares["reservation"] == 0


def test_without_anybody_waiting_all_iterations_count(cost):
    r = simulate(workload((0, 16, 16)), BlockCounter(64, 16, 0), cost)
    assert r.shares["tokens"] == pytest.approx(np.mean(np.arange(17, 33)) / 64)


def test_the_same_run_gives_the_same_result(cost):
    w = poisson_workload(ALPACA, 50, 300, seed=2)
    one, other = (simulate(w, BlockCounter(2200), cost) for _ in range(2))
    np.testing.assert_array_equal(one.finish, other.finish)
    assert one.samples == other.samples
    assert one.preemptions > 0


def test_the_last_admitted_is_preempted_and_comes_back_first(cost):
    # 4 blocks of 4. Both fit at first; at 8 tokens each neither can grow.
    w = workload((0, 4, 9), (0, 4, 5), (0, 4, 1))
    r = simulate(w, BlockCounter(16, 4, 0), cost)
    assert r.preemptions == 1
    assert r.finish[0] < r.finish[1]
    # Preempted with 4 tokens done, it stored all 8 again and needed 1 more iteration;
    # the third, which came later, was not let past.
    assert r.finish[1] <= r.finish[2]


def test_nobody_passes_the_head_of_the_queue(cost):
    # The second is too long to run beside the first, the third would fit.
    w = workload((0, 10, 20), (0.001, 30, 5), (0.002, 1, 1))
    r = simulate(w, OracleReservation(64, 64), cost)
    assert r.finish[2] >= r.finish[0]


def test_reserved_memory_is_never_taken_back(cost):
    w = poisson_workload(ALPACA, 1000, 200, max_len=512)
    r = simulate(w, MaxReservation(2048, 512), cost)
    assert r.preemptions == 0
    assert max(sample.running for sample in r.samples) == 4


def test_the_time_of_a_lone_request_is_the_sum_of_its_iterations(cost):
    r = simulate(workload((3, 20, 7)), BlockCounter(64), cost)
    expected = sum(cost.seconds(1, 20 + k) for k in range(1, 8))
    expected += cost.prefill_per_token * 20
    assert r.seconds == pytest.approx(3 + expected)
    assert r.normalised_latency == pytest.approx(expected / 7)
    assert r.tokens_per_second == pytest.approx(7 / (3 + expected))


def test_samples_are_consistent_moments(cost):
    w = poisson_workload(ALPACA, 40, 400)
    r = simulate(w, BlockCounter(3000), cost, samples=50)
    assert 30 <= len(r.samples) <= 80
    for sample in r.samples:
        assert sum(sample.usage) == 3000
        assert sample.waiting >= 0
    seconds = [sample.seconds for sample in r.samples]
    assert seconds == sorted(seconds)
    assert r.samples[-1].preemptions <= r.preemptions
    assert max(sample.waiting for sample in r.samples) > 0


@pytest.mark.parametrize("rate", [0.5, 50, math.inf])
def test_work_grows_with_requests_and_not_with_tokens(cost, rate, monkeypatch):
    moves = 0
    advance = BlockCounter.advance

    def counting(self, steps):
        nonlocal moves
        moves += 1
        return advance(self, steps)

    monkeypatch.setattr(BlockCounter, "advance", counting)
    w = poisson_workload(ALPACA, rate, 400)
    r = simulate(w, BlockCounter(15728), cost)
    # At most one move per arrival, end and preemption.
    assert moves <= 2 * len(w) + r.preemptions < w.output.sum() / 10


@pytest.mark.parametrize(
    ("allocator", "requests"),
    [
        (BlockCounter(64, 16, 0), (30, 35)),
        (BlockCounter(160, 16, 0.2), (100, 30)),
        (MaxReservation(100, 64), (60, 5)),
        (MaxReservation(100, 128), (5, 5)),
        (OracleReservation(100, 128), (60, 10)),
    ],
)
def test_what_never_fits_is_refused_at_once(cost, allocator, requests):
    w = workload((0, *requests))
    with pytest.raises(ValueError, match=f"{requests[0]} \\+ {requests[1]} tokens"):
        simulate(w, allocator, cost)
    assert len(allocator) == allocator.iteration == 0


def test_what_just_fits_is_served(cost):
    assert simulate(workload((0, 30, 34)), BlockCounter(64, 16, 0), cost).finish[0] > 0


def test_an_allocator_serves_one_run(cost):
    allocator = BlockCounter(64)
    simulate(workload((0, 1, 1)), allocator, cost)
    with pytest.raises(ValueError, match="fresh"):
        simulate(workload((0, 1, 1)), allocator, cost)


@given(
    gap=st.floats(1e-9, 1e6),
    first=st.floats(1e-6, 10),
    slope=st.one_of(st.just(0.0), st.floats(1e-12, 1)),
)
def test_iterations_to_cover_a_gap_are_the_fewest(gap, first, slope):
    def total(steps):
        return steps * (first + slope * (steps + 1) / 2)

    steps = _iterations_to_cover(gap, first, slope)
    assert total(steps) >= gap
    assert steps == 1 or total(steps - 1) < gap


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_shows_on_a_terminal_only(cost, monkeypatch):
    w = poisson_workload(ALPACA, 50, 60)
    for stream in (_Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        simulate(w, BlockCounter(15728), cost)
        if stream.isatty():
            assert stream.getvalue().endswith("█ 60/60\n")
        else:
            assert not stream.getvalue()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidth": 0}, "bandwidth"),
        ({"bandwidth": -1}, "bandwidth"),
        ({"overhead": math.nan}, "overhead"),
        ({"weight_bytes": math.inf}, "weight_bytes"),
        ({"weight_bytes": 0, "kv_bytes_per_token": 0}, "must take time"),
        ({"weight_bytes": 1e-300, "bandwidth": 1e300, "kv_bytes_per_token": 0}, "time"),
        (
            {"weight_bytes": 0, "kv_bytes_per_token": 0, "prefill_per_token": 1},
            "must take time",
        ),
    ],
)
def test_a_cost_that_is_no_time_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        CostModel(
            **{"weight_bytes": 1, "kv_bytes_per_token": 1, "bandwidth": 1} | change
        )


@pytest.mark.parametrize("flops", [0, -1.0, math.nan])
def test_a_device_that_computes_nothing_is_refused(flops):
    with pytest.raises(ValueError, match="flops"):
        CostModel.of(KVCacheSpec(1, 1, 1), 1e9, flops)


@pytest.mark.parametrize("block_size", [0, -16, 1.5])
def test_a_block_cost_needs_a_block_size(cost, block_size):
    with pytest.raises(ValueError, match="block_size"):
        cost.with_block_cost(block_size, 1)


def test_a_prompt_token_takes_two_operations_per_parameter():
    spec = KVCacheSpec(1, 1, 1, n_params=1000)
    plain, computed = CostModel.of(spec, 1e9), CostModel.of(spec, 1e9, 1e6)
    for n in (0, 1, 7):
        more = computed.seconds(2, 30, n) - plain.seconds(2, 30, n)
        assert more == pytest.approx(n * 2 * 1000 / 1e6)
