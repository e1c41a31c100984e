"""A number in prose that the cells do not back is found, in either notation."""

from decimal import Decimal
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from course.build.__main__ import read_masters
from course.build.numbers import CITED, SMALL, backed, computed, said
from course.build.prose import plain

ROOT = Path(__file__).parents[2]
LESSON = "course/lessons/09_0_memory.py"


def numbers(course):
    return [p for p in course.run("check") if CITED in p]


def say(course, ru, en):
    course.edit("lesson", "- один", f"- {ru}")
    course.edit("lesson", "- one", f"- {en}")


def test_a_number_that_a_cell_shows_passes_and_a_changed_one_does_not(course):
    say(course, "256 мкс", "256 µs")  # shown by [time]
    assert numbers(course) == []
    course.edit("lesson", "256 мкс", "257 мкс")
    course.edit("lesson", "256 µs", "257 µs")
    problems = numbers(course)
    assert [p.split(": ")[1].split(" is in")[0] for p in problems] == [
        "[title] 257",
        "[title] 257",
    ]
    assert all(p.startswith(f"{LESSON}:") for p in problems)


def test_a_changed_output_makes_the_sentence_wrong(course):
    say(course, "256 мкс", "256 µs")
    for lang in ("ru", "en"):
        path = f"notebooks/{lang}/09.0_memory.ipynb"
        notebook = course.notebook(path)
        notebook.cells[-1].outputs[0].text = "255 µs\n"
        course.write(path, nbformat.writes(notebook))
    assert len(numbers(course)) == 2


def test_an_exercise_may_say_what_its_solution_computes(course):
    course.edit("exercise", "## Два слова", "## Два слова\n\nИх 48.")
    course.edit("exercise", "## Two words", "## Two words\n\nThere are 48.")
    assert len(numbers(course)) == 2
    path = "solutions/ru/09.1_pool.ipynb"
    notebook = course.notebook(path)
    shown = v4.new_output("stream", name="stdout", text="48\n")
    notebook.cells[-1].outputs = [shown]
    course.write(path, nbformat.writes(notebook))
    (problem,) = numbers(course)
    assert "48 is in no output" in problem
    assert problem.startswith("course/exercises/09_1_pool.py:")


def test_a_cited_number_needs_a_source_and_a_sentence(course):
    say(course, "20,4 из 12 ГБ", "20.4 of 12 GB")
    assert len(numbers(course)) == 4
    course.write(
        CITED,
        '["lessons/09_0_memory"]\n16 = "a"\n"20.4" = "Fig. 2"\n12 = "b"\n13 = "c"\n'
        '["lessons/09_9_gone"]\n1 = "d"\n',
    )
    assert numbers(course) == [
        f"{CITED}: [lessons/09_0_memory] 13 is in no sentence; delete the line",
        f"{CITED}: no master lessons/09_9_gone",
    ]


@pytest.mark.parametrize("text", ["16 = 'a'", "[a]\nb = 'c'", "[a]\n1 = ' '", "=["])
def test_a_broken_list_of_citations_is_told(course, text):
    course.write(CITED, text)
    (problem,) = course.run("check")
    assert problem.startswith(f"{CITED}: not `[master]` with lines")


@pytest.mark.parametrize(
    ("lang", "text", "found"),
    [
        ("en", "15,728 slots, 8.5 times, 3, 4", ["15728", "8.5", "3", "4"]),
        ("ru", "15\u00a0728 слотов, в 8,5 раза; 3, 4", ["15728", "8.5", "3", "4"]),
        ("ru", "20,4–38,2\u00a0%", ["20.4", "38.2"]),
        ("en", "20.4–38.2%, 1.", ["20.4", "38.2", "1"]),
        ("en", "§3.1, Fig. 2, figures 2, 11 and 13, table 1, lesson 09.5", []),
        ("ru", "рис. 2, 11 и 13, таблица 1, рисунок 13, урок 09.5, модуль 08", []),
        ("en", "SOSP'23, in 2023, arXiv 2505.09343, CC BY 4.0, v0.8.0, 0.25.0", []),
        ("en", "Llama-3-8B, fp16, 8B, A100, Llama-2-13B, H2O, int8", []),
        ("en", "A100 with 40 GB", ["40"]),
    ],
)
def test_what_counts_as_a_number(lang, text, found):
    assert [value for _, value in said(text, lang)] == [*map(Decimal, found)]


@pytest.mark.parametrize(
    ("value", "known", "right"),
    [
        ("8.5", "8.538", True),
        ("8.5", "8.55", False),
        ("8.6", "8.55", True),
        ("9", "100", True),
        ("11", "10.9", False),
        ("111", "111", True),
        ("110", "111", False),
        ("2.60", "2.6", True),
        ("0.5", "5", False),
    ],
)
def test_what_backs_a_number(value, known, right):
    assert backed(Decimal(value), {Decimal(known)}) is right


def test_of_a_widget_the_plain_text_counts():
    cell = v4.new_code_cell("f(12_000, 1e6)")
    cell.outputs = [
        v4.new_output(
            "display_data", {"text/html": "<td>77</td>", "text/plain": "15,728 8.5 3,5"}
        )
    ]
    found = computed(v4.new_notebook(cells=[cell]))
    assert {Decimal(n) for n in ("12000", "1e6", "15728", "8.5", "3.5")} <= found
    assert Decimal(77) not in found


def test_in_the_real_lessons_most_wrong_numbers_are_seen():
    """The gate would be hollow if the cells showed every number there is."""
    seen = {"two digits": [], "more": []}
    for master in read_masters(ROOT, "lessons/"):
        path = f"notebooks/en/{master.stem}.ipynb"
        known = computed(nbformat.read(ROOT / path, as_version=4))
        for cell in master.cells:
            for _, value in said(plain(cell.source), "en") if cell.lang == "en" else []:
                unit = Decimal(1).scaleb(value.as_tuple().exponent)
                if not backed(value, known) or value == int(value) <= SMALL:
                    continue
                kind = "two digits" if value == int(value) < 100 else "more"
                seen[kind] += [not backed(value + d, known) for d in (unit, -unit)]
    shares = {kind: sum(caught) / len(caught) for kind, caught in seen.items()}
    assert shares["two digits"] > 0.5, shares
    assert shares["more"] > 0.75, shares
