"""Grading in processes: points, limits, and one broken file that stops nothing."""

import csv
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from paged_kv.checks.registry import EXERCISES
from paged_kv.cli import main
from paged_kv.grading import run
from paged_kv.grading.grade import read_grades, to_line
from paged_kv.grading.page import write_pages
from paged_kv.grading.run import Options, find_notebooks, grade_one
from paged_kv.grading.table import COLUMNS, write_csv

TOTAL = len(EXERCISES["09.1"].cases)
unix = pytest.mark.skipif(os.name != "posix", reason="limits of Unix")


@pytest.fixture
def grade(write):
    """Return a function that grades cells as a notebook; its one grade."""

    def graded(*cells, **options):
        (grade,) = grade_one("nb", write(*cells), Options(**options))
        return grade

    return graded


def test_a_right_solution_gets_all_points(grade, solved):
    result = grade(*solved)
    assert (result.state, result.points, result.max_points) == ("passed", TOTAL, TOTAL)
    assert (result.report, result.notes, result.ended) == (None, [], "")


def test_a_mistake_costs_the_points_of_what_it_breaks(grade, solved):
    imports, pool, sequence = solved
    wrong = pool.replace("self.peak = max(self.peak, self.used)", "pass")
    assert wrong != pool
    result = grade(imports, wrong, sequence)
    assert result.state == "partly"
    assert TOTAL - 3 <= result.points < TOTAL
    assert "peak" in result.message


def test_a_missing_class_leaves_the_points_of_the_other(grade, solved):
    result = grade(*solved[:2])
    assert result.state == "partly"
    assert 0 < result.points < TOTAL
    assert result.notes == ["`Sequence` is not defined."]


@pytest.mark.parametrize("lang", ["ru", "en"])
def test_an_untouched_exercise_gets_nothing(lang):
    for name, path in find_notebooks([_exercises(lang)]).items():
        (grade,) = grade_one(name, path, Options(safe=lang == "en"))
        assert (grade.state, grade.points) == ("not started", 0), name


def _exercises(lang):
    from paged_kv.commands.reset import PRISTINE

    return PRISTINE / lang


def test_the_language_of_the_notebook_is_not_that_of_the_report(grade):
    imports = "from paged_kv.messages import use_language\nuse_language('ru')"
    result = grade(imports, "class BlockPool: ...\nclass Sequence: ...")
    assert "has no method" in result.message


@unix
@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("import os\nos._exit(0)", "ended its process"),
        ("import os\nos._exit(7)", "status 7"),
        ("import os\nos.abort()", "status -6"),
        (
            "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, "
            "[signal.SIGALRM])\nwhile True: pass",
            "within 1 s",
        ),
    ],
)
def test_what_ends_the_process_is_told(grade, solved, cell, says):
    result = grade(cell, *solved, seconds=1)
    assert (result.state, result.points) == ("stopped", 0)
    assert says in result.message


@unix
def test_points_until_the_process_ends_are_kept(grade, solved):
    imports, pool, sequence = solved
    dying = pool.replace("self.ref[block] -= 1", "import os; os._exit(0)")
    assert dying != pool
    result = grade(imports, dying, sequence)
    assert result.state == "stopped"
    assert 0 < result.points < len(result.criteria) + 1 < TOTAL


@unix
@pytest.mark.parametrize(
    "cell",
    [
        "x = bytearray(10**10)",
        "import numpy\nx = numpy.ones(10**10)",
        "with open('big', 'wb') as f:\n    while True: f.write(bytes(10**6))",
        "import os\nwhile os.write(1, b'x' * 999) and os.times().user < 0.5: pass",
    ],
    ids=["memory", "numpy", "disk", "descriptor"],
)
def test_a_hog_is_stopped_and_the_rest_goes_on(grade, solved, cell):
    result = grade(cell, *solved)
    assert (result.state, result.ended) in [("passed", ""), ("stopped", result.ended)]
    assert result.seconds < 60
    if "numpy" in cell or "bytearray" in cell:
        assert "MemoryError" in result.notes[0]
        assert result.state == "passed"


