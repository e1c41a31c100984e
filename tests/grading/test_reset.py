"""An exercise comes back as it came, and no work of a student is ever lost."""

import os
import shutil
from pathlib import Path

import pytest

from paged_kv.commands import reset as module
from paged_kv.commands.reset import PRISTINE, CannotReset, exercises, find_course, reset
from tests.checks.student import ASKED

ROOT = Path(__file__).parents[2]


@pytest.fixture
def course(tmp_path):
    """Return a folder like that of the course, with work in 09.1."""
    folder = tmp_path / "course of Éva"
    shutil.copytree(PRISTINE, folder / "exercises")
    notebook(folder).write_text("my work")
    return folder


def notebook(course, exercise="09.1"):
    return course / "exercises" / "en" / exercises("en")[exercise].name


@pytest.mark.parametrize("lang", ["ru", "en"])
def test_all_exercises_of_the_course_can_be_reset(lang):
    names = {path.name for path in exercises(lang).values()}
    assert names == {path.name for path in (ROOT / "exercises" / lang).glob("*.ipynb")}
    assert exercises(lang).keys() >= ASKED.keys()


def test_work_is_kept_and_the_exercise_is_as_it_came(course):
    (line,) = reset(["09.1"], "en", course)
    assert notebook(course).read_bytes() == exercises("en")["09.1"].read_bytes()
    backup = course / "backups" / "en" / "09.1_block_pool.1.ipynb"
    assert backup.read_text() == "my work"
    assert "backups/en/09.1_block_pool.1.ipynb" in line


def test_a_backup_is_never_overwritten(course):
    for work in ("first", "second", "third"):
        notebook(course).write_text(work)
        list(reset(["09.1"], "en", course))
    kept = sorted((course / "backups" / "en").iterdir())
    assert [path.read_text() for path in kept] == ["first", "second", "third"]


def test_an_untouched_exercise_is_left_alone(course):
    before = notebook(course, "09.2").stat().st_mtime_ns
    (line,) = reset(["09.2"], "en", course)
    assert "nothing to do" in line
    assert notebook(course, "09.2").stat().st_mtime_ns == before
    assert not (course / "backups").exists()


def test_a_deleted_notebook_comes_back(course):
    notebook(course).unlink()
    (line,) = reset(["09.1"], "en", course)
    assert "was missing" in line
    assert notebook(course).read_bytes() == exercises("en")["09.1"].read_bytes()


def test_an_unknown_exercise_changes_nothing(course):
    with pytest.raises(CannotReset, match=r"no exercise 77\.7"):
        list(reset(["09.1", "77.7"], "en", course))
    assert notebook(course).read_text() == "my work"


@pytest.mark.parametrize("fault", ["os.fsync", "os.replace", "shutil.copyfile"])
def test_work_survives_a_disk_that_fails(course, monkeypatch, fault):
    def fail(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr(f"paged_kv.commands.reset.{fault}", fail)
    with pytest.raises(OSError):
        list(reset(["09.1"], "en", course))
    assert notebook(course).read_text() == "my work"


class TestFindCourse:
    def test_this_folder_or_one_above(self, course, monkeypatch):
        for folder in (course, course / "exercises" / "ru"):
            monkeypatch.chdir(folder)
            assert os.path.samefile(find_course(), course)

    def test_the_clone_from_anywhere(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        assert find_course() == ROOT

    def test_no_course(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(module.paged_kv, "__file__", str(tmp_path / "a" / "b.py"))
        with pytest.raises(CannotReset, match="--course"):
            find_course()
        with pytest.raises(CannotReset, match="--course"):
            find_course(tmp_path)


class TestCommand:
    def test_one(self, paged_kv, course):
        done = paged_kv("reset", "09.1", "--course", course, "--lang", "ru")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("09.1_block_pool.ipynb: ")
        assert "первоначальном виде" in done.stdout  # the Russian one was not touched
        assert notebook(course).read_text() == "my work"

    def test_all(self, paged_kv, course):
        done = paged_kv("reset", "--all", "--course", course, "--lang", "en")
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == len(exercises("en"))
        assert notebook(course).read_bytes() == exercises("en")["09.1"].read_bytes()

    @pytest.mark.parametrize(
        "arguments", [[], ["77.7"], ["09.1", "--course", "nowhere"]]
    )
    def test_wrong_arguments(self, paged_kv, arguments):
        done = paged_kv("reset", *arguments, "--lang", "en")
        assert done.returncode == 2
        assert done.stderr
        assert "Traceback" not in done.stderr
