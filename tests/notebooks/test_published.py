"""Colab and Binder: nothing before the course is published, everything after."""

from types import SimpleNamespace

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from course.build.published import PLACEHOLDER, install_cell

NOTEBOOK = "exercises/ru/09.1_pool.ipynb"


def publish(course, name):
    text = f'[project.urls]\nRepository = "https://github.com/{name}"\n'
    course.write("pyproject.toml", text)


def test_the_placeholder_changes_no_notebook(course):
    publish(course, PLACEHOLDER)
    assert course.run("check") == []


def test_a_published_course_opens_in_colab_and_on_binder(course):
    publish(course, "ann/paged.kv")
    assert any("other cells" in p for p in course.run("check"))
    assert course.run("notebooks") == []
    assert course.run("check") == []

    title = course.cell(NOTEBOOK, "title").source
    assert (
        f"colab.research.google.com/github/ann/paged.kv/blob/main/{NOTEBOOK})" in title
    )
    assert f"binder.org/v2/gh/ann/paged.kv/main?urlpath=lab/tree/{NOTEBOOK})" in title
    code = [c for c in course.notebook(NOTEBOOK).cells if c.cell_type == "code"]
    assert "git+https://github.com/ann/paged.kv" in code[0].source
    assert code[0].outputs == []
    index = "notebooks/index.ipynb"
    for part in ("title-ru", "title-en"):
        assert f"urlpath=lab/tree/{index})" in course.cell(index, part).source


def test_an_address_of_another_form_is_refused(course):
    publish(course, "ann")
    (problem,) = course.run("check")
    assert problem.startswith("pyproject.toml: Repository is 'https://github.com/ann'")


@pytest.mark.parametrize(("module", "commands"), [("sys", 0), ("no_such_module", 2)])
def test_the_cell_installs_only_where_the_course_is_missing(module, commands):
    cell = install_cell("ann/paged-kv").replace('"paged_kv"', f'"{module}"')
    run = []
    shell = SimpleNamespace(run_line_magic=lambda *magic: run.append(magic))
    exec(TransformerManager().transform_cell(cell), {"get_ipython": lambda: shell})
    assert [name for name, _ in run] == ["pip"] * commands
