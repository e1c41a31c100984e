"""Whatever a cell holds, check says what happened, and the notebook lives on."""

import re
import sys
import threading

import numpy as np
import pytest

from paged_kv.checks import check, runner
from tests.checks.student import ASKED, answer, changed_source, right_source, run_cell

APPEND = "    def append(self, k, v):\n"
ALLOCATE = "    def allocate(self):\n"


def report_on(*changes, exercise="09.1"):
    pairs = tuple(zip(changes[::2], changes[1::2], strict=True))
    return check(exercise, *answer(exercise, changed_source(exercise, pairs)))


def in_append(*lines):
    return report_on(APPEND, APPEND + "".join(f"        {x}\n" for x in lines))


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(runner, "SECONDS", 0.2)


ENDLESS = {
    "a loop": ["while True: pass"],
    "a loop that catches everything": [
        "while True:",
        "    try:",
        "        len([])",
        "    except:",
        "        pass",
    ],
    "a loop that catches exceptions": [
        "while True:",
        "    try:",
        "        self.no_such_thing",
        "    except Exception:",
        "        pass",
    ],
}


@pytest.mark.parametrize("lines", ENDLESS.values(), ids=ENDLESS)
def test_an_endless_loop_is_stopped(impatient, lines):
    report = in_append(*lines)
    assert (report.state, report.code) == ("raised", "time-limit")
    assert "Sequence.append, line" in repr(report)


@pytest.mark.parametrize("lines", ENDLESS.values(), ids=ENDLESS)
def test_an_endless_loop_is_stopped_off_the_main_thread(impatient, lines):
    reports = []
    thread = threading.Thread(target=lambda: reports.append(in_append(*lines)))
    thread.start()
    thread.join()
    assert [report.code for report in reports] == ["time-limit"]


def test_a_right_solution_passes_off_the_main_thread():
    reports = []
    objects = answer("09.3", right_source("09.3"))
    thread = threading.Thread(target=lambda: reports.append(check("09.3", *objects)))
    thread.start()
    thread.join()
    assert reports[0].passed
    assert threading.active_count() == 1


def test_without_signals_the_watchdog_stops_a_loop(impatient, monkeypatch):
    monkeypatch.delattr(runner.signal, "setitimer")
    assert in_append("while True: pass").code == "time-limit"


def test_endless_printing_is_stopped_and_capped(capsys):
    report = in_append("while True: print('flood ' * 50)")
    assert (report.state, report.code) == ("raised", "endless-printing")
    (printed,) = (s for s in report.sections if s.label == "Your code printed")
    assert len(printed.lines) <= 20
    assert capsys.readouterr() == ("", "")


def test_what_a_failing_case_printed_is_shown():
    report = report_on(
        APPEND,
        APPEND + "        print('appending', self.length)\n",
        "self.length += 1",
        "pass",
    )
    (printed,) = (s for s in report.sections if s.label == "Your code printed")
    assert printed.lines[0] == "appending 0"


def test_printing_of_a_right_solution_disturbs_nothing(capsys):
    report = in_append("print('appending')", "import sys", "print(1, file=sys.stderr)")
    assert report.passed
    assert capsys.readouterr() == ("", "")


RAISING = {
    "endless-recursion": ["return self.append(k, v)"],
    "sys-exit": ["import sys", "sys.exit(1)"],
    "interrupted": ["raise KeyboardInterrupt"],
    "exception": ["raise ZeroDivisionError('by zero')"],
}


@pytest.mark.parametrize(("code", "lines"), RAISING.items(), ids=RAISING)
def test_an_exception_is_named_with_the_line_of_the_student(code, lines):
    report = in_append(*lines)
    assert (report.state, report.code) == ("raised", code)
    (line,) = (s for s in report.sections if s.label == "Your line")
    assert line.lines[0].startswith("Sequence.append, line ")
    assert line.lines[0].endswith(lines[-1])


def test_an_exception_inside_numpy_blames_the_line_that_called_it():
    report = in_append("np.linalg.inv(np.zeros((2, 2)))")
    assert report.code == "exception"
    assert "LinAlgError" in report.message
    assert "np.linalg.inv(np.zeros((2, 2)))" in repr(report)


def test_a_huge_allocation_is_reported():
    report = report_on(
        "self.k = np.empty(shape, dtype)",
        "self.k = np.empty((10**6, 10**6, 10**4), dtype)",
    )
    assert (report.state, report.code) == ("raised", "exception")
    assert "allocate" in report.message


def test_an_exception_class_that_cannot_be_printed():
    report = in_append(
        "class Odd(Exception):",
        "    def __str__(self): raise RuntimeError",
        "raise Odd",
    )
    assert (report.state, report.code) == ("raised", "exception")
    assert report.message == "Your code raised Odd."


def test_an_exception_in_init():
    report = report_on(
        "        self.num_blocks = num_blocks\n",
        "        self.num_blocks = num_bloks\n",
    )
    assert (report.state, report.code) == ("raised", "exception")
    assert "num_bloks" in report.message


REPRS = ["raise ValueError", "return 5", "return 'x' * 10**6", "return repr(self)"]


@pytest.mark.parametrize("body", REPRS)
def test_a_strange_repr_is_survived(body):
    report = report_on(
        "        return block\n\n    def free",
        "        return Strange()\n\n    def free",
        "class Sequence:",
        f"class Strange:\n    def __repr__(self): {body}\n\nclass Sequence:",
    )
    assert (report.state, report.code) == ("wrong", "append-returns-wrong-value")
    assert len(repr(report)) < 3000


