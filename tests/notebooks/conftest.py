"""A tiny course in a temporary folder, in which each test plants its fault."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from course.build.__main__ import main

LESSON = r'''# ---
# jupyter:
#   course:
#     minutes: 30
#     summary:
#       ru: "Где пропадает память."
#       en: "Where memory goes."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Память

Кэш (*cache*) занимает $\frac{1}{2}\neq 0{,}5\,\text{МиБ}$, то есть 16 МиБ или `n`.

- один
- [упражнение](../../exercises/ru/09.1_pool.ipynb#Два-слова)
"""

# %% [markdown] key="title" lang="en"
r"""
# Memory

The cache (*кэш*) takes $\frac{1}{2}\neq 0.5\,\text{MiB}$, that is 16 MiB or `n`.

- one
- [exercise](../../exercises/en/09.1_pool.ipynb#Two-words)
"""

# %% key="numbers"
# ru: Числа считает ячейка.
# en: The cell computes the numbers.
from pathlib import Path

print("{{lang}}", Path.cwd().name, 2 + 2)

# %% key="figure"
import matplotlib.pyplot as plt
from IPython.display import display

figure, axes = plt.subplots()
_ = axes.plot([1, 2])
plt.close(figure)
display(figure, metadata={"image/png": {"alt": "a line"}})

# %% key="widget"
import ipywidgets

ipywidgets.HTML(value="<b>table</b>")

# %% key="time" tags=["computed-time"]
print(f"{512 / 2:.0f} µs")
'''.replace("16 МиБ", "16\u00a0МиБ")

EXERCISE = r'''# ---
# jupyter:
#   course:
#     minutes: 45
#     difficulty: 2
#     summary:
#       ru: "Напишете пул."
#       en: "Write a pool."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Пул

## Два слова
"""

# %% [markdown] key="title" lang="en"
r"""
# Pool

## Two words
"""

# %% key="setup"
def check(name, student, strict=False):
    try:
        return f"{name} strict={strict} {student([7])}"
    except NotImplementedError:
        return "not started"

# %% key="task" nbgrader={"grade_id": "task", "solution": true}
def allocate(blocks):
    ### BEGIN SOLUTION
    # ru: Верхний блок стека.
    # en: The top of the stack.
    if not blocks:
        return None
    top = blocks.pop()
    return top
    ### END SOLUTION
    # STUB: # ru: Ваш код здесь.
    # STUB: # en: Your code here.
    # STUB: raise NotImplementedError

# %% [markdown] key="answer" lang="ru" only="solution"
r"""
Ответ.
"""

# %% [markdown] key="answer" lang="en" only="solution"
r"""
Answer.
"""

# %% key="check"
check(
    "09.1",
    allocate,  # the student's
)
'''

CITED = """
["lessons/09_0_memory"]
16 = "MiB, from the paper"
"""

INDEX = r'''# %% [markdown] key="title" lang="ru"
r"""
# Модуль

[English](#Module)

{{map}}
"""

# %% [markdown] key="title" lang="en"
r"""
# Module

[*Русский*](#Модуль)

{{map}}
"""
'''


class Course:
    """A course on disk: its masters, its notebooks, and the command line."""

    def __init__(self, root: Path, output: Callable[[], str]) -> None:
        self.root = root
        self._output = output

    def path(self, name: str) -> Path:
        names = {
            "lesson": "course/lessons/09_0_memory.py",
            "exercise": "course/exercises/09_1_pool.py",
            "index": "course/index.py",
        }
        return self.root / names.get(name, name)

    def write(self, name: str, text: str) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        text = self.path(name).read_text(encoding="utf-8")
        assert text.count(old) >= 1, old
        self.write(name, text.replace(old, new, 1))

    def notebook(self, path: str):
        return nbformat.read(self.root / path, as_version=4)

    def cell(self, path: str, key: str):
        return next(cell for cell in self.notebook(path).cells if cell.id == key)

    def run(self, *arguments: str) -> list[str]:
        """Run the command line; return its problems, each with its diff."""
        self._output()
        status = main(arguments, self.root)
        problems = re.split(r"\n(?!    )", self._output())
        assert problems.pop() == ""
        assert status == bool(problems)
        return problems


@pytest.fixture(scope="session")
def built_tree(tmp_path_factory) -> SimpleNamespace:
    root = tmp_path_factory.mktemp("built")
    course = Course(root, str)
    course.write("lesson", LESSON)
    course.write("exercise", EXERCISE)
    course.write("index", INDEX)
    course.write("course/cited.toml", CITED)
    assert main(["notebooks"], root) == 0
    assert main(["acknowledge"], root) == 0
    return SimpleNamespace(root=root)


@pytest.fixture
def course(built_tree, tmp_path, capsys) -> Course:
    """A copy of the built course that a test may spoil."""
    root = tmp_path / "copy"
    shutil.copytree(built_tree.root, root)
    return Course(root, lambda: capsys.readouterr().err)
