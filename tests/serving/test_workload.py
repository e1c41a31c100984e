import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paged_kv.serving import (
    ALPACA,
    SHAREGPT,
    Lengths,
    TraceError,
    Workload,
    poisson_workload,
    read_trace,
)

AZURE = (
    Path(__file__).parents[3] / "shared/traces/azure_llm_2023_conversation.csv"
)  # beside the checkout, where somebody has put it


@pytest.mark.parametrize("lengths", [SHAREGPT, ALPACA], ids=lambda it: it.name)
def test_the_means_are_the_given_ones_and_nothing_is_too_long(lengths):
    w = poisson_workload(lengths, 3, 100_000, seed=5)
    assert w.prompt.mean() == pytest.approx(lengths.mean_prompt, rel=0.02)
    assert w.output.mean() == pytest.approx(lengths.mean_output, rel=0.02)
    assert len(w) / w.arrival[-1] == pytest.approx(3, rel=0.02)
    assert w.total.max() <= 2048
    assert min(w.prompt.min(), w.output.min()) >= 1


def test_the_spread_is_the_given_one_where_nothing_is_cut():
    w = poisson_workload(Lengths("x", 50, 80, 0.5, 1.0), 1, 200_000, max_len=100_000)
    assert w.prompt.std() / w.prompt.mean() == pytest.approx(0.5, rel=0.02)
    assert w.output.std() / w.output.mean() == pytest.approx(1.0, rel=0.05)


def test_gaps_between_arrivals_are_exponential():
    gaps = np.diff(poisson_workload(ALPACA, 4, 100_000).arrival)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)
    assert np.mean(gaps > gaps.mean()) == pytest.approx(math.exp(-1), rel=0.02)


def test_a_seed_gives_the_same_requests_at_any_rate():
    one, other = (poisson_workload(ALPACA, rate, 50, seed=3) for rate in (1, 8))
    np.testing.assert_array_equal(one.total, other.total)
    np.testing.assert_allclose(one.arrival, 8 * other.arrival)
    assert (poisson_workload(ALPACA, 1, 50, seed=4).total != one.total).any()
    assert not poisson_workload(ALPACA, math.inf, 50).arrival.any()


@pytest.mark.parametrize("rate", [0, -1, math.nan])
def test_a_rate_is_positive(rate):
    with pytest.raises(ValueError, match="rate"):
        poisson_workload(ALPACA, rate, 5)


@pytest.mark.parametrize(
    "lengths",
    [
        replace(ALPACA, mean_output=5000),
        replace(ALPACA, cv_prompt=0),
        replace(ALPACA, mean_prompt=0.5),
        replace(ALPACA, mean_prompt=math.nan),
    ],
)
def test_lengths_that_no_sample_can_have_are_refused(lengths):
    with pytest.raises(ValueError, match="mean"):
        poisson_workload(lengths, 1, 5)


@pytest.mark.parametrize(
    ("arrival", "prompt", "output", "message"),
    [
        ([], [], [], "n > 0"),
        ([0, 1], [3], [4], "must be"),
        ([0, 2, 1], [1, 1, 1], [1, 1, 1], "request 2: arrival"),
        ([-1, 2], [1, 1], [1, 1], "request 0: arrival"),
        ([0, math.nan], [1, 1], [1, 1], "request 1: arrival"),
        ([0, math.inf], [1, 1], [1, 1], "request 1: arrival"),
        ([0, 1], [1, 0], [1, 1], "request 1: prompt must be at least 1, got 0"),
        ([0, 1], [1, 1], [-3, 1], "request 0: output"),
        ([0, 1], [1.5, 1], [1, 1], "whole numbers"),
    ],
)
def test_an_impossible_workload_names_the_request(arrival, prompt, output, message):
    with pytest.raises(ValueError, match=message):
        Workload(np.array(arrival), np.array(prompt), np.array(output))


def write(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:48.1805900,396,109\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,374,44\n"
        "2024-05-10 02:00:01.509930+02:00,396,109\n",
        "arrival,input_tokens,output_tokens\n7,374,44\n8.5,396,109\n",
        "\ufeffid, Output_Tokens ,arrival,input_tokens\r\n"
        "a,44,0,374\r\n\r\nb,109,1.5,396\r\n",
    ],
    ids=["Azure 2023", "time zones", "numbers", "any order, BOM, CRLF, blank line"],
)
def test_public_traces_are_read(tmp_path, text):
    w = read_trace(write(tmp_path, text))
    np.testing.assert_allclose(w.arrival, [0, 1.5], atol=1e-6)
    assert w.prompt.tolist() == [374, 396]
    assert w.output.tolist() == [44, 109]
    assert w.name == "trace"


HEAD = "arrival,input_tokens,output_tokens\n0,5,5\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: 0 columns for arrival"),
        ("arrival,input_tokens\n1,2\n", "line 1: 0 columns for output.*generatedtok"),
        ("time,arrival,input_tokens,output_tokens\n", "line 1: 2 columns for arrival"),
        ("arrival,input_tokens,output_tokens\n", "no requests"),
        (HEAD + "1,abc,5\n", "line 3: prompt .* got 'abc'"),
        (HEAD + "1,5,0\n", "line 3: output .* got '0'"),
        (HEAD + f"1,{10**20},5\n", "line 3: prompt .* got '1000"),
        (HEAD + f"1,5,{1 << 62}\n", "line 3: output .* < 16777216"),
        (HEAD + f"1,5,{'9' * 5000}\n", "line 3: output .* got '9{40}'$"),
        (HEAD + "1,5,-2\n", "line 3: output .* got '-2'"),
        (HEAD + "1,5.5,2\n", "line 3: prompt .* got '5.5'"),
        (HEAD + "1,5\n", "line 3: 2 fields, the header has 3"),
        (HEAD + "1,5,5,5\n", "line 3: 4 fields"),
        (HEAD + "\n\nyesterday,5,5\n", "line 5: arrival .* got 'yesterday'"),
        (HEAD + "nan,5,5\n", "line 3: arrival must be finite"),
        (HEAD + '1,5,"5\n', "line 3: not CSV"),
        (HEAD + "2,5,5\n1,5,5\n", "line 4: arrives before .* line 3"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path, text, message):
    with pytest.raises(TraceError, match=message):
        read_trace(write(tmp_path, text))


def test_bytes_that_are_no_text_are_no_trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(HEAD.encode() + b"\xff\xfe\x00\n")
    with pytest.raises(TraceError, match="line 3: not UTF-8"):
        read_trace(path)


@pytest.mark.skipif(not AZURE.exists(), reason="the real trace is not beside us")
def test_the_azure_trace_is_read_whole():
    w = read_trace(AZURE)
    assert len(w) == 19_366
    assert w.prompt.mean() == pytest.approx(1154.7, abs=0.05)
    assert w.output.mean() == pytest.approx(211.1, abs=0.05)
    assert 3400 < w.arrival[-1] < 3700
    short = w.no_longer_than(4096)
    assert len(short) < len(w)
    assert short.total.max() <= 4096
