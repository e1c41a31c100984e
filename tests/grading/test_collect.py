"""Which definitions of a notebook count, whatever has become of its cells."""

import json

import pytest

from paged_kv.checks.examine import examine
from paged_kv.checks.registry import EXERCISES
from paged_kv.grading.collect import collect
from paged_kv.grading.notebook import (
    CodeCell,
    Unreadable,
    find_exercises,
    read_cells,
)
from tests.checks.student import ASKED, right_source
from tests.grading.conftest import pieces

CHECK = 'report = check("09.1", BlockPool, Sequence)\nreport'
STUB = "class BlockPool:\n    def allocate(self):\n        raise NotImplementedError"
EXPERIMENT = "if report.passed:\n    raise SystemExit"


@pytest.fixture(autouse=True)
def checks_stay(monkeypatch):
    """`collect` is made for a process of its own: undo what it leaves."""
    import sys

    import paged_kv.checks

    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    for name in ("check", "hint", "points", "progress"):
        monkeypatch.setattr(paged_kv.checks, name, getattr(paged_kv.checks, name))


def collected(*sources, safe=False, exercise="09.1"):
    cells = [CodeCell(n, source) for n, source in enumerate(sources, start=1)]
    return collect(cells, EXERCISES[exercise], safe=safe)


def state(found, exercise="09.1"):
    return examine(EXERCISES[exercise], found.objects).state


both_ways = pytest.mark.parametrize("safe", [False, True], ids=["all", "safe"])


def shapes(imports, pool, sequence):
    """Yield what becomes of a notebook's cells, by name."""
    imported = "from paged_kv.checks import check\n"
    yield "as it was", [imports, pool, sequence, imported + CHECK, EXPERIMENT]
    yield "all in one cell", [imports + pool + sequence + imported + CHECK]
    yield "no imports but where needed", [imports + pool, imports + sequence]
    yield "cells in another order", [sequence, pool, imports]
    yield "check deleted", [imports, pool, sequence]
    yield "stub left below", [imports, pool, STUB, sequence]
    yield "stub left above", [imports, STUB, pool, sequence]
    yield "copied", [imports, pool, sequence, pool, sequence]
    yield "broken copy below", [imports, pool, sequence, "class BlockPool(:\n  x"]
    yield "copy that fails", [imports, pool, sequence, "class BlockPool(Unknown): ..."]
    yield "magics", [f"%load_ext x\n!ls\n{imports}", f"%%time\n{pool}", sequence]
    yield "another kind of cell", [imports, pool, "%%bash\nrm x", sequence]
    yield "other cells fail", ["1 / 0", imports, "raise SystemExit", pool, sequence]
    renamed = pool.replace("class BlockPool", "class Mine") + "\nBlockPool = Mine"
    yield "another name first", [imports, renamed, sequence]
    head, _, tail = sequence.partition("    def free(self)")
    grown = f"class Sequence(Sequence):\n    def free(self){tail}"
    yield "a class in two cells", [imports, pool, head, grown]
    helper = "def grow(seq):\n    seq.length += 1\n"
    helped = sequence.replace("self.length += 1", "grow(self)")
    assert helped != sequence
    yield "a helper in a cell below", [imports, pool, helped, helper]
    yield "a constant", [imports, "SIZE = 16", pool.replace("=16", "=SIZE"), sequence]
    yield "a star import", [f"{imports}\nfrom math import *", pool, sequence]
    yield (
        "an import that may fail",
        [
            f"try:\n    import numba\nexcept ImportError:\n    numba = None\n{imports}",
            pool,
            sequence,
        ],
    )


SHAPES = dict(shapes(*pieces()))


@both_ways
@pytest.mark.parametrize("shape", SHAPES)
def test_a_right_solution_is_found_in_any_shape(shape, safe):
    found = collected(*SHAPES[shape], safe=safe)
    assert state(found) == "passed", found.notes


@both_ways
@pytest.mark.parametrize("exercise", ASKED)
def test_right_solutions_of_other_exercises(exercise, safe):
    found = collected(right_source(exercise), exercise=exercise, safe=safe)
    assert state(found, exercise) == "passed"


def test_the_last_of_two_finished_definitions_counts(solved):
    imports, pool, sequence = solved
    wrong = pool.replace("self.ref[block] -= 1", "pass")
    assert wrong != pool
    assert state(collected(imports, pool, wrong, sequence)) == "wrong"
    found = collected(imports, wrong, pool, sequence)
    assert state(found) == "passed"
    assert "defined in cells 2, 3; the one in cell 3 counts" in found.notes[0]


def test_a_stub_gives_way_and_the_notes_say_so(solved):
    imports, pool, sequence = solved
    found = collected(imports, pool, STUB, sequence)
    assert "`BlockPool` is defined in cells 2, 3; the one in cell 2" in found.notes[0]


