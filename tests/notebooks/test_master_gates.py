"""Every fault in a master is found, and named by file, line and key."""

import pytest

# what is wrong: (master, text, its replacement, text of the blamed line, message)
# The line is looked up in the spoilt master; "" is the master as a whole (line 1).
STRUCTURE = {
    "no key": ("lesson", 'key="numbers"', "", "# ru: Числа", "[] the key is not"),
    "bad key": ("lesson", '"numbers"', '"Числа"', "# ru: Числа", "[Числа] the key is"),
    "key twice": ("lesson", '"figure"', '"numbers"', "import mat", "[numbers] the key"),
    "no lang": ("lesson", ' lang="ru"', "", "# Память", "[title] lang is not"),
    "no en side": (
        "lesson",
        'lang="en"',
        'lang="ru"',
        "# Память",
        "[title] no ru cell",
    ),
    "sides apart": (
        "lesson",
        '# %% [markdown] key="title" lang="en"',
        '# %% key="between"\n1\n\n# %% [markdown] key="title" lang="en"',
        "# Память",
        "[title] no ru cell",
    ),
    "plain quotes": ("lesson", 'r"""', '"""', "# Память", "[title] the body is not"),
    "code's placeholder": (
        "lesson",
        "- one",
        "- {{lang}}",
        "# Memory",
        "[title] {{lang}} is",
    ),
    "unknown metadata": (
        "lesson",
        "tags=",
        "tag=",
        "print(f",
        "[time] unknown metadata",
    ),
    "hiding tag": (
        "lesson",
        '"computed-time"',
        '"raises-exception"',
        "print(f",
        "[time] the tag 'raises-exception'",
    ),
    "unknown copy": (
        "exercise",
        'only="solution"',
        'only="teacher"',
        "Ответ.",
        "[answer] only= is for exercises",
    ),
    "copy on one side": (
        "exercise",
        ' only="solution"',
        "",
        "Ответ.",
        "[answer] no ru cell",
    ),
    "text before cells": (
        "index",
        "# %%",
        "import os\n\n# %%",
        "",
        "text stands before",
    ),
    "no title": ("lesson", "# Память", "Память", "", "the first cell is not"),
    "bad minutes": ("lesson", "30", "half an hour", "", "minutes is not"),
    "no difficulty": ("exercise", "#     difficulty: 2\n", "", "", "the header"),
    "bad difficulty": (
        "exercise",
        "difficulty: 2",
        "difficulty: 7",
        "",
        "difficulty is",
    ),
    "half a summary": ("lesson", "#       en:", "#       de:", "", "summary has no"),
    "nested region": (
        "exercise",
        "    top =",
        "        ### BEGIN SOLUTION\n    top =",
        "        ### BEGIN SOLUTION",
        "[task] BEGIN SOLUTION inside the region",
    ),
    "unclosed region": (
        "exercise",
        "    # STUB: raise NotImplementedError",
        "    ### BEGIN SOLUTION\n    # STUB: raise NotImplementedError",
        "    # STUB: raise",
        "[task] a STUB out of place",
    ),
    "marker not exact": (
        "exercise",
        "    # STUB: raise NotImplementedError",
        "    # STUB: raise NotImplementedError\n    ### BEGIN  SOLUTION\n    pass",
        "    ### BEGIN  SOLUTION",
        "[task] a STUB out of place, or a solution marker that is not exact",
    ),
    "region to the end": (
        "exercise",
        "    # STUB: raise NotImplementedError",
        "    # STUB: pass\n    ### BEGIN SOLUTION\n    pass",
        "    ### BEGIN SOLUTION\n    pass",
        "[task] BEGIN SOLUTION is never closed",
    ),
    "no stub to the end": (
        "exercise",
        "    # STUB: raise NotImplementedError",
        "    # STUB: pass\n    ### BEGIN SOLUTION\n    pass\n    ### END SOLUTION\n",
        "    ### END SOLUTION\n\n",
        "[task] no STUB line directly after",
    ),
    "unopened region": (
        "exercise",
        "    ### BEGIN SOLUTION\n",
        "",
        "    ### END SOLUTION",
        "[task] END SOLUTION without BEGIN",
    ),
    "no stub": (
        "exercise",
        "    ### END SOLUTION\n",
        "    ### END SOLUTION\n    pass\n",
        "    ### END SOLUTION",
        "[task] no STUB line directly after",
    ),
    "stub elsewhere": (
        "exercise",
        "    # STUB: # ru",
        "  # STUB: # ru",
        "    ### END SOLUTION",
        "[task] no STUB line directly after",
    ),
    "region in a lesson": (
        "lesson",
        "figure, axes =",
        "### BEGIN SOLUTION\n1\n### END SOLUTION\n# STUB: 2\nfigure, axes =",
        "import mat",
        "[figure] only exercises",
    ),
    "strict by hand": (
        "exercise",
        "    allocate,  #",
        "    allocate, strict=True  #",
        "check(\n",
        "[check] strict= is added by the build",
    ),
}

