"""A report sends a student to a section that exists."""

import re
from pathlib import Path

import pytest

from paged_kv.checks.registry import EXERCISES
from paged_kv.messages import use_language

LESSONS = Path(__file__).parents[2] / "course" / "lessons"
QUOTED = {"ru": "(.+), «(.+)»", "en": "(.+), “(.+)”"}
PLACES = {case.lesson for e in EXERCISES.values() for case in e.cases}


@pytest.mark.parametrize("lang", QUOTED)
def test_every_lesson_section_exists(lang):
    use_language(lang)
    for place in sorted(lesson() for lesson in PLACES):
        lesson, section = re.fullmatch(QUOTED[lang], place).groups()
        (master,) = LESSONS.glob(f"{lesson.replace('.', '_')}_*.py")
        assert f"\n## {section}\n" in master.read_text(encoding="utf-8"), place
