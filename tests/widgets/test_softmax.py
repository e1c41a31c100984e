"""The online-softmax stepper, against softmax computed in another way."""

import numpy as np
import pytest

from paged_kv import BlockPool, Sequence, paged_attention
from paged_kv.messages import use_language
from paged_kv.widgets import SoftmaxStepper
from paged_kv.widgets.softmax import example
from tests.widgets.markup import parse
from tests.widgets.students import RIGHT, ListPool


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setattr("paged_kv.messages._current", None)
    use_language("en")


def number(text):
    return float(text.replace("−", "-").replace(",", ""))


def shown(stepper):
    return parse(stepper.picture()._repr_html_())


def state(stepper):
    """Return {sign: number} of the running state."""
    rows = shown(stepper).one("table", "run").all("tr")
    found = {row.one("th").text: row.one("td", "val").words for row in rows}
    assert found.pop("acc") == "↓"
    return {sign: number(text) for sign, text in found.items()}


def sums(stepper):
    """Return {row head: numbers} of the lower table."""
    rows = shown(stepper).one("table", "ht").one("tbody").all("tr")
    return {
        row.one("th").words: [number(cell.text) for cell in row.all("td")]
        for row in rows
    }


def scores_of(pool, seq, q, head=0, slots=None):
    """Return scores and values, float64, of `slots` slots or of the tokens alone."""
    slots = len(seq) if slots is None else slots
    size = pool.k.shape[2]
    at = [(seq.block_table[t // size], t % size) for t in range(slots)]
    kv_head = head // (len(q) // pool.k.shape[3])
    K, V = (np.array([a[0, b, s, kv_head] for b, s in at], float)
            for a in (pool.k, pool.v))  # fmt: skip
    return K @ np.asarray(q, float)[head] / np.sqrt(pool.k.shape[4]), V


def softmax_output(scores, V):
    weights = np.exp(scores)
    return weights @ V / weights.sum()


def test_each_step_shows_the_state_of_the_tokens_so_far():
    pool, seq, q = example()
    scores, V = scores_of(pool, seq, q)
    previous = -np.inf
    for step in range(3):
        stepper = SoftmaxStepper(step=step)
        seen, values = scores[: 16 * step + 16], V[: 16 * step + 16]
        weights = np.exp(seen - seen.max())
        assert state(stepper) == {
            "m": pytest.approx(seen.max(), abs=0.005),
            "α": pytest.approx(np.exp(previous - seen.max()), abs=0.0005),
            "l": pytest.approx(weights.sum(), abs=0.005),
        }
        assert sums(stepper)["= acc"] == pytest.approx(weights @ values, abs=0.005)
        previous = seen.max()


def test_the_output_is_that_of_paged_attention():
    pool, seq, q = example()
    expected = paged_attention(pool, seq, 0, q, 8**-0.5)[0]
    stepper = SoftmaxStepper(step=3)
    assert stepper.reading.trace().out == pytest.approx(expected, abs=1e-6)
    rows = sums(stepper)
    assert rows["output acc ÷ l = acc ÷ 8.06"] == pytest.approx(expected, abs=0.005)
    assert "max|diff| < 0.000001" in repr(stepper.picture())


def test_without_rescaling_each_block_keeps_the_scale_it_was_added_with():
    pool, seq, q = example()
    scores, V = scores_of(pool, seq, q)
    scale = np.maximum.accumulate([scores[i : i + 16].max() for i in (0, 16, 32)])
    weights = np.exp(scores - np.repeat(scale, 16)[:40])
    wrong = weights @ V / weights.sum()
    difference = np.abs(wrong - softmax_output(scores, V)).max()
    stepper = SoftmaxStepper(step=3, rescale=False)
    (warning,) = shown(stepper).all("p", "warn")
    assert number(warning.words.split("= ")[1]) == pytest.approx(difference, abs=0.005)
    assert difference > 0.1


def test_without_the_mask_stale_slots_are_read():
    pool, seq, q = example()
    scores, V = scores_of(pool, seq, q, slots=48)
    difference = np.abs(
        softmax_output(scores, V) - softmax_output(scores[:40], V[:40])
    ).max()
    stepper = SoftmaxStepper(step=2, mask=False)
    (warning,) = shown(stepper).all("p", "warn")
    assert number(warning.words.split("= ")[1]) == pytest.approx(difference, abs=0.005)
    assert difference > 0.1
    assert state(stepper)["m"] == pytest.approx(scores.max(), abs=0.005)


def test_the_boxes_and_buttons_change_the_picture():
    stepper = SoftmaxStepper()
    assert stepper.previous.disabled
    assert not shown(stepper).all("p", "warn")
    stepper.no_mask.value = True
    assert "Without the mask" in shown(stepper).one("p", "warn").words
    stepper.no_rescale.value = True
    assert "Without rescaling and without" in shown(stepper).one("p", "warn").words
    for _ in range(5):
        stepper.next.click()
    assert stepper.slider.value == 3
    assert stepper.next.disabled


@pytest.mark.parametrize("step", [0, 1, 2])
def test_rounded_numbers_of_the_example_add_up(step):
    stepper = SoftmaxStepper(step=step)
    rows = list(sums(stepper).values())
    assert np.round(np.add(rows[0], rows[1]), 2).tolist() == rows[2]
    tree = shown(stepper)
    cells = tree.one("tr", "wr").all("td")
    *weights, total = [number(cell.words.replace("Σ = ", "")) for cell in cells]
    assert round(sum(weights), 2) == total
    l_row = tree.one("table", "run").all("tr")[2]
    alpha, before, added = map(
        number, l_row.one("code").text.replace("·", "+").split("+")
    )
    assert round(alpha * before + added, 2) == state(stepper)["l"]


def test_masked_slots_show_minus_infinity_and_no_weight():
    tree = shown(SoftmaxStepper(step=2))
    scores = [cell.words for cell in tree.one("tr", "sr").all("td", "mk")]
    weights = [cell.words for cell in tree.one("tr", "wr").all("td", "mk")]
    assert scores == ["−∞"] * 8
    assert weights == ["0"] * 8


def filled(length, block_size, n_heads, n_kv_heads, seed=1):
    random = np.random.default_rng(seed)
    pool = BlockPool(40, 2, n_kv_heads, 16, block_size=block_size)
    pool.k[:] = pool.v[:] = np.nan
    seq = Sequence(pool, "req0")
    seq.extend(*random.normal(size=(2, 2, length, n_kv_heads, 16)))
    return pool, seq, random.normal(size=(n_heads, 16))


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 33])
@pytest.mark.parametrize("block_size", [1, 4, 64])
def test_any_length_block_size_and_head(length, block_size):
    pool, seq, q = filled(length, block_size, n_heads=6, n_kv_heads=3)
    expected = paged_attention(pool, seq, 1, q, 0.25)
    for head in (0, 1, 5):
        stepper = SoftmaxStepper(pool, seq, 1, q, 0.25, head)
        for step in range(-(-length // block_size) + 1):
            stepper.slider.value = step
            shown(stepper)
        out = stepper.reading.trace().out
        assert out == pytest.approx(expected[head], abs=1e-5)


def test_nan_in_stale_slots_spoils_the_output_and_is_shown():
    pool, seq, q = filled(6, 4, 6, 3)
    stepper = SoftmaxStepper(pool, seq, 0, q, step=1)
    assert "NaN" not in repr(stepper.picture())
    stepper.no_mask.value = True
    assert "max|diff| = NaN" in repr(stepper.picture())
    assert "NaN" in shown(stepper).one("p", "warn").words


def test_a_full_last_block_needs_no_mask():
    pool, seq, q = filled(8, 4, 6, 3)
    stepper = SoftmaxStepper(pool, seq, 0, q, mask=False, step=1)
    assert "happens to stay right" in shown(stepper).one("p", "warn").words


def test_a_students_pool_is_read_as_it_is():
    pool = ListPool(4, 1, 1, 8)
    seq = RIGHT[0](pool, "a")
    random = np.random.default_rng(2)
    for k, v in random.normal(size=(20, 2, 1, 1, 8)).astype(np.float32):
        seq.append(k, v)
    q = random.normal(size=(2, 8))
    stepper = SoftmaxStepper(pool, seq, 0, q, head=1)
    scores, V = scores_of(pool, seq, q, head=1)
    expected = softmax_output(scores, V)
    assert stepper.reading.trace().out == pytest.approx(expected, abs=1e-5)


def test_what_does_not_fit_is_refused():
    pool, seq, q = example()
    for arguments, message in (
        ({"pool": pool}, "together"),
        ({"q": q}, "together"),
        ({"pool": pool, "seq": seq, "q": q, "layer": 1}, "layer 1 does not exist"),
        ({"pool": pool, "seq": seq, "q": q, "layer": -1}, "layer"),
        ({"pool": pool, "seq": seq, "q": q, "head": 1}, "head 1 does not exist"),
        ({"pool": pool, "seq": seq, "q": q[:, :7]}, r"q must be \(n_heads, 8\)"),
        ({"pool": pool, "seq": seq, "q": q, "scale": np.inf}, "scale"),
        ({"pool": pool, "seq": Sequence(pool, "b"), "q": q}, "empty"),
        ({"step": 4}, "step 4 does not exist"),
    ):
        with pytest.raises(ValueError, match=message):
            SoftmaxStepper(**arguments)


def test_a_table_that_is_short_or_leaves_the_pool_is_refused():
    pool, seq, q = example()
    for table, message in (([7, 0], "need 3 blocks"), ([7, 0, 16], "outside 0…15")):
        seq.block_table = table
        with pytest.raises(ValueError, match=message):
            SoftmaxStepper(pool, seq, q=q)