TEXT = {
    "headings": (
        "lesson",
        "# Memory",
        "## Memory",
        "# Память",
        "the sides differ in h",
    ),
    "formulas": ("lesson", "neq 0.5", "neq 0.6", "# Память", "the sides differ in f"),
    "code spans": (
        "lesson",
        "MiB or `n`",
        "MiB or `m`",
        "# Память",
        "differ in code sp",
    ),
    "lists": (
        "lesson",
        "- one\n",
        "- one\n- more\n",
        "# Память",
        "the sides differ in l",
    ),
    "links": ("lesson", "en/09.1_pool", "en/09.1_pools", "# Память", "differ in links"),
    "wrong language": (
        "lesson",
        "exercises/ru",
        "exercises/en",
        "# Память",
        "the sides differ in links",
    ),
    "images": (
        "lesson",
        "- one",
        "- ![p](p.png)",
        "# Память",
        "the sides differ in im",
    ),
    "tags": ("lesson", "- one", "- <b>one</b>", "# Память", "the sides differ in HTML"),
    "no alternative": (
        "lesson",
        "- один",
        "- ![](p.png)",
        "# Память",
        "alternative text",
    ),
    "no nbgrader": (
        "exercise",
        '"solution": true',
        '"solution": false',
        "def allocate",
        '[task] a solution region wants the metadata nbgrader={"grade": false,',
    ),
    "quotes": ("lesson", "- один", '- "один"', '- "один"', "ёлочки"),
    "breaking space": ("lesson", "16\u00a0МиБ", "16 МиБ", "Кэш (", "unit in '16 МиБ'"),
    "no space": ("lesson", "- один", "- 1,5%", "- 1,5%", "unit in '1,5%'"),
    "seconds": ("lesson", "- один", "- за 2 с.", "- за 2 с.", "unit in '2 с'"),
    "Latin letter": ("lesson", "занимает", "з\u0061нимает", "Кэш (", "in one word"),
    "Latin word": ("lesson", "- один", "- один c двумя", "- один", "a Latin 'c'"),
    "Cyrillic name": (
        "lesson",
        "_ = axes",
        "_\u0440lot = axes",
        "_\u0440lot",
        "in code",
    ),
    "Cyrillic prose": (
        "lesson",
        "- one",
        "- один снова",
        "# Memory",
        "English: 'снова'",
    ),
    "Cyrillic string": ("lesson", "2 + 2)", '2, "ещё")', 'print("{{', "code: 'ещё'"),
    "one-sided comment": (
        "lesson",
        "# en: The cell computes the numbers.\n",
        "",
        "# ru: Числа",
        "[numbers] comments in ru only",
    ),
    "trailing comment": (
        "lesson",
        "2 + 2)",
        "2 + 2)  # ru: four",
        'print("{{',
        "[numbers] a language marker",
    ),
}


@pytest.mark.parametrize("fault", {**STRUCTURE, **TEXT}.items(), ids=lambda f: f[0])
def test_a_planted_fault_is_named(course, fault):
    _, (name, old, new, blamed, message) = fault
    course.edit(name, old, new)
    problems = course.run("check")
    text = course.path(name).read_text(encoding="utf-8")
    line = text[: text.index(blamed)].count("\n") + 1
    place = f"{course.path(name).relative_to(course.root).as_posix()}:{line}: "
    assert any(p.startswith(place) and message in p for p in problems), problems


@pytest.mark.parametrize("fault", STRUCTURE.items(), ids=lambda f: f[0])
def test_a_master_that_cannot_be_read_changes_nothing(course, fault):
    _, (name, old, new, _, _) = fault
    path = course.root / "exercises/ru/09.1_pool.ipynb"
    before = path.stat().st_mtime_ns
    course.edit(name, old, new)
    assert course.run("notebooks")
    assert path.stat().st_mtime_ns == before


def test_the_faults_of_all_masters_are_told_at_once(course):
    course.edit("lesson", '"numbers"', '"Числа"')
    course.edit("exercise", "### BEGIN", "## BEGIN")
    course.edit("index", 'r"""', '"""')
    problems = course.run("check")
    assert len(problems) == 2  # regions are read once every master has a shape
    assert {p.split(":")[0] for p in problems} == {
        "course/lessons/09_0_memory.py",
        "course/index.py",
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("16\u00a0МиБ", "16&nbsp;МиБ"),
        ("16\u00a0МиБ", "16\u202fМиБ"),
        ("- один", "- блок 3 с копией, KV-кэш"),
        ("- один", "- «один „в“ другом»"),
        ("- один", "- <span title=\"x\">один</span>"),
        ("(*кэш*)", "*кэш*"),
        ("(*кэш*)", "(кэш)"),
        ('2 + 2)', '2 + 2)  # fruit: no marker'),
    ],
)  # fmt: skip
def test_sound_text_is_not_blamed(course, old, new):
    course.edit("lesson", old, new)
    if "span" in new:
        course.edit("lesson", "- one", '- <span title="x">one</span>')
    course.run("acknowledge")
    assert all("not as built" in p for p in course.run("check"))