def test_an_endless_repr_is_stopped(impatient):
    report = report_on(
        "        return block\n\n    def free",
        "        return Strange()\n\n    def free",
        "class Sequence:",
        "class Strange:\n    def __repr__(self):\n        while True: pass\n\n"
        "class Sequence:",
    )
    assert report.code == "time-limit"


@pytest.mark.parametrize(
    ("exercise", "method"),
    [("09.1", "append"), ("09.1", "release"), ("09.1", "__len__"), ("09.3", "fork")],
)
def test_a_deleted_method_is_named(exercise, method):
    report = report_on(f"def {method}(", "def renamed(", exercise=exercise)
    assert (report.state, report.code) == ("wrong", "missing-method")
    assert method in report.message


@pytest.mark.parametrize("attribute", ["peak", "ref", "_free"])
def test_a_missing_attribute_is_named(attribute):
    report = report_on(f"self.{attribute}", "self.renamed")
    if attribute == "_free":
        assert report.passed
        return
    assert (report.state, report.code) == ("raised", "missing-attribute")
    assert attribute in report.message


def test_other_parameters_are_named():
    report = report_on("def append(self, k, v):", "def append(self, k):\n        v = k")
    assert (report.state, report.code) == ("raised", "call-not-accepted")
    assert "append" in report.message


@pytest.mark.parametrize("thing", [None, 3, "BlockPool", np, np.zeros(3), [], object()])
@pytest.mark.parametrize("exercise", ASKED)
def test_objects_of_a_wrong_type_are_refused(exercise, thing):
    objects = list(answer(exercise, right_source(exercise)))
    for place in range(2):
        given = [*objects]
        given[place] = thing
        report = check(exercise, *given)
        assert report.state == "wrong"
        assert report.code in ("not-a-class", "not-a-function")
        assert ASKED[exercise][place] in report.message


def test_an_instance_in_place_of_its_class():
    pool, sequence = answer("09.1", right_source("09.1"))
    report = check("09.1", pool(4, 1, 1, 1), sequence)
    assert report.code == "not-a-class"
    assert not re.search("0x[0-9a-f]", repr(report))


@pytest.mark.parametrize("exercise", ASKED)
def test_swapped_objects_are_recognised(exercise):
    report = check(exercise, *reversed(answer(exercise, right_source(exercise))))
    assert (report.state, report.code) == ("wrong", "objects-swapped")


@pytest.mark.parametrize("name", ["zeros", "exp", "empty", "allclose", "einsum"])
def test_replaced_numpy_is_named(monkeypatch, name):
    objects = answer("09.2", right_source("09.2"))
    monkeypatch.setattr(np, name, None)
    report = check("09.2", *objects)
    assert report.passed or (report.state, report.code) == ("raised", "numpy-changed")
    assert report.passed or f"np.{name}" in report.message


def test_a_builtin_that_a_cell_has_overwritten_is_named():
    source = "list = [1, 2]\n" + right_source("09.1")
    report = check("09.1", *answer("09.1", source))
    assert (report.state, report.code) == ("raised", "builtin-replaced")
    assert "`list`" in report.message


def test_replaced_numpy_that_still_works_is_accepted(monkeypatch):
    objects = answer("09.2", right_source("09.2"))
    original = np.exp
    monkeypatch.setattr(np, "exp", lambda *a, **k: original(*a, **k))
    assert check("09.2", *objects).passed


def test_state_that_a_class_keeps_between_checks():
    # The free list survives from one pool to the next, and from check to check.
    source = changed_source(
        "09.1",
        [
            ("class BlockPool:\n", "class BlockPool:\n    _free = []\n\n"),
            (
                "self._free = list(range(num_blocks - 1, -1, -1))",
                "if not self._free:\n"
                "            self._free.extend(range(num_blocks - 1, -1, -1))",
            ),
        ],
    )
    objects = answer("09.1", source)
    codes = {check("09.1", *objects).code for _ in range(3)}
    assert codes <= {"pool-state-shared", "pool-not-empty", "free-list-incomplete"}


def test_a_solution_that_works_only_once_is_not_blamed_on_the_check():
    # Fresh inputs: the same objects give the same report, however often.
    objects = answer("09.3", right_source("09.3"))
    assert all(check("09.3", *objects).passed for _ in range(2))


def test_nothing_of_the_notebook_is_read():
    cell = run_cell(right_source("09.1"))
    objects = cell["BlockPool"], cell["Sequence"]
    cell["Sequence"] = cell["BlockPool"] = None
    assert check("09.1", *objects).passed


def test_the_process_is_left_as_it_was():
    before = (sys.stdout, sys.stderr, sys.getrecursionlimit(), np.geterr())
    handler = runner.signal.getsignal(runner.signal.SIGALRM)
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    in_append("np.seterr(all='raise')", "while True: print('flood ' * 50)")
    assert (sys.stdout, sys.stderr, sys.getrecursionlimit(), np.geterr()) == before
    assert runner.signal.getsignal(runner.signal.SIGALRM) is handler
    assert runner.signal.getitimer(runner.signal.ITIMER_REAL) == (0.0, 0.0)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
