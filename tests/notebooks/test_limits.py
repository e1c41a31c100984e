"""Outputs that fit no screen, pictures without words, files too large."""

import base64
import struct

import nbformat
import pytest
from nbformat import v4

from course.build import limits

LESSON = "notebooks/ru/09.0_memory.ipynb"


def store(course, **cell):
    notebook = course.notebook(LESSON)
    notebook.cells[1].update(**cell)
    course.write(LESSON, nbformat.writes(notebook))
    return [p.removeprefix(f"{LESSON}: [numbers] ") for p in course.run("check")]


def stdout(text):
    return v4.new_output("stream", name="stdout", text=text)


def html(text):
    return v4.new_output("display_data", {"text/html": text, "text/plain": ""})


def png(height, alt="words"):
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 10, height)
    data = {"image/png": base64.b64encode(head).decode(), "text/plain": "x"}
    return v4.new_output("display_data", data, metadata={"image/png": {"alt": alt}})


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([stdout("1\n" * 51)], "an output of 51 lines, more than 50"),
        ([stdout("1\n" * 30), stdout("1\n" * 30)], "an output of 60 lines"),
        ([html("<table>" + "<tr><td>1</td>" * 51)], "an output of 51 lines"),
        ([png(701)], "pictures of 701 pixels' height together, more than 700"),
        ([png(400), png(400)], "pictures of 800 pixels'"),
        ([png(9, alt=" ")], "a figure without alternative text"),
        ([html('<img src="data:">')], 'a picture without alternative text: <img src="'),
        ([html("<svg><g/></svg>")], "a picture without alternative text: <svg>"),
    ],
)
def test_an_output_that_must_not_be_stored(course, outputs, message):
    (problem,) = store(course, outputs=outputs)
    assert problem.startswith(message)


@pytest.mark.parametrize(
    "outputs",
    [
        [stdout("1\n" * 50)],
        [png(700)],
        [html('<svg aria-hidden="true"/><img alt="a"><svg aria-label="b">')],
    ],
)
def test_an_output_that_fits(course, outputs):
    assert store(course, outputs=outputs) == []


def test_a_lesson_has_no_endless_cell(course):
    course.edit("lesson", "from pathlib", "x = 1\n" * 25 + "from pathlib")
    problems = course.run("notebooks", "lessons")
    fault = "[numbers] a cell of 28 lines, more than 25"
    assert problems == [
        f"notebooks/{lang}/09.0_memory.ipynb: {fault}" for lang in ("ru", "en")
    ]


def test_imports_do_not_make_a_cell_endless(course):
    imports = "import re\nfrom math import (\n    pi,\n)\n" * 10
    course.edit("lesson", "from pathlib", f"{imports}from pathlib")
    assert course.run("notebooks", "lessons") == []


def test_a_notebook_that_is_too_large(course, monkeypatch):
    monkeypatch.setattr(limits, "NOTEBOOK_BYTES", 5_000)
    assert f"{LESSON}: 0.0 MB, more than 0.005 MB" in course.run("check")


def test_the_listing_names_long_cells_and_large_files(course, monkeypatch):
    monkeypatch.setattr(limits, "CELL_LINES", 3)
    found = {
        path: course.notebook(path) for path in (LESSON, LESSON.replace("ru", "en"))
    }
    lines = list(limits.listing(course.root, found))
    assert "     4  notebooks/en/09.0_memory.ipynb [numbers]" in lines
    assert not any("ru" in line and "[numbers]" in line for line in lines[:3])
    assert sum(LESSON in line for line in lines[-2:]) == 1
