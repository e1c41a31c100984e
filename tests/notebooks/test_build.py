"""What the build makes of sound masters."""

import hashlib

KINDS = ("notebooks", "exercises", "solutions")


def digests(course):
    paths = sorted(p for kind in KINDS for p in (course.root / kind).rglob("*.ipynb"))
    return {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


def test_a_fresh_build_passes_every_gate(course):
    assert course.run("check") == []


def test_building_twice_gives_the_same_bytes(course):
    before = digests(course)
    assert len(before) == 7
    assert course.run("notebooks") == []
    assert digests(course) == before


def test_a_part_of_the_name_builds_one_master_whatever_the_others_are_like(course):
    for path in digests(course):
        path.unlink()
    course.edit("exercise", "### END", "## END")
    assert course.run("notebooks", "09_0") == []
    assert [p.relative_to(course.root).as_posix() for p in digests(course)] == [
        "notebooks/en/09.0_memory.ipynb",
        "notebooks/ru/09.0_memory.ipynb",
    ]


def test_a_name_that_no_master_has_is_told(course):
    (problem,) = course.run("notebooks", "09_7")
    assert "no master" in problem
    assert "'09_7'" in problem


def test_the_start_page_alone_still_lists_everything(course):
    before = digests(course)
    (course.root / "notebooks/index.ipynb").unlink()
    assert course.run("notebooks", "index") == []
    assert digests(course) == before


def test_latex_survives_and_the_title_gets_its_navigation(course):
    text = course.cell("notebooks/ru/09.0_memory.ipynb", "title").source
    assert r"$\frac{1}{2}\neq 0{,}5\,\text{МиБ}$" in text
    assert '"""' not in text
    assert text.splitlines()[2] == (
        "09.0 · **Урок** · 30\u00a0мин · [Карта модуля](../index.ipynb)"
        " · [In English](../en/09.0_memory.ipynb)"
    )


def test_code_speaks_one_language_and_runs_in_its_own_folder(course):
    for lang, comment in (
        ("ru", "# Числа считает ячейка."),
        ("en", "# The cell computes the numbers."),
    ):
        cell = course.cell(f"notebooks/{lang}/09.0_memory.ipynb", "numbers")
        assert cell.source.splitlines()[0] == comment
        assert "# ru:" not in cell.source
        assert "# en:" not in cell.source
        assert cell.outputs[0].text == f"{lang} {lang} 4\n"


def test_the_exercise_has_the_stub_and_the_solution_the_region(course):
    exercise = course.cell("exercises/ru/09.1_pool.ipynb", "task")
    assert exercise.source.splitlines() == [
        "def allocate(blocks):",
        "    # Ваш код здесь.",
        "    raise NotImplementedError",
    ]
    solution = course.cell("solutions/en/09.1_pool.ipynb", "task")
    assert solution.source.splitlines() == [
        "def allocate(blocks):",
        "    ### BEGIN SOLUTION",
        "    # The top of the stack.",
        "    if not blocks:",
        "        return None",
        "    top = blocks.pop()",
        "    return top",
        "    ### END SOLUTION",
    ]
    assert solution.metadata["nbgrader"] == {"grade_id": "task", "solution": True}
    assert exercise.metadata == {}


def test_a_cell_for_one_copy_stands_in_that_copy_only(course):
    ids = {
        kind: [cell.id for cell in course.notebook(f"{kind}/ru/09.1_pool.ipynb").cells]
        for kind in ("exercises", "solutions")
    }
    assert ids["exercises"] == ["title", "setup", "task", "check"]
    assert ids["solutions"] == ["title", "setup", "task", "answer", "check"]


def test_only_the_solution_is_checked_strictly(course):
    results = {
        kind: course.cell(f"{kind}/ru/09.1_pool.ipynb", "check").outputs[0].data
        for kind in ("exercises", "solutions")
    }
    assert results["exercises"]["text/plain"] == "'not started'"
    assert results["solutions"]["text/plain"] == "'09.1 strict=True 7'"


def test_metadata_ids_and_counts_do_not_change_from_run_to_run(course):
    notebook = course.notebook("notebooks/en/09.0_memory.ipynb")
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.metadata.language_info == {"name": "python"}
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    keys = ["title", "numbers", "figure", "widget", "time"]
    assert [cell.id for cell in notebook.cells] == keys
    assert [cell.execution_count for cell in notebook.cells[1:]] == [1, 2, 3, 4]
    assert notebook.cells[1].metadata == {}
    assert notebook.cells[4].metadata == {"tags": ["computed-time"]}


def test_a_widget_keeps_its_text_and_a_figure_its_image(course):
    path = "notebooks/ru/09.0_memory.ipynb"
    assert list(course.cell(path, "widget").outputs[0].data) == ["text/plain"]
    assert set(course.cell(path, "figure").outputs[0].data) == {
        "image/png",
        "text/plain",
    }


def test_the_start_page_is_russian_then_english_and_lists_what_exists(course):
    russian, english = course.notebook("notebooks/index.ipynb").cells
    assert (russian.id, english.id) == ("title-ru", "title-en")
    rows = [line for line in english.source.splitlines() if line.startswith("| 09")]
    assert rows == [
        "| 09.0 | Lesson: [Memory](en/09.0_memory.ipynb)"
        " | Where memory goes. | 30\u00a0min |",
        "| 09.1 | Exercise: [Pool](../exercises/en/09.1_pool.ipynb)"
        " | Write a pool. | 45\u00a0min, difficulty\u00a02\u00a0of\u00a05 |",
    ]
    assert "1\u00a0h 15\u00a0min" in english.source
    assert "1\u00a0ч 15\u00a0мин" in russian.source
