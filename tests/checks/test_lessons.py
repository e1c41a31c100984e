"""A report sends a student to a section that exists."""

import inspect
import re
from pathlib import Path

import pytest

from paged_kv.checks import check, lessons
from paged_kv.checks.cases import attention_causes
from paged_kv.checks.cases.attention_causes import CAUSES, lesson_of
from paged_kv.checks.registry import EXERCISES
from paged_kv.messages import use_language
from tests.checks.mistakes_attention import MISTAKES
from tests.checks.student import answer, changed_source

LESSONS = Path(__file__).parents[2] / "course" / "lessons"
QUOTED = {"ru": "(.+), «(.+)»", "en": "(.+), “(.+)”"}
PLACES = {case.lesson for e in EXERCISES.values() for case in e.cases}
PLACES |= {f for _, f in inspect.getmembers(lessons, inspect.isfunction)} - {lessons.tr}
# Flaws of one case that are taught in different sections.
TAUGHT = {
    "heads-tiled": lessons.heads,
    "one-kv-head": lessons.heads,
    "shapes-do-not-fit": lessons.heads,
    "table-ignored": lessons.slots,
    "tail-not-masked": lessons.slots,
    "token-for-block": lessons.slots,
    "no-rescale": lessons.online_softmax,
}


@pytest.mark.parametrize("lang", QUOTED)
def test_every_lesson_section_exists(lang):
    use_language(lang)
    for place in sorted(lesson() for lesson in PLACES):
        lesson, section = re.fullmatch(QUOTED[lang], place).groups()
        (master,) = LESSONS.glob(f"{lesson.replace('.', '_')}_*.py")
        assert f"\n## {section}\n" in master.read_text(encoding="utf-8"), place


@pytest.mark.parametrize("code", TAUGHT)
def test_a_mistake_is_sent_to_the_section_that_teaches_it(code):
    wrong = next(m for m in MISTAKES if m.code == code)
    report = check("09.2", *answer("09.2", changed_source("09.2", wrong.changes)))
    (section,) = (s for s in report.sections if s.label == "Lesson")
    assert report.code == code
    assert section.lines == (TAUGHT[code](),)


def test_flaws_with_a_place_of_their_own_exist():
    placed = {flaw for flaw in CAUSES if lesson_of(flaw)}
    assert placed == {*attention_causes._HEADS, *attention_causes._SLOTS}
