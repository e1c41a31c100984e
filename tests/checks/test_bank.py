"""Every known mistake gets its own diagnosis; every right design passes."""

import importlib
import re

import numpy as np
import pytest

import paged_kv
from paged_kv.checks import check
from paged_kv.checks.registry import EXERCISES
from paged_kv.messages import use_language
from tests.checks import (
    different_attention,
    different_block_pool,
    different_sharing,
    mistakes_attention,
    mistakes_block_pool,
    mistakes_sharing,
)
from tests.checks.student import (
    ASKED,
    answer,
    changed_source,
    right_source,
    run_cell,
)

BANK = {
    "09.1": mistakes_block_pool.MISTAKES,
    "09.2": mistakes_attention.MISTAKES,
    "09.3": mistakes_sharing.MISTAKES,
}
DIFFERENT = {
    "09.1": different_block_pool.solutions(right_source("09.1")),
    "09.2": different_attention.solutions(right_source("09.2")),
    "09.3": different_sharing.solutions(right_source("09.3")),
}
# The banks of the optional exercises stand beside the tests of their subjects.
OPTIONAL = {
    "09.4": "tests.caches.test_exercise",
    "09.5": "tests.quantization.test_exercise",
    "09.6": "tests.gpu.test_exercise",
}
ALL = [
    pytest.param(exercise, mistake, id=f"{exercise} {mistake.name}")
    for exercise, mistakes in BANK.items()
    for mistake in mistakes
]
RIGHT = [
    pytest.param(exercise, source, id=f"{exercise} {name}")
    for exercise, sources in DIFFERENT.items()
    for name, source in sources.items()
]


@pytest.mark.parametrize(("exercise", "mistake"), ALL)
def test_a_mistake_gets_its_own_diagnosis(exercise, mistake):
    source = changed_source(exercise, mistake.changes)
    report = check(exercise, *answer(exercise, source))
    assert (report.state, report.code) == (mistake.state, mistake.code), report
    assert mistake.says in report.message
    _expect_complete(report)
    _expect_lines_run(exercise, source, report)

    use_language("ru")
    russian = check(exercise, *answer(exercise, source))
    assert russian.code == mistake.code
    assert re.search("[а-я]", russian.message), russian.message
    assert {s.label for s in russian.sections}.isdisjoint(
        s.label for s in report.sections
    )


def _expect_complete(report):
    text = repr(report)
    labels = {section.label for section in report.sections}
    assert {"What was run", "Lesson", "Hint"} <= labels, text
    assert {"Expected", "Got"} <= labels or report.state == "raised", text
    assert f'hint("{report.exercise}", 1)' in text
    assert not re.search(r"0x[0-9a-f]{4}|/\w+/\w+|all tests", text), text


def _expect_lines_run(exercise, source, report):
    """The operations that are shown can be pasted into a cell as they are."""
    cell = run_cell(source)
    names = {name: cell[name] for name in ASKED[exercise]}
    given = {"BlockPool": paged_kv.BlockPool, "Sequence": paged_kv.Sequence}
    namespace = {"np": np, **given, **names}
    (shown,) = (s for s in report.sections if s.label == "What was run")
    for n, line in enumerate(shown.lines):
        if line.startswith("%timeit "):
            continue
        try:
            exec(line, namespace)
        except Exception:
            # Only what was meant to fail, or the failure that the report is about.
            assert "  # " in line or n == len(shown.lines) - 1, line


@pytest.mark.parametrize(("exercise", "source"), RIGHT)
def test_a_different_right_solution_passes(exercise, source):
    report = check(exercise, *answer(exercise, source))
    assert report.passed, report
    assert (report.state, report.code) == ("passed", "passed")


@pytest.mark.parametrize("exercise", BANK)
def test_the_bank_is_large_enough(exercise):
    assert len({m.code for m in BANK[exercise]}) >= 15
    assert len({m.name for m in BANK[exercise]}) == len(BANK[exercise])
    assert len(DIFFERENT[exercise]) > 6


def test_every_exercise_has_a_bank():
    assert {*BANK, *OPTIONAL} == {*EXERCISES}
    assert {e.id for e in EXERCISES.values() if e.optional} == {*OPTIONAL}


@pytest.mark.parametrize("exercise", OPTIONAL)
def test_the_bank_of_an_optional_exercise_is_large_enough(exercise):
    mistakes = importlib.import_module(OPTIONAL[exercise]).MISTAKES
    assert len({code for code, *_ in mistakes.values()}) >= 5
