import math
from xml.etree import ElementTree

import pytest

from paged_kv.serving import (
    ALPACA,
    BlockCounter,
    MaxReservation,
    Table,
    number,
    percent,
    poisson_workload,
    simulate,
    size,
    summary,
)

SPACE = "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("value", "digits", "en", "ru"),
    [
        (1234.56, 1, "1,234.6", f"1{SPACE}234,6"),
        (-2.5, 1, "−2.5", "−2,5"),
        (-0.04, 1, "0.0", "0,0"),
        (math.nan, 2, "–", "–"),
        (7, 0, "7", "7"),
    ],
)
def test_numbers_are_written_as_the_language_does(value, digits, en, ru, speak):
    for lang, wanted in (("en", en), ("ru", ru)):
        speak(lang)
        assert number(value, digits) == wanted


@pytest.mark.parametrize(("lang", "shown"), [("en", "12.5%"), ("ru", f"12,5{SPACE}%")])
def test_percent_stand_as_the_language_has_them(lang, shown, speak):
    speak(lang)
    assert percent(0.125, 1) == shown


@pytest.mark.parametrize(
    ("n_bytes", "en", "ru"),
    [
        (4, "4 B", "4 Б"),
        (4096, "4 KiB", "4 КиБ"),
        (1.875 * 2**20, "1.88 MiB", "1,88 МиБ"),
        (60 * 2**30, "60 GiB", "60 ГиБ"),
        (1024 * 2**30, "1 TiB", "1 ТиБ"),
    ],
)
def test_sizes_have_the_binary_unit_that_suits_them(n_bytes, en, ru, speak):
    for lang, wanted in (("en", en), ("ru", ru)):
        speak(lang)
        assert size(n_bytes) == wanted.replace(" ", SPACE)


def test_a_table_is_a_real_one_and_escapes_what_it_shows():
    table = Table({"<head>": ["a & b", "c"], "n": [1, 22]}, 'a "caption"')
    root = ElementTree.fromstring(table._repr_html_())
    assert root.find("caption").text == 'a "caption"'
    assert [cell.text for cell in root.find("thead/tr")] == ["<head>", "n"]
    assert [cell.get("scope") for cell in root.iter("th")] == ["col"] * 2 + ["row"] * 2
    assert [[cell.text for cell in row] for row in root.findall("tbody/tr")] == [
        ["a & b", "1"],
        ["c", "22"],
    ]
    assert repr(table).splitlines() == ['a "caption"', "<head>   n", "a & b    1",
                                        "c       22"]  # fmt: skip


def test_columns_have_one_length():
    with pytest.raises(ValueError, match="'b': 1"):
        Table({"a": [1, 2], "b": [3]}, "")


def test_a_table_may_be_given_by_its_rows():
    by_rows = Table.from_rows(["a", "b"], [[1, "x"], (2, "y")], "caption")
    assert repr(by_rows) == repr(Table({"a": [1, 2], "b": ["x", "y"]}, "caption"))
    for row in ([3], [3, "z", "?"]):
        with pytest.raises(ValueError, match="2 heads, but a row of \\[3"):
            Table.from_rows(["a", "b"], [[1, "x"], row], "caption")


def test_a_summary_has_a_row_per_system_in_both_languages(cost, speak):
    w = poisson_workload(ALPACA, 30, 50)
    results = [
        simulate(w, a, cost) for a in (MaxReservation(15728), BlockCounter(15728))
    ]
    for lang, paged in (("en", "Paged"), ("ru", "Блоки (vLLM)")):
        speak(lang)
        table = summary(results)
        assert [row[0] for row in table.rows] == ["Orca (Max)", paged]
        assert table.rows[1][5] == number(results[1].mean_batch, 2)
        assert table.caption == "Alpaca-like"
