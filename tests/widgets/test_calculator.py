"""The KV memory calculator, against the numbers of the lecture and plain arithmetic."""

import re

import pytest

from paged_kv import KVCacheSpec
from paged_kv.messages import use_language
from paged_kv.spec import GB
from paged_kv.widgets import KVCalculator
from paged_kv.widgets.calculator import DEVICES
from paged_kv.widgets.calculator_curve import ticks
from tests.widgets.markup import parse

KV_4K = 512 * 2**20
WEIGHTS = 8_030_261_248 * 2


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setattr("paged_kv.messages._current", None)
    use_language("en")


def shown(calculator):
    return parse(calculator.picture()._repr_html_())


def facts(calculator):
    """Return {name: (value, note)}."""
    items = shown(calculator).one("dl", "facts").all("div")
    return {
        item.one("dt").words: (item.one("b").words, item.one("span").words)
        for item in items
    }


def table(calculator, kind):
    """Return {row head: cells} of a table, its own heads left out."""
    rows = shown(calculator).one("table", kind).one("tbody").all("tr")
    return {row.one("th").words: [c.words for c in row.all("td")] for row in rows}


def number(text):
    return float(re.sub(r"[^\d.]", "", text))


def test_the_numbers_of_the_lecture():
    found = facts(KVCalculator())
    assert found["One token"] == ("128 KiB", "131,072 B")
    assert found["A block of 16 tokens"][0] == "2 MiB"
    assert found["Fit, reserved"] == ("13", "12.5% of the slots used")
    assert found["Fit, paged"] == ("111", "8.5 times as many")
    assert found["Reading one request's KV"] == ("160 µs", "512 MiB")
    rows = table(KVCalculator(), "num")
    assert rows["paged"][0] == "111"
    assert rows["paged"][-1] == "2.60"
    assert rows["limit"][-2] == "6,240"


@pytest.mark.parametrize(("device", "micros"), [("A100 80GB", 268), ("H200", 112)])
def test_decode_time_of_other_devices(device, micros):
    found = facts(KVCalculator(device=device))
    assert found["Reading one request's KV"][0] == f"{micros} µs"


@pytest.mark.parametrize("batch", [1, 40, 111])
def test_step_and_throughput_are_those_of_the_roofline(batch):
    calculator = KVCalculator(batch=batch)
    step = (WEIGHTS + batch * KV_4K) / 3.35e12
    row = table(calculator, "num")["chosen"]
    assert number(row[0]) == batch
    assert number(row[2]) == pytest.approx(1e3 * step, abs=0.005)
    assert number(row[3]) == pytest.approx(100 * WEIGHTS / 3.35e12 / step, abs=0.05)
    assert number(row[4]) == pytest.approx(batch / step, abs=0.5)


def test_parts_of_memory_add_up_in_both_units():
    rows = table(KVCalculator(), "mem")
    parts = [rows[name] for name in ("weights", "other things", "left for the cache")]
    assert sum(number(part[1]) for part in parts) == pytest.approx(80, abs=0.02)
    binary = sum(number(part[2]) for part in parts)
    assert binary == pytest.approx(80e9 / 2**30, abs=0.02)
    assert number(rows["weights"][1]) == pytest.approx(16.06)
    assert number(rows["reserved: 13 × 4 GiB"][2]) == 52
    assert number(rows["paged: 111 × 512 MiB"][2]) == 55.5


def test_controls_change_the_numbers():
    calculator = KVCalculator()
    calculator.context.value = 8192
    assert facts(calculator)["Fit, paged"][0] == "55"
    calculator.batch.value = 55
    assert table(calculator, "num")["chosen"][0] == "55"
    calculator.model.value = "llama-2-7b"
    assert facts(calculator)["One token"][0] == "512 KiB"
    calculator.dtype.value = "int8"
    assert facts(calculator)["One token"][0] == "256 KiB"
    # The weights stay as they are published.
    assert number(table(calculator, "mem")["weights"][1]) == pytest.approx(13.48)
    calculator.device.value = "H200"
    assert "141.00 GB" in shown(calculator).one("table", "mem").one("caption").words


