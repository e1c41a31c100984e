"""Command line: ``python -m course.build notebooks | check | spelling | …``."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import nbformat

from . import languages, prose, stored
from .execute import execute
from .limits import length_problems, listing, size_problem
from .links import link_problems, markdown
from .master import CourseError, Master, find_masters, read_master
from .notebook import Target, assemble, targets
from .numbers import CITED, number_problems, read_cited
from .outputs import normalise, output_problems
from .published import repository
from .solution import leaks, nbgrader_problems, secrets
from .spelling import DICTIONARIES, find_dictionaries, spelling_problems

_LOCK = "course/i18n.lock"

Item = TypeVar("Item")
Made = TypeVar("Made")


def _each(function: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """Map, and raise the faults of all items at once."""
    results, problems = [], []
    for item in items:
        try:
            results.append(function(item))
        except CourseError as error:
            problems += error.problems
    if problems:
        raise CourseError(list(dict.fromkeys(problems)))
    return results


def read_masters(root: Path, select: str = "") -> list[Master]:
    """Read the masters whose name has ``select``."""
    paths = find_masters(root)
    paths = [path for path in paths if select in path.relative_to(root).as_posix()]
    if not paths:
        raise CourseError(
            [f"no master in {root / 'course'} has {select!r} in its name"]
        )
    return _each(lambda path: read_master(path, root), paths)


def assemble_all(
    wanted: list[Target], masters: list[Master], root: Path
) -> dict[str, Any]:
    """Return path → notebook, not executed."""
    name = repository(root)
    notebooks = _each(lambda target: assemble(target, masters, name), wanted)
    return {t.path: notebook for t, notebook in zip(wanted, notebooks, strict=True)}


def run(notebooks: dict[str, Any], root: Path) -> list[str]:
    """Execute and normalise in place the notebooks that have code."""
    coded = {
        path: notebook
        for path, notebook in notebooks.items()
        if any(cell.cell_type == "code" for cell in notebook.cells)
    }
    problems = execute(coded, root)
    for notebook in notebooks.values():
        normalise(notebook)
    return problems


def content_problems(target: Target, notebook: Any) -> list[str]:
    """Judge an executed notebook: its outputs, and leaks of the solution."""
    problems = output_problems(notebook, target.lang)
    problems += length_problems(notebook, target.kind)
    if target.kind == "exercises":
        problems += leaks(secrets(target.master, target.lang), notebook)
    return [f"{target.path}: {problem}" for problem in problems]


def master_problems(masters: list[Master]) -> list[str]:
    """Judge the text of the masters: comments, typography, both sides' shape."""
    problems = []
    for master in masters:
        for cell in master.cells:
            problems += prose.typography_problems(cell)
            if cell.lang is None:
                problems += languages.comment_problems(cell)
                problems += nbgrader_problems(cell)
    for ru, en, *_ in languages.pairs(masters).values():
        if ru.lang is not None:
            problems += prose.shape_problems(ru, en)
    return problems


def build(root: Path, select: str) -> list[str]:
    """Build, execute and write the notebooks of the masters whose name has ``select``.

    A notebook with a problem is not written; the stored one stays.
    """
    masters = read_masters(root, select)
    wanted = targets(masters)
    if any(target.kind == "index" for target in wanted):
        masters = read_masters(root)  # its map shows all
    notebooks = assemble_all(wanted, masters, root)
    problems = run(notebooks, root)
    for target in wanted:
        faults = content_problems(target, notebooks[target.path])
        if not faults:
            path = root / target.path
            path.parent.mkdir(parents=True, exist_ok=True)
            text = nbformat.writes(notebooks[target.path])
            path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
            stored.keep_pristine(root, target)
        problems += faults
    return problems


def check(root: Path, *, outputs: bool) -> list[str]:
    """Return every gate's problems; ``outputs`` executes, and compares them too."""
    masters = read_masters(root)
    wanted = targets(masters)
    notebooks = assemble_all(wanted, masters, root)
    lock = languages.read_lock(root / _LOCK)
    problems = master_problems(masters)
    problems += languages.lock_problems(lock, languages.pairs(masters))
    problems += stored.strays(root, wanted)
    problems += stored.pristine_problems(root, wanted)
    if outputs:
        problems += run(notebooks, root)
    texts = []
    kept = {}
    for target in wanted:
        built = notebooks[target.path]
        texts += markdown(target.path, built)
        found = stored.read(root, target.path)
        if found is None:
            problems.append(f"{target.path}: not built")
            continue
        kept[target.path] = found
        problems += stored.differences(target.path, found, built, outputs=outputs)
        problems += content_problems(target, found)
        problems += size_problem(root, target.path)
    problems += number_problems(masters, kept, read_cited(root / CITED))
    for name, text in prose.guides(root):
        problems += [f"{name}: {fault}" for fault in prose.image_problems(text)]
        texts.append((name, text))
    return problems + link_problems(texts, root)


def long_things(root: Path) -> list[str]:
    """Return lines about the longest cells and outputs, and the largest notebooks."""
    paths = [target.path for target in targets(read_masters(root))]
    found = {path: stored.read(root, path) for path in paths}
    return list(listing(root, {path: nb for path, nb in found.items() if nb}))


def spell(root: Path) -> list[str]:
    """Check the spelling; without dictionaries say so, and fail in CI only."""
    found = find_dictionaries()
    missing = [name for name in DICTIONARIES if name not in found]
    if not missing:
        return spelling_problems(root, read_masters(root), found)
    message = (
        f"spelling NOT checked: no dictionary {' and '.join(missing)} of hunspell here"
        " (Debian, Ubuntu: apt-get install hunspell-ru hunspell-en-gb; elsewhere put"
        " the .aff and .dic files into a folder, and its name into DICPATH)"
    )
    if os.environ.get("CI"):
        return [message]
    print(message)
    return []


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Run one command; return the exit status, 1 if there is a problem."""
    parser = argparse.ArgumentParser(prog="python -m course.build", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("notebooks", help="build and execute the notebooks")
    one.add_argument("select", nargs="?", default="", help="part of a master's name")
    two = commands.add_parser("check", help="are the stored notebooks the masters'?")
    two.add_argument("--execute", action="store_true", help="compare outputs as well")
    commands.add_parser("spelling", help="are the words right in both languages?")
    commands.add_parser("listing", help="show the longest cells, outputs and files")
    three = commands.add_parser("acknowledge", help="both languages say the same")
    three.add_argument("select", nargs="?", default="", help="part of a master's name")
    options = parser.parse_args(arguments)
    root = (root or Path.cwd()).resolve()
    try:
        if options.command == "acknowledge":
            found = languages.pairs(read_masters(root, options.select))
            changed = languages.acknowledge(root / _LOCK, found, options.select)
            print(f"{changed} lines of {_LOCK} changed")
            return 0
        if options.command == "listing":
            print("\n".join(long_things(root)))
            return 0
        if options.command == "notebooks":
            problems = build(root, options.select)
        elif options.command == "spelling":
            problems = spell(root)
        else:
            problems = check(root, outputs=options.execute)
    except CourseError as error:
        problems = error.problems
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"problems: {len(problems)}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