@pytest.mark.parametrize(
    "cell",
    [
        "from paged_kv import BlockPool, Sequence",
        "import paged_kv\nclass BlockPool(paged_kv.BlockPool): pass\n"
        "class Sequence(paged_kv.Sequence): pass",
        "import paged_kv\nBlockPool, Sequence = paged_kv.BlockPool, paged_kv.Sequence",
    ],
)
@both_ways
def test_the_modules_own_classes_do_not_count(cell, safe):
    found = collected(cell, safe=safe)
    assert state(found) == "not started"
    assert sum("module's own" in note for note in found.notes) == 2


def test_a_missing_name_is_named_and_the_other_one_checked(solved):
    imports, pool, _ = solved
    found = collected(imports, pool)
    assert found.notes == ["`Sequence` is not defined."]
    report = examine(EXERCISES["09.1"], found.objects)
    assert report.state == "not started"
    assert "Sequence" in report.message


@pytest.mark.parametrize(
    ("cell", "note"),
    [
        ("while True: pass", "did not finish in time"),
        ("while True: print('x' * 999)", "printed without end"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("def f(): f()\nf()", "RecursionError"),
        ("x = (", "SyntaxError"),
        ("x = 'a\0b'", "Error"),
    ],
)
def test_a_cell_that_fails_is_noted_and_the_rest_goes_on(
    monkeypatch, solved, cell, note
):
    monkeypatch.setattr("paged_kv.checks.runner.SECONDS", 0.2)
    found = collected(cell, *solved)
    monkeypatch.undo()
    assert state(found) == "passed"
    assert found.notes[0].startswith("Cell 1 ")
    assert note in found.notes[0]


def test_one_error_of_several_cells_is_one_note(solved):
    found = collected("boom", *solved, "boom", "1 / 0", "boom")
    assert found.notes == [
        "Cells 1, 5, 7 failed: NameError: name 'boom' is not defined",
        "Cell 6 failed: ZeroDivisionError: division by zero",
    ]


def test_the_notes_are_in_the_teachers_language(solved):
    choice = "from paged_kv.messages import use_language\nuse_language('ru')"
    found = collected(choice, *solved, "1 / 0")
    assert found.notes == ["Cell 5 failed: ZeroDivisionError: division by zero"]


def test_safe_executes_no_line_that_is_not_needed(tmp_path, solved):
    trace = tmp_path / "trace"
    cells = [
        f"open({str(trace)!r}, 'w').close()",
        f"for x in 'ab':\n    open({str(trace)!r}, 'w').close()",
        f"import os; os.environ; unused = open({str(trace)!r}, 'w').close()",
        *(f"{piece}\nopen({str(trace)!r}, 'w').close()" for piece in solved),
    ]
    assert state(collected(*cells, safe=True)) == "passed"
    assert not trace.exists()
    collected(*cells, safe=False)
    assert trace.exists()  # the cells would have left a trace


def test_the_notebooks_own_check_is_not_run_again(monkeypatch, solved):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr("paged_kv.checks.api.examine", fail)
    imports = "from paged_kv.checks import check, hint, progress\n"
    cells = [*solved, imports + CHECK, EXPERIMENT, "hint('09.1', 1); progress()"]
    assert collected(*cells).notes == []


class TestWhichExercise:
    @pytest.mark.parametrize(
        ("sources", "wanted"),
        [
            (["check('09.2', a, b)"], ["09.2"]),
            (['r = check( "09.3", a, b, strict=True)'], ["09.3"]),
            (["check('09.3', a)", "check('09.1', b)"], ["09.1", "09.3"]),
            (["class BlockPool: ...", "class Sequence: ..."], ["09.1"]),
            (["class Sequence: ...", "def prefix_sharing(): ..."], ["09.3"]),
            (["def paged_attention(): ..."], ["09.2"]),
            (["check('77.7', a)"], []),
            (["x = 1", "("], []),
        ],
    )
    def test_found(self, sources, wanted):
        assert find_exercises(CodeCell(1, source) for source in sources) == wanted


class TestReading:
    @pytest.mark.parametrize(
        "content",
        [
            "",
            "{",
            "[]",
            "null",
            '{"worksheets": []}',
            '{"cells": {}}',
            '{"cells": []}',
            '{"cells": [1, null, {"cell_type": "markdown", "source": "x"}]}',
            '{"cells": [{"cell_type": "code", "source": " \\n"}]}',
            '{"cells": [{"cell_type": "code"}]}',
            "[" * 100_000,
            b"\xff\xfe\x00",
        ],
        ids=lambda content: repr(content[:20]),
    )
    def test_a_broken_file_is_unreadable(self, tmp_path, content):
        path = tmp_path / "nb.ipynb"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(Unreadable):
            read_cells(path)

    def test_a_file_with_faults_elsewhere_is_read(self, tmp_path):
        cells = [None, {"cell_type": "code", "source": ["x = 1\n", "y"], "id": 3}]
        path = tmp_path / "nb.ipynb"
        text = json.dumps({"cells": cells, "metadata": []})
        path.write_text("\ufeff" + text, encoding="utf-8")
        assert read_cells(path) == [CodeCell(2, "x = 1\ny")]

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(Unreadable, match=r"nb\.ipynb"):
            read_cells(tmp_path / "nb.ipynb")
