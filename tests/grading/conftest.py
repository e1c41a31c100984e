"""Every test here starts in English; notebooks are made from the text of cells."""

import json
import subprocess
import sys

import pytest

from paged_kv import messages
from tests.checks.student import right_source


@pytest.fixture(autouse=True)
def english(monkeypatch):
    monkeypatch.setattr(messages, "_current", "en")


@pytest.fixture
def write(tmp_path):
    """Return a function that writes cells as a notebook and returns its path."""

    def write_notebook(*cells, name="nb.ipynb"):
        path = tmp_path / "class" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made = [
            {"cell_type": "code", "source": cell.splitlines(keepends=True)}
            for cell in cells
        ]
        path.write_text(json.dumps({"cells": made, "nbformat": 4}), encoding="utf-8")
        return path

    return write_notebook


@pytest.fixture
def paged_kv(tmp_path):
    """Return a function that runs the command `paged-kv` in a folder of its own."""

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "paged_kv.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
        )

    return run


def pieces():
    """Return the right solution of 09.1: imports, BlockPool, Sequence."""
    source = right_source("09.1")
    first, second = source.index("class BlockPool"), source.index("class Sequence")
    return source[:first], source[first:second], source[second:]


@pytest.fixture(scope="session")
def solved():
    """Return the pieces of the right solution of 09.1."""
    return pieces()
