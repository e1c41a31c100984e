"""Runs a worker for each submission, several at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from paged_kv.grading.grade import Grade, read_grades
from paged_kv.messages import language, tr

_NOT_SUBMITTED = ".ipynb_checkpoints"
# One thread each: several submissions share the cores. No file of this folder or of
# the submission's is imported in place of a library.
_ENVIRONMENT = {
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
    ),
    "MPLBACKEND": "agg",
    "PYTHONSAFEPATH": "1",
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",
}


@dataclass(frozen=True)
class Options:
    """How each submission is graded.

    Attributes
    ----------
    safe : bool
        Execute definitions only.
    exercise : str
        The exercise to grade; empty: those that each notebook answers.
    seconds : int
        For one submission: of processor time, and twice as many on the clock.
    memory_mib : int
        MiB of address space for one submission; 0 for any.
    """

    safe: bool = False
    exercise: str = ""
    seconds: int = 60
    memory_mib: int = 2048


def find_notebooks(paths: Iterable[Path]) -> dict[str, Path]:
    """Return the notebooks among files and below folders, by a name for each.

    The name is the path relative to its folder; with several folders, or for names
    that come twice, the folder stands before it.

    Raises
    ------
    FileNotFoundError
        For a path that does not exist, and a folder without notebooks.
    """
    paths = list(paths)
    found: dict[str, Path] = {}
    for path in paths:
        notebooks = [path] if path.is_file() else sorted(path.rglob("*.ipynb"))
        notebooks = [n for n in notebooks if _NOT_SUBMITTED not in n.parts]
        if not path.exists():
            raise FileNotFoundError(tr("There is no {path}.", path=path))
        if not notebooks:
            raise FileNotFoundError(tr("There is no notebook in {path}.", path=path))
        # Not `resolve`: a link is named by where it lies, wherever it leads.
        base = Path(os.path.abspath(path))
        if path.is_file() or len(paths) > 1:
            base = base.parent
        for notebook in (Path(os.path.abspath(n)) for n in notebooks):
            name = notebook.relative_to(base).as_posix()
            if found.get(name, notebook) != notebook:
                name = "/".join(notebook.parts[1:])
            found[name] = notebook
    return found


def grade_all(
    notebooks: dict[str, Path],
    options: Options,
    jobs: int,
    on_done: Callable[[], None] = lambda: None,
) -> list[Grade]:
    """Return the grades of all notebooks, in their order; `jobs` run at a time.

    `on_done` is called after each, from this thread.
    """
    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(grade_one, *item, options) for item in notebooks.items()]
        try:
            for _ in as_completed(runs):
                on_done()
        except BaseException:  # Ctrl-C: only those that run are waited for
            pool.shutdown(cancel_futures=True)
            raise
    return list(chain.from_iterable(run.result() for run in runs))


def grade_one(name: str, path: Path, options: Options) -> list[Grade]:
    """Return a grade for each exercise of a notebook; never raises for its content."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        result, cwd = Path(folder, "result"), Path(folder, "work")
        result.touch()
        cwd.mkdir()
        try:
            ended = _run_worker(_command(path, result, options), cwd, options.seconds)
        except OSError as error:
            ended = str(error)  # too many processes, no memory: the next may fare well
        with result.open(encoding="utf-8", errors="replace") as lines:
            grades, complete = read_grades(name, lines)
    grades = grades or [Grade(name, options.exercise)]
    for grade in grades:
        grade.seconds = time.monotonic() - start
        if not complete:
            grade.ended = ended
        elif len(grade.criteria) < grade.max_points:
            grade.ended = tr("Too many criteria ran out of time.")
    return grades


def _command(path: Path, result: Path, options: Options) -> list[str]:
    numbers = str(options.seconds), str(options.memory_mib)
    mode = "safe" if options.safe else "all"
    worker = [sys.executable, "-m", "paged_kv.grading.worker"]
    return [
        *worker,
        os.path.abspath(path),
        str(result),
        language(),
        *numbers,
        mode,
        *filter(None, [options.exercise]),
    ]


def _run_worker(command: list[str], cwd: Path, seconds: int) -> str:
    """Run a worker and all that it starts to the end; say if that came too early."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **_ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    late = False
    try:
        status = process.wait(2 * seconds)
    except subprocess.TimeoutExpired:
        late = True
    finally:
        _kill(process)
    if late or status == -getattr(signal, "SIGXCPU", 0):
        return tr("It did not end within {n} s and was stopped.", n=seconds)
    if status:
        return tr("Its process ended with status {status}.", status=status)
    return tr("It ended its process.")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a worker, and with it what it has started in its session."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def counted(total: int) -> Iterator[None]:
    """Show on a terminal how many of `total` are done, one more at each `next`."""
    for done in range(total + 1):
        if sys.stderr.isatty():
            width = 30
            bar = "#" * (width * done // total)
            end = "\n" if done == total else ""
            print(f"\r[{bar:<{width}}] {done}/{total}", end=end, file=sys.stderr)
            sys.stderr.flush()
        yield
