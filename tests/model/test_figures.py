"""The figures of lesson 09.7 take what the lesson gives them."""

import pytest

from paged_kv.figures.model_serving import batch_curve, pool_sizes
from paged_kv.messages import tr, use_language
from paged_kv.model.measure import StepTime


@pytest.mark.parametrize("lang", ["ru", "en"])
def test_pools_are_named_by_their_blocks(lang):
    """Such names begin with a number, so the figure must say what they are."""
    use_language(lang)
    names = [tr("{n} blocks", n=8), tr("{n} blocks, {m} kept", n=8, m=2)]
    drawn = pool_sizes(names, [20.5, 30.5], [2.5, 5.0], [3, 0])
    left, _ = drawn.figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == names
    assert left.get_ylabel() == tr("pool")
    assert all(name in drawn.text for name in names)


def test_a_line_of_the_batch_ends_with_its_rate():
    use_language("en")
    times = {n: [StepTime(0.5, 0.5), StepTime(1, n / 100)] for n in (100, 300)}
    rates, *_ = batch_curve([1, 8], times).figure.axes
    assert [text.get_text() for text in rates.texts] == ["4", "2"]
    assert rates.texts[0].get_color() == rates.lines[0].get_color()
