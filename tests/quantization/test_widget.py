"""The quantiser widget and the lesson's figures show what was computed."""

import re

import matplotlib.colors
import numpy as np
import pytest

from paged_kv.figures import quantization as figures
from paged_kv.messages import use_language
from paged_kv.quantization import SymmetricInt
from paged_kv.widgets.quantizer import (
    CHANNELS,
    TOKENS,
    Bench,
    QuantizerBench,
    body,
    quantizer_list,
)


@pytest.fixture(autouse=True)
def english():
    use_language("en")


def tables(html):
    """Return the cells of each table as rows of text."""
    found = []
    for table in re.findall(r"<tbody>(.*?)</tbody>", html):
        rows = re.findall(r"<tr>(.*?)</tr>", table)
        found.append([re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in rows])
    return found


@pytest.mark.parametrize("quantizer", quantizer_list(), ids=lambda q: q.name)
@pytest.mark.parametrize("strength", [1, 4, 16])
def test_tables_are_block_codes_and_error(quantizer, strength):
    bench = Bench.of(quantizer, strength)
    codes, params = quantizer.quantize(bench.block[:, None])
    read = quantizer.dequantize(codes, params)[:, 0]
    assert np.array_equal(bench.error, read - bench.block)
    shown = tables(body(bench))
    assert len(shown) == 3
    for cells, values, digits in zip(
        shown, (bench.block, bench.codes, bench.error), (1, 0, 2), strict=True
    ):
        numbers = np.array([[float(c.replace("−", "-")) for c in r] for r in cells])
        assert numbers.shape == (TOKENS, CHANNELS)
        assert np.abs(numbers - values).max() <= 0.5 * 10**-digits + 1e-6


def test_a_number_is_never_shown_as_nothing_or_as_minus_zero():
    for strength in (1, 16):
        for quantizer in quantizer_list():
            html = body(Bench.of(quantizer, strength))
            assert "<td></td>" not in re.sub(r"<td[^>]*>", "<td>", html)
            assert not re.search(r"−0(\.0+)?<", html)


def test_the_outlier_channel_is_marked_in_words_and_weight_not_only_in_colour():
    bench = Bench.of(SymmetricInt(4), 8)
    assert np.abs(bench.block).mean(axis=0).argmax() == bench.outlier
    html = body(bench)
    assert f"class=out>{bench.outlier}</th>" in html
    assert f"outlier channel {bench.outlier}" in html


def test_controls_redraw_and_the_still_picture_follows():
    widget = QuantizerBench(start="int4/head")
    before = widget._view.value
    widget.strength.value = 16
    assert widget._view.value != before
    assert "×16" in widget._label.value
    widget.quantizer.label = "int8/token"
    bundle = widget._repr_mimebundle_()
    assert bundle["text/plain"].startswith("int8/token, outlier ×16")
    assert widget._view.value in bundle["text/html"]


def test_an_own_quantiser_can_be_shown_and_its_name_is_no_markup():
    own = SymmetricInt(3)
    own.name = "<b>mine</b>"
    widget = QuantizerBench([own])
    assert "<b>mine</b>" not in widget._repr_mimebundle_()["text/html"]


def test_an_unknown_start_names_the_known_ones():
    with pytest.raises(ValueError, match="no quantiser 'int5'; there are: int8/head"):
        QuantizerBench(start="int5")


def test_russian_numbers_have_a_comma():
    use_language("ru")
    text = repr(QuantizerBench().picture())
    assert re.search(r"\d,\d", text)
    assert not re.search(r"\d\.\d", text)


FIGURES = {
    "channels": lambda: figures.channel_sizes(
        np.full((4, 8), [1, 1, 1, 1, 1, 1, 1, 5]), np.ones((4, 8))
    ),
    "tail": lambda: figures.tail_errors({"first": 0.0318, "second": 2.08}),
    "ladder": lambda: figures.bits_and_error(
        {"a": [(8, 0.04), (4, 0.8)], "b": [(5, 0.1)]}
    ),
    "window": lambda: figures.window_cost([32, 64, 128], {"a": [16, 16, 9.5]}),
    "sensitivity": lambda: figures.sensitivity(["a", "b"], [0.8, 0.1], [0.1, 0.05]),
}


@pytest.mark.parametrize("language", ["ru", "en"])
@pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES)
def test_figures_are_opaque_labelled_and_described(make, language):
    use_language(language)
    described = make()
    figure = described.figure
    assert matplotlib.colors.to_rgba(figure.get_facecolor()) == (1, 1, 1, 1)
    figure.canvas.draw()  # every formatter and layout works, without a warning
    for ax in figure.axes:
        assert ax.get_xlabel() or ax.get_xticklabels()
        ticks = " ".join(
            t.get_text() for t in [*ax.get_xticklabels(), *ax.get_yticklabels()]
        )
        assert not re.search(r"\d\.\d" if language == "ru" else r"\d,\d{1,2}\b", ticks)
    assert any(ax.get_ylabel() for ax in figure.axes) or make is FIGURES["tail"]
    assert re.search(r"\d", repr(described))


def test_the_description_has_the_main_numbers():
    assert "5.0 times" in repr(FIGURES["channels"]())
    assert "second: 2.080" in repr(FIGURES["tail"]())
    assert "a: 4.0 → 80, 8.0 → 4.0" in repr(FIGURES["ladder"]())
    assert "16.0 → 9.5" in repr(FIGURES["window"]())
    assert "a: K 80, V 10" in repr(FIGURES["sensitivity"]())