@unix
def test_no_process_can_be_started_but_by_root():
    code = (
        "from paged_kv.grading.limits import limit_this_process\n"
        "import os, resource\n"  # all now: another user may not read this Python
        "if os.getuid() == 0: os.setuid(65534)\n"
        "limit_this_process(9, 0)\n"
        "try: os.fork()\n"
        "except BlockingIOError: print('stopped')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "stopped\n", done.stderr


@unix
def test_what_a_notebook_starts_ends_with_it(grade, tmp_path):
    pid = tmp_path / "pid"
    cell = (
        "import os, time\n"
        "child = os.fork()\n"
        "if not child:\n    time.sleep(600)\n"
        f"with open({str(pid)!r}, 'w') as f: f.write(str(child))\n"
        "x = 1"
    )
    if os.getuid() != 0:
        pytest.skip("only root may start processes from a notebook")
    grade("class BlockPool: ...", cell)
    with pytest.raises(ProcessLookupError):
        _wait_for_end(int(pid.read_text()))


def _wait_for_end(pid):
    """Raise ProcessLookupError as soon as there is no such process."""
    for _ in range(10**6):
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            if ") Z" in file.read():  # ended, and nobody has asked how
                raise ProcessLookupError


@pytest.fixture
def impatient(monkeypatch):
    """Let a criterion take less time than it may, so that the test does not last."""
    command = run._command
    start = (
        "import sys; from paged_kv.checks import runner; runner.SECONDS = 0.3; "
        "from paged_kv.grading.worker import main; main(sys.argv[1:])"
    )

    def quicker(*arguments):
        python, _, _, *rest = command(*arguments)
        return [python, "-c", start, *rest]

    monkeypatch.setattr(run, "_command", quicker)


def test_an_endless_loop_costs_its_criteria_and_not_the_evening(
    impatient, grade, solved
):
    imports, pool, sequence = solved
    endless = sequence.replace("self.length += 1", "while True: pass")
    result = grade(imports, pool, endless, seconds=30)
    assert result.state == "stopped"
    assert result.report.code == "time-limit"
    assert result.message == "Too many criteria ran out of time."
    assert 0 < result.points < TOTAL


def test_one_that_cannot_be_started_stops_nothing(write, monkeypatch, solved):
    notebooks = {f"{n}": write("{", name=f"{n}.ipynb") for n in range(3)}
    start = run.subprocess.Popen

    def fail_once(command, **options):
        if "/1.ipynb" in command[3]:
            raise BlockingIOError(11, "no more processes")
        return start(command, **options)

    monkeypatch.setattr(run.subprocess, "Popen", fail_once)
    grades = run.grade_all(notebooks, Options(), jobs=3)
    assert [g.submission for g in grades] == ["0", "1", "2"]
    assert [g.state for g in grades] == ["unknown", "stopped", "unknown"]
    assert "no more processes" in grades[1].message


def test_progress_is_told_by_one_thread(write):
    notebooks = {f"{n}": write("x", name=f"{n}.ipynb") for n in range(4)}
    told = []
    run.grade_all(
        notebooks, Options(), 4, lambda: told.append(threading.current_thread())
    )
    assert told == [threading.current_thread()] * 4


def test_the_bar_is_for_terminals_only(monkeypatch, capsys):
    assert len(list(run.counted(2))) == 3
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(run.sys.stderr, "isatty", lambda: True)
    assert len(list(run.counted(2))) == 3
    assert capsys.readouterr().err.endswith("] 2/2\n")


class TestCommand:
    def test_a_class(self, paged_kv, write, solved, tmp_path):
        imports, pool, sequence = solved
        write(*solved, name="ann/09.1.ipynb")
        write(imports, pool, name="bob/09.1.ipynb")
        write("x = 1", name="=cyd.ipynb")
        write(*solved, name="ann/.ipynb_checkpoints/09.1-checkpoint.ipynb")
        (tmp_path / "class" / "dan.ipynb").write_text("{")
        arguments = ("--csv", "new/out.csv", "--html", "html", "--jobs", "2")
        done = paged_kv("grade", "class", *arguments, "--lang", "en")
        assert done.returncode == 1, done.stderr
        assert done.stderr == ""  # no progress bar outside a terminal
        assert done.stdout.startswith(f"4 notebooks graded: {Path('new/out.csv')}\n")
        rows = _rows(tmp_path / "new/out.csv")
        assert {r["submission"]: r["state"] for r in rows} == {
            "'=cyd.ipynb": "unknown",
            "ann/09.1.ipynb": "passed",
            "bob/09.1.ipynb": "partly",
            "dan.ipynb": "unreadable",
        }
        for row in rows:
            held = [row[f"criterion_{n}"] for n in range(1, TOTAL + 1)]
            assert row["points"] == str(held.count("1"))
        pages = {p.relative_to(tmp_path / "html") for p in tmp_path.rglob("*.html")}
        assert len(pages) == 4
        bob = (tmp_path / "html" / "bob" / "09.1.html").read_text(encoding="utf-8")
        points = next(r["points"] for r in rows if r["submission"][0] == "b")
        assert f"{points} points of {TOTAL}" in bob
        assert '<html lang="en">' in bob
        assert bob.count("<tr>") == TOTAL

    def test_in_russian(self, paged_kv, write, solved, tmp_path):
        write(*solved[:2])
        csv_and_html = ("--csv", "o.csv", "--html", "html", "--safe", "--lang", "ru")
        done = paged_kv("grade", "class/nb.ipynb", *csv_and_html)
        assert done.returncode == 0, done.stderr
        assert "проверена 1 тетрадь" in done.stdout
        page = (tmp_path / "html" / "nb.html").read_text(encoding="utf-8")
        assert "`Sequence` не определено." not in page  # but as code
        assert "<code>Sequence</code> не определено." in page
        (row,) = _rows(tmp_path / "o.csv")
        assert row["state"] == "partly"  # for programs: the same in any language
        assert row["notes"] == "`Sequence` не определено."

    @pytest.mark.parametrize(
        "arguments",
        [
            ["nowhere", "--csv", "o.csv"],
            ["empty", "--csv", "o.csv"],
            ["class", "--csv", "class/nb.ipynb/o.csv"],
            ["class", "--csv", "o.csv", "--exercise", "77.7"],
            ["class", "--csv", "o.csv", "--jobs", "0"],
            ["class", "--csv", "o.csv", "--jobs", "two"],
            ["class"],
        ],
    )
    def test_wrong_arguments(self, paged_kv, write, tmp_path, arguments):
        write("x = 1")
        (tmp_path / "empty").mkdir()
        done = paged_kv("grade", *arguments, "--lang", "en")
        assert done.returncode == 2
        assert done.stderr
        assert "Traceback" not in done.stderr
        assert "_positive" not in done.stderr

    def test_earlier_results_stay_until_there_are_new_ones(
        self, write, tmp_path, monkeypatch
    ):
        table = tmp_path / "o.csv"
        table.write_text("of last week")

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(run, "grade_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            main(["grade", str(write("x = 1")), "--csv", str(table)])
        assert table.read_text() == "of last week"

    @pytest.mark.parametrize(
        ("lang", "word"), [("en", "does not protect"), ("ru", "не защищает")]
    )
    def test_help_says_what_is_not_protected(self, paged_kv, lang, word):
        done = paged_kv("grade", "--lang", lang, "--help")
        assert done.returncode == 0
        assert word in done.stdout


def _rows(path):
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_the_columns_do_not_depend_on_who_is_graded(tmp_path):
    write_csv([], tmp_path / "o.csv")
    header = (tmp_path / "o.csv").read_text(encoding="utf-8-sig").strip()
    assert header == ",".join(COLUMNS)
    assert COLUMNS[:6] == (
        *("submission", "exercise", "points", "max_points", "percent", "state"),
    )


def test_names_of_submissions_are_different(write, tmp_path):
    for folder in ("one", "two"):
        write("x = 1", name=f"{folder}/nb.ipynb")
    base = tmp_path / "class"
    assert list(find_notebooks([base])) == ["one/nb.ipynb", "two/nb.ipynb"]
    both = find_notebooks([base / "one", base / "two"])
    assert list(both) == ["one/nb.ipynb", "two/nb.ipynb"]
    files = find_notebooks([base / "one" / "nb.ipynb", base / "two" / "nb.ipynb"])
    assert len(files) == 2


@unix
def test_a_link_is_named_by_where_it_lies(write, tmp_path):
    write("x = 1", name="nb.ipynb")
    base = tmp_path / "class"
    (tmp_path / "other.ipynb").write_text("{}")
    (base / "away.ipynb").symlink_to(tmp_path / "other.ipynb")
    (base / "broken.ipynb").symlink_to("nothing")
    (base / "circle.ipynb").symlink_to("circle.ipynb")
    found = find_notebooks([base])
    assert list(found) == ["away.ipynb", "broken.ipynb", "circle.ipynb", "nb.ipynb"]
    for name in ("broken.ipynb", "circle.ipynb"):
        (grade,) = grade_one(name, found[name], Options())
        assert grade.state == "unreadable"


@unix
def test_text_that_is_no_unicode_is_written_all_the_same(tmp_path):
    told = [to_line(exercise="09.1", notes=["\ud83d"])]
    grades, _ = read_grades("\udcff.ipynb", told)  # a name of one byte, 0xff
    write_csv(grades, tmp_path / "o.csv")
    write_pages(grades, tmp_path)
    (row,) = _rows(tmp_path / "o.csv")
    (page,) = tmp_path.glob("*.html")
    assert (row["submission"], row["notes"]) == (r"\udcff.ipynb", r"\ud83d")
    assert row["notes"] in page.read_text("utf-8")


def test_an_interrupted_grading_starts_no_other(write, monkeypatch):
    notebooks = {f"{n}": write("x", name=f"{n}.ipynb") for n in range(20)}
    started = []
    start = run.grade_one

    def counted(name, *rest):
        started.append(name)
        return start(name, *rest)

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "grade_one", counted)
    with pytest.raises(KeyboardInterrupt):
        run.grade_all(notebooks, Options(), 2, interrupt)
    assert len(started) < 20


@pytest.mark.parametrize("field", ["exercise", "title", "state", "code", "message"])
@pytest.mark.parametrize("value", [5, None, [], {}, "<b>"])
def test_a_report_of_odd_values_can_be_written(tmp_path, field, value):
    report = {
        **dict.fromkeys(("exercise", "title", "code", "message"), "x"),
        "state": "wrong",
        "sections": [],
        "language": '"><script>',
        field: value,
    }
    event = json.dumps({"exercise": "09.1", "holds": False, "report": report})
    grades, _ = read_grades("nb", [event])
    write_csv(grades, tmp_path / "o.csv")
    write_pages(grades, tmp_path)
    assert "<script>" not in (tmp_path / "nb.html").read_text("utf-8")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[1]",
        '{"exercise": "77.7", "holds": true}',
        '{"exercise": "09.1", "holds": true, "report": {"x": 1}}',
        '{"exercise": "09.1", "holds": true, "report": {"sections": 3}}',
        '{"exercise": ["09.1"]}',
        '{"exercise": "09.1", "notes": 3}',
    ],
)
def test_a_line_that_makes_no_sense_stops_nothing(line):
    lines = [line, to_line(exercise="09.1", holds=True)]
    grades, complete = read_grades("nb", lines)
    assert grades[0].points >= 1
    assert not complete


def test_no_more_points_than_there_are():
    lines = [to_line(exercise="09.1", holds=True)] * (TOTAL + 5)
    (grade,), _ = read_grades("nb", lines)
    assert grade.points == TOTAL


def test_the_entry_point_is_installed():
    assert shutil.which("paged-kv", path=os.path.dirname(sys.executable))
