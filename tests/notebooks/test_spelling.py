"""A misspelling is found wherever people read it, in either language."""

import re

import pytest

from course.build.spelling import TERMS, words

CATALOGUE = r"""
msgid ""
msgstr "Language: ru\nContent-Type: text/plain; charset=utf-8\n"

msgid "{n} block of `xyzzy`"
msgid_plural "{n} blocks"
msgstr[0] "{n} блок"
msgstr[1] "{n} блока"
msgstr[2] "{n} блоков"
"""


@pytest.fixture
def speller(course, tmp_path, monkeypatch):
    """The tiny course, with dictionaries of exactly the words that stand in it."""
    monkeypatch.setenv("DICPATH", str(tmp_path))
    course.write("README.md", "Words of a `guid`, [here](http://no.such/wrd).")
    course.write("paged_kv/messages/ru/core.po", CATALOGUE)
    for name in ("ru_RU", "en_GB"):
        (tmp_path / f"{name}.aff").write_text("SET UTF-8\n")
        (tmp_path / f"{name}.dic").write_text("0\n")
    found = {re.search(r" '([^']+)' is no word", p)[1] for p in course.run("spelling")}
    for name, letters in (("ru_RU", "[а-яё]"), ("en_GB", "[a-z]")):
        mine = [word for word in found if re.match(letters, word, re.IGNORECASE)]
        text = "\n".join([str(len(mine)), *mine])
        (tmp_path / f"{name}.dic").write_text(text, encoding="utf-8")
    assert {"Память", "Memory", "блоков", "guide"} & found == {
        "Память",
        "Memory",
        "блоков",
    }
    return course


def test_right_words_pass(speller):
    assert speller.run("spelling") == []


@pytest.mark.parametrize(
    ("name", "old", "new", "place", "word"),
    [
        (
            "lesson",
            "- один",
            "- адин",
            "course/lessons/09_0_memory.py:",
            "адин",
        ),
        ("lesson", "- one", "- wan", "course/lessons/09_0_memory.py:", "wan"),
        ("lesson", "[упражн", "[упражм", "course/lessons/09_0", "упражмение"),
        ("lesson", "- one", "- ![a wan](p.png)", "course/lessons/09_0", "wan"),
        ("lesson", "- one", "| a | b |\n|-|-|\n| c | wan |", "course/lessons/", "wan"),
        ("lesson", "# en: The cell", "# en: The sell", "course/lessons/", "sell"),
        ("lesson", "Where mem", "Wear mem", "course/lessons/09_0_memory.py:1:", "Wear"),
        ("exercise", "Ваш код", "Вашь код", "course/exercises/09_1_pool", "Вашь"),
        ("README.md", "Words", "Wurds", "README.md:", "Wurds"),
        ("paged_kv/messages/ru/core.po", "блока", "блака", "paged_kv/me", "блака"),
        ("paged_kv/messages/ru/core.po", "} blocks", "} bloks", "paged_kv/me", "bloks"),
    ],
)
def test_a_misspelling_is_named(speller, name, old, new, place, word):
    speller.edit(name, old, new)
    problems = speller.run("spelling")
    assert [p for p in problems if p.startswith(place) and f" '{word}' is no" in p]
    assert all(word in p or "'a'" in p or "'c'" in p or "'b'" in p for p in problems)


def test_a_listed_term_is_right_in_any_case(speller):
    speller.edit("lesson", "- one", "- Wan")
    speller.write(TERMS, "# wrong\nwan  # a unit\n")
    assert speller.run("spelling") == []


def test_a_comment_of_the_list_lists_nothing(speller):
    speller.edit("lesson", "- one", "- wan")
    speller.write(TERMS, "one  # wan\n")
    assert len(speller.run("spelling")) == 1


def test_a_term_takes_the_endings_of_its_model(speller, tmp_path):
    affixes = "SET UTF-8\nSFX S Y 1\nSFX S 0 s .\n"
    (tmp_path / "en_GB.aff").write_text(affixes)
    with (tmp_path / "en_GB.dic").open("a", encoding="utf-8") as file:
        file.write("\nblock/S\n")
    speller.edit("lesson", "- one", "- wans, Wan")
    assert len(speller.run("spelling")) == 2
    speller.write(TERMS, "wan/block")
    assert speller.run("spelling") == []
    speller.write(TERMS, "wan/block wen/xyzzy")
    assert speller.run("spelling") == [
        f"{TERMS}: wen/xyzzy: no dictionary has the model"
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("GQA, ShareGPT, fp16, v1 and 1-й", ["and"]),
        ("ref_count, pool.py, release() of {name}", ["of"]),
        ("the <b>bold</b> %(n)d &nbsp;", ["the", "bold"]),
        ("doesn’t, аллокатор-близнец", ["doesn't", "аллокатор-близнец"]),
    ],
)
def test_what_counts_as_a_word(text, found):
    assert list(words(text)) == found


def test_without_dictionaries_the_check_says_so_and_fails_in_ci(course, monkeypatch):
    monkeypatch.setattr("course.build.__main__.find_dictionaries", dict)
    monkeypatch.delenv("CI", raising=False)
    assert course.run("spelling") == []
    monkeypatch.setenv("CI", "true")
    (problem,) = course.run("spelling")
    assert problem.startswith("spelling NOT checked: no dictionary ru_RU and en_GB")
