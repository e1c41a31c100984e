"""Faults of committed notebooks: drift, outputs, links, leaks, the language lock."""

import json
import re

import nbformat
import pytest
from nbformat import v4

LESSON = "notebooks/ru/09.0_memory.ipynb"
EXERCISE = "exercises/en/09.1_pool.ipynb"
# `paged-kv reset` keeps a copy, and an exercise that was changed differs from it.
STALE_COPY = (
    f"paged_kv/commands/{EXERCISE}: not the exercise; `make notebooks` copies it"
)


def change(course, path, function):
    notebook = course.notebook(path)
    function(notebook)
    course.write(path, nbformat.writes(notebook))


def stdout(text):
    return v4.new_output("stream", name="stdout", text=text)


# --- drift from the masters


def test_an_edited_notebook_is_shown_with_its_diff(course):
    change(course, LESSON, lambda nb: nb.cells[1].update(source="print(5)"))
    (problem,) = course.run("check")
    assert problem.startswith(f"{LESSON}: [numbers] not as built\n")
    assert "\n    -print(5)\n" in problem
    assert '\n    +print("ru", Path.cwd().name, 2 + 2)' in problem


def test_a_lost_cell_is_shown(course):
    change(course, LESSON, lambda nb: nb.cells.pop(0))
    (problem,) = course.run("check")
    assert problem.startswith(f"{LESSON}: other cells\n")
    assert "+title" in problem


def test_metadata_of_an_editor_are_refused(course):
    change(course, LESSON, lambda nb: nb.metadata.update(widgets={"state": {}}))
    assert course.run("check") == [f"{LESSON}: its metadata are not those of a build"]


@pytest.mark.parametrize("text", ["not json", "{}", '{"nbformat": 4, "cells": 5}'])
def test_a_missing_a_broken_and_a_stray_notebook_are_told(course, text):
    (course.root / LESSON).unlink()
    course.write(EXERCISE, text)
    course.write("solutions/ru/09.9_old.ipynb", "{}")
    assert sorted(course.run("check")) == [
        f"{EXERCISE}: not built",
        f"{LESSON}: not built",
        STALE_COPY,
        "solutions/ru/09.9_old.ipynb: no master makes it;"
        " delete it or write the master",
    ]


def test_outputs_are_compared_by_text_and_images_by_presence(course):
    def image(notebook):
        return notebook.cells[2].outputs[0].data

    change(course, LESSON, lambda nb: image(nb).update({"image/png": "AA=="}))
    change(course, LESSON, lambda nb: nb.cells[1].outputs[0].update(text="ru ru 5\n"))
    assert course.run("check") == []
    (problem,) = course.run("check", "--execute")
    assert problem.startswith(f"{LESSON}: [numbers] not as built\n")
    assert "\n    -ru ru 5\n    +ru ru 4" in problem

    change(course, LESSON, lambda nb: image(nb).pop("image/png"))
    assert course.run("check") == [f"{LESSON}: [figure] a figure without its image"]


def test_a_notebook_stored_without_running_is_refused(course):
    def clear(notebook):
        for cell in notebook.cells[1:]:
            cell.update(execution_count=None, outputs=[])

    change(course, LESSON, clear)
    assert course.run("check") == [
        f"{LESSON}: [numbers] not run in order (None, not 1)"
    ]


# --- outputs


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            v4.new_output("stream", name="stderr", text="Warning: old"),
            "stderr: Warning",
        ),
        (
            v4.new_output("error", ename="KeyError", evalue="'x'"),
            "an exception: KeyError",
        ),
        (stdout("<function f at 0x7f00aa>"), "a memory address: '0x7f00aa'"),
        (stdout("<a.B object at somewhere>"), "a memory address: 'object at'"),
        (stdout("saved to /var/lib/model"), "an absolute path: '/var/lib'"),
        (stdout("at C:\\Users"), "an absolute path"),
        (stdout("took 1.23 s"), "seconds: '1.23 s'"),
        (stdout("12ms per token"), "seconds: '12ms'"),
        (stdout("за 3,5 мс"), "seconds: '3,5 мс'"),
        (stdout("ждали 3\u00a0с"), "seconds"),
        (v4.new_output("display_data", {}), "an output without text"),
        (
            v4.new_output(
                "display_data", {"application/vnd.jupyter.widget-view+json": {}}
            ),
            "a widget view",
        ),
        (v4.new_output("display_data", {"text/html": "<td>8 ms</td>"}), "seconds"),
    ],
)
def test_an_output_that_must_not_be_stored(course, output, message):
    change(course, LESSON, lambda nb: nb.cells[1].update(outputs=[output]))
    problems = course.run("check")
    assert any(p.startswith(f"{LESSON}: [numbers] {message}") for p in problems), (
        problems
    )


