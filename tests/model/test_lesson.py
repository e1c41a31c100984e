"""Lesson 09.7 is where other pages say it is, and it uses what students wrote."""

import re
from pathlib import Path

import nbformat
import pytest

from paged_kv.grading.own_classes import own_classes

ROOT = Path(__file__).parents[2]
SERVING, QUANTIZATION = "09.7_serving.ipynb", "09.5_quantization.ipynb"


def links(notebook: Path) -> set[str]:
    cells = nbformat.read(notebook, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return set(re.findall(r"\]\(([^)#]+)", text))


@pytest.mark.parametrize("language", ["ru", "en"])
class TestLinks:
    def test_the_start_page_leads_there(self, language):
        assert f"{language}/{SERVING}" in links(ROOT / "notebooks/index.ipynb")

    def test_it_and_the_lesson_on_quantisation_lead_to_each_other(self, language):
        folder = ROOT / "notebooks" / language
        assert SERVING in links(folder / QUANTIZATION)
        assert QUANTIZATION in links(folder / SERVING)


@pytest.mark.parametrize("language", ["ru", "en"])
class TestOwnClasses:
    def test_all_that_is_written_is_taken(self, language):
        mine = own_classes(ROOT / "solutions" / language)
        names = {option: value.__name__ for option, value in mine.items()}
        assert names == {
            "pool_type": "BlockPool",
            "sequence_type": "Sequence",
            "attention": "paged_attention",
        }
        # Hers, not the module's that the notebooks import.
        assert not any(v.__module__.startswith("paged_kv") for v in mine.values())

    def test_nothing_of_an_exercise_with_a_stub(self, language):
        assert own_classes(ROOT / "exercises" / language) == {}


def test_no_exercises_no_classes(tmp_path):
    assert own_classes(tmp_path) == {}


def test_other_cells_are_not_executed(tmp_path):
    cells = [
        "raise RuntimeError('this cell defines nothing')",
        "import numpy as np\nclass BlockPool:\n    size = np.int64(3)",
        "class Sequence:\n    pool = BlockPool",
        "BlockPool.broken()",
    ]
    code = [nbformat.v4.new_code_cell(source) for source in cells]
    notebook = nbformat.v4.new_notebook(cells=code)
    nbformat.write(notebook, tmp_path / "09.1_block_pool.ipynb")
    mine = own_classes(tmp_path)
    assert mine["sequence_type"].pool is mine["pool_type"]
    assert mine["pool_type"].size == 3


def test_a_dataclass_finds_its_module(tmp_path):
    cell = """from __future__ import annotations
from dataclasses import dataclass
class BlockPool: pass
@dataclass
class Sequence:
    length: int = 0
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    nbformat.write(notebook, tmp_path / "09.1_block_pool.ipynb")
    assert own_classes(tmp_path)["sequence_type"]().length == 0


def test_a_class_that_is_missing_counts_as_not_written(tmp_path):
    code = [nbformat.v4.new_code_cell("class BlockPool:\n    size = 3")]
    notebook = nbformat.v4.new_notebook(cells=code)
    nbformat.write(notebook, tmp_path / "09.1_block_pool.ipynb")
    assert own_classes(tmp_path) == {}