def test_own_numbers_are_asked_for_where_they_count():
    calculator = KVCalculator()
    assert calculator.layers.value == 32
    calculator.model.value = "own"
    calculator.layers.value, calculator.heads.value = 80, 8
    calculator.weights.value = 10
    calculator.device.value = "own"
    calculator.memory.value, calculator.bandwidth.value = 24, 1
    assert facts(calculator)["One token"][1] == f"{2 * 80 * 8 * 128 * 2:,} B"
    rows = table(calculator, "mem")
    assert number(rows["left for the cache"][1]) == 10
    assert number(rows["weights"][1]) == 10
    calculator.model.value = "llama-3-8b"
    assert calculator.layers.value == 32


def test_nobody_holds_more_than_is_allowed():
    calculator = KVCalculator()
    calculator.context.value = 65536
    assert calculator.max_len.value == 65536
    calculator.max_len.value = 1024
    assert calculator.context.value == 1024


def test_a_length_between_powers_of_two_is_kept():
    calculator = KVCalculator(context=5000)
    assert calculator.plan().context == 5000
    assert facts(calculator)["Fit, paged"][0] == str(
        int((80 * GB - WEIGHTS - 4 * GB) // 2**21 // 313)
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", ["llama-3-8b", "opt-13b", "deepseek-v3"])
@pytest.mark.parametrize("batch", [1, 512])
def test_any_choice_has_a_picture(model, device, batch):
    calculator = KVCalculator(model, device, 131072, 131072, batch)
    shown(calculator)
    assert "inf" not in repr(calculator.picture())


def test_what_does_not_fit_is_said():
    assert "Nothing is left for the cache: the weights take 1,342.05 GB" in repr(
        KVCalculator("deepseek-v3").picture()
    )
    assert "A batch of 300 does not fit: there is room for 111 requests." in repr(
        KVCalculator(batch=300).picture()
    )
    text = repr(KVCalculator(batch=1, memory=21 * GB, max_len=65536).picture())
    assert "Reserved in full, not even one request fits." in text
    text = repr(KVCalculator(memory=20.1 * GB).picture())
    assert "Not even one request of 4,096 tokens fits." in text


def test_nothing_is_compared_with_none():
    assert facts(KVCalculator("deepseek-v3"))["Fit, paged"] == ("0", "–")
    only_paged = facts(KVCalculator(batch=1, memory=21 * GB, max_len=65536))
    assert only_paged["Fit, paged"][1] == "–"
    assert only_paged["Fit, reserved"] == ("0", "–")


def test_own_spec_keeps_its_name():
    spec = KVCacheSpec(80, 8, 128, n_params=72_700_000_000, name="Qwen-2.5-72B")
    calculator = KVCalculator(spec, "H200")
    assert repr(calculator.picture()).startswith("Qwen-2.5-72B")
    assert facts(calculator)["One token"][1] == "327,680 B"


def test_the_picture_shows_its_marks_where_the_numbers_are():
    curve = shown(KVCalculator()).one("div", "roof")
    labels = {text.attributes["data-t"] for text in curve.all("b")}
    assert {"reserved: 13 → 1,890", "chosen: 32 → 3,225", "paged: 111 → 4,915"} < labels
    circle = curve.one("circle").attributes
    beyond = curve.one("path", "not").attributes["d"]
    assert beyond.startswith(f"M{circle['cx']} {circle['cy']}L")


@pytest.mark.parametrize("top", [8.0, 144.0, 666.6, 6614.3, 1e6, 0.3])
def test_ticks_are_round_and_few(top):
    found = ticks(top)
    assert found[0] == 0
    assert found[-1] <= top
    assert 3 <= len(found) <= 6
    step = found[1]
    assert float(f"{step:.0e}") == pytest.approx(step)


def test_what_cannot_be_is_refused():
    for arguments, message in (
        ({"model": "gpt"}, "unknown model 'gpt'"),
        ({"device": "abacus"}, "unknown device 'abacus'; known: H100 SXM"),
        ({"context": 40_000}, "context 40000 is above max_len 32768"),
        ({"context": 0}, "context must be a whole number >= 1"),
        ({"batch": 1.5}, "batch"),
        ({"memory": float("nan")}, "memory must be finite"),
        ({"bandwidth": 0}, "bandwidth must be above 0"),
        ({"other": -1}, "other must be finite and >= 0"),
    ):
        with pytest.raises(ValueError, match=message):
            KVCalculator(**arguments)