@pytest.mark.parametrize(
    "output",
    [
        stdout("used=42 free=22, 32 slots, 0x10, a/b/c, 3 с половиной"),
        v4.new_output(
            "display_data",
            {"text/html": "<style>b {transition: 0.2s}</style><td>1</td></table>"},
        ),
    ],
)
def test_a_harmless_output_is_not_refused(course, output):
    change(course, LESSON, lambda nb: nb.cells[1].update(outputs=[output]))
    assert course.run("check") == []


def test_russian_in_an_english_output_is_refused(course):
    change(course, EXERCISE, lambda nb: nb.cells[1].update(outputs=[stdout("блок")]))
    assert sorted(course.run("check")) == [
        f"{EXERCISE}: [setup] Russian in an English output: 'блок'",
        STALE_COPY,
    ]


def test_a_cell_that_raises_is_told_and_its_notebook_not_written(course):
    before = {p: (course.root / p).read_text() for p in (LESSON, EXERCISE)}
    course.edit("lesson", "2 + 2)", "1 / 0)")
    course.edit("exercise", "[7]", "[8]")
    fault = "[numbers] an exception: ZeroDivisionError: division by zero"
    assert course.run("notebooks") == [
        f"notebooks/{lang}/09.0_memory.ipynb: {fault}" for lang in ("ru", "en")
    ]
    assert (course.root / LESSON).read_text() == before[LESSON]
    assert (course.root / EXERCISE).read_text() != before[EXERCISE]


def test_a_kernel_that_dies_is_told(course):
    course.edit("lesson", "2 + 2)", "2)\nimport os\nos._exit(1)")
    before = (course.root / LESSON).read_text()
    problems = course.run("notebooks", "lessons")
    assert any(p.startswith(f"{LESSON}: DeadKernelError") for p in problems)
    assert (course.root / LESSON).read_text() == before


# --- leaks


@pytest.mark.parametrize(
    "leak",
    [
        lambda nb: nb.cells[0].update(source="Hint: `top = blocks.pop()`."),
        lambda nb: nb.cells[1].update(source="# top =  blocks.pop()"),
        lambda nb: nb.cells[1].update(outputs=[stdout("    top = blocks.pop()\n")]),
        lambda nb: nb.cells[1].update(
            outputs=[
                v4.new_output(
                    "display_data",
                    {"text/html": "<i>top</i> = <b>blocks</b>.pop<u>()</u>"},
                )
            ]
        ),
        lambda nb: nb.cells[0].update(source="<!-- # The top of the stack. -->"),
    ],
)
def test_a_line_of_the_solution_in_an_exercise_is_found(course, leak):
    change(course, EXERCISE, leak)
    assert any("] leak of a solution line: " in p for p in course.run("check"))


def test_the_build_refuses_to_write_a_leak(course):
    before = (course.root / EXERCISE).read_text()
    for old in ("## Два слова\n", "## Two words\n"):
        course.edit("exercise", old, f"{old}\n`top = blocks.pop()`\n")
    problems = course.run("notebooks", "exercises")
    assert [p.split(": ")[1:] for p in problems] == 2 * [
        ["[title] leak of a solution line", "top = blocks.pop()"]
    ]
    assert (course.root / EXERCISE).read_text() == before


def test_code_that_only_the_solution_has_is_secret_too(course):
    course.edit(
        "exercise",
        '# %% key="check"',
        '# %% key="more" only="solution"\nx = 1\n\n# %% key="check"',
    )
    course.edit("exercise", "## Two words", "## Two words x = 1")
    (problem,) = course.run("notebooks", "exercises")
    assert problem == f"{EXERCISE}: [title] leak of a solution line: x = 1"


def test_lines_that_say_nothing_or_stand_elsewhere_are_no_leak(course):
    # `return None` is trivial; `top = blocks.pop()` now stands in visible code too.
    visible = '# %% key="check"\n'
    course.edit("exercise", visible, f"{visible}blocks = [1]\ntop = blocks.pop()\n")
    for old in ("## Два слова\n", "## Two words\n"):
        course.edit(
            "exercise", old, f"{old}\nNot `return None` or `top = blocks.pop()`.\n"
        )
    assert course.run("notebooks", "exercises") == []


# --- links


@pytest.mark.parametrize(
    ("ru", "en"),
    [
        ("[a](../../exercises/ru/no.ipynb)", "[a](../../exercises/en/no.ipynb)"),
        ("[a](#Нет-такого)", "[a](#No-such)"),
        ("[a](/etc/hosts)", "[a](/etc/hosts)"),
        ("[a](../../../outside.md)", "[a](../../../outside.md)"),
        ("![p](no.png)", "![p](no.png)"),
        ('<a href="no.md">a</a>', '<a href="no.md">a</a>'),
    ],
)
def test_a_dead_link_is_told_on_both_sides(course, ru, en):
    course.edit("lesson", "- один", f"- {ru}")
    course.edit("lesson", "- one", f"- {en}")
    dead = [p for p in course.run("check") if "dead link" in p]
    assert [p.split("/")[1] for p in dead] == ["ru", "en"]


def test_links_of_the_guides_are_checked_too(course):
    course.write(
        "README.md", "# Two words, *three*\n\n[a](#two-words-three) [b](no.md)"
    )
    absolute = course.root.as_posix() + "/README.md"
    course.write("README.ru.md", "[a](README.md#no) [b](https://example.org/no)")
    course.write("course/README.md", f"[here, but nowhere else]({absolute})")
    course.write("docs/guide.md", "[c](../README.md#no)")
    assert sorted(course.run("check")) == [
        "README.md: dead link: no.md",
        "README.ru.md: dead link: README.md#no has no such heading",
        f"course/README.md: dead link: {absolute}",
        "docs/guide.md: dead link: ../README.md#no has no such heading",
    ]


def test_pictures_of_readmes_say_what_they_show(course):
    course.write("p.png", "")
    course.write(
        "README.md",
        '![](p.png) ![a](p.png) <img src="p.png" alt="b"> <img src="p.png">',
    )
    fault = "README.md: an image without alternative text: "
    assert sorted(course.run("check")) == [
        f'{fault}<img src="p.png">',
        f"{fault}p.png",
    ]


# --- both languages in step


def lock_problems(course):
    return [p for p in course.run("check") if "acknowledge" in p]


def test_one_changed_side_fails_until_it_is_acknowledged(course):
    course.edit("lesson", "- one", "- only one")
    (problem,) = lock_problems(course)
    assert re.fullmatch(
        r"course/lessons/09_0_memory.py:\d+: \[title\] only en changed;"
        r" bring lines \d+ and \d+ in step, then run acknowledge",
        problem,
    )
    assert course.run("acknowledge") == []
    assert lock_problems(course) == []


def test_a_changed_comment_in_code_counts_as_a_side(course):
    course.edit("exercise", "Ваш код здесь", "Место вашего кода")
    (problem,) = lock_problems(course)
    assert "[task] only ru changed" in problem


def test_two_changed_sides_have_a_message_of_their_own(course):
    course.edit("lesson", "- one", "- two")
    course.edit("lesson", "- один", "- два")
    (problem,) = lock_problems(course)
    assert "[title] both sides changed" in problem


def test_new_and_stale_keys_are_told(course):
    course.edit("index", 'key="title" lang="ru"', 'key="start" lang="ru"')
    course.edit("index", 'key="title" lang="en"', 'key="start" lang="en"')
    stale, new = lock_problems(course)
    assert "no cell course/index.py:title any more" in stale
    assert "[start] new" in new


def test_acknowledging_one_master_leaves_the_others_to_their_authors(course):
    course.edit("lesson", "- one", "- only one")
    course.edit("index", "# Module", "# The module")
    course.run("acknowledge", "index")
    (problem,) = lock_problems(course)
    assert problem.startswith("course/lessons/09_0_memory.py:")


def test_the_lock_says_which_line_is_broken_by_a_merge(course):
    course.write("course/i18n.lock", "<<<<<<< ours\n")
    (problem,) = course.run("check")
    assert problem.startswith("course/i18n.lock:1: ")


def test_stored_notebooks_are_plain_json_with_a_last_newline(course):
    text = (course.root / LESSON).read_text(encoding="utf-8")
    assert json.loads(text)
    assert text.endswith("}\n")
