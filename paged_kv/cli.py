"""``paged-kv``: commands for teachers and students."""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path

from paged_kv.messages import LANGUAGES, language, tr, trn, use_language


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):  # a Windows console may be cp1251
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    argv = sys.argv[1:] if argv is None else argv
    # The language decides how --help reads, so it is looked for before.
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--lang", choices=LANGUAGES, default=language())
    use_language(first.parse_known_args(argv)[0].lang)
    arguments = _parser().parse_args(argv)
    status: int = arguments.run(arguments)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paged-kv", description=tr("Commands of the PagedAttention course.")
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, summary: str, epilog: str = "") -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.add_argument("--lang", choices=LANGUAGES, help=tr("language of all texts"))
        return made

    grade = command("grade", tr("Grade the notebooks of a class."), _grade_epilog())
    add = grade.add_argument
    add("paths", nargs="+", type=Path, metavar="PATH", help=tr("notebooks, folders"))
    add("--csv", type=Path, required=True, help=tr("file for the table of points"))
    add("--html", type=Path, metavar="DIR", help=tr("folder for a report per student"))
    add("--safe", action="store_true", help=tr("execute definitions only"))
    add("--exercise", default="", help=tr("grade this one, e.g. 09.1"))
    add(
        "--jobs",
        type=_positive,
        default=os.cpu_count() or 1,
        help=tr("notebooks at a time (default: %(default)s)"),
    )
    add(
        "--seconds",
        type=_positive,
        default=60,
        help=tr("processor time for a notebook (default: %(default)s)"),
    )
    add(
        "--memory",
        type=int,
        default=2048,
        metavar="MIB",
        help=tr("memory for a notebook, 0 for any (default: %(default)s)"),
    )
    grade.set_defaults(run=_grade)

    reset = command("reset", tr("Put an exercise back as it came; your copy is kept."))
    reset.add_argument("exercises", nargs="*", metavar="ID", help=tr("e.g. 09.1"))
    reset.add_argument("--all", action="store_true", help=tr("all exercises"))
    reset.add_argument("--course", type=Path, help=tr("folder of the course"))
    reset.set_defaults(run=_reset)

    doctor = command("doctor", tr("Say whether everything is here that is needed."))
    doctor.set_defaults(run=_doctor)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(tr("must be 1 or more"))
    return int(text)


def _grade_epilog() -> str:
    return tr(
        "Each notebook runs in a process of its own, with limits of time, memory,\n"
        "printing and file size. With --safe only the definitions that the exercise\n"
        "asks for are executed, and the imports, functions and constants they need;\n"
        "no other line of any cell.\n"
        "\n"
        "What this does not protect against: code that means harm. Imports and the\n"
        "students' functions run with your rights, also with --safe: they can read\n"
        "and delete your files, use the network, and fake their own points. Grade\n"
        "notebooks of strangers in a container or as another user, without network.\n"
        "Windows knows no limit of memory, macOS does not keep it; started as root,\n"
        "a notebook may start other processes.\n"
        "\n"
        "Exit status: 0 all graded, 1 some could not be (states stopped, unreadable,\n"
        "unknown in the table), 2 wrong arguments."
    )


def _grade(arguments: argparse.Namespace) -> int:
    from paged_kv.checks.registry import EXERCISES
    from paged_kv.grading import page, run, table
    from paged_kv.grading.grade import UNGRADED

    exercise = arguments.exercise
    if exercise and exercise not in EXERCISES:
        return _refuse(
            tr(
                "There is no exercise {given}. There are: {known}.",
                given=exercise,
                known=", ".join(EXERCISES),
            )
        )
    options = run.Options(arguments.safe, exercise, arguments.seconds, arguments.memory)
    try:
        notebooks = run.find_notebooks(arguments.paths)
        # Say now, not after an hour, that the results cannot be written.
        arguments.csv.parent.mkdir(parents=True, exist_ok=True)
        arguments.csv.open("a").close()  # what an earlier run found stays until then
        if arguments.html:
            arguments.html.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _refuse(str(error))
    progress = run.counted(len(notebooks))
    next(progress)
    grades = run.grade_all(notebooks, options, arguments.jobs, lambda: next(progress))
    table.write_csv(grades, arguments.csv)
    if arguments.html:
        page.write_pages(grades, arguments.html)
    ungraded = [grade for grade in grades if grade.state in UNGRADED]
    n = len(notebooks)
    words = trn("{n} notebook graded", "{n} notebooks graded", n)
    print(f"{words}: {arguments.csv}")
    for grade in ungraded:
        print(f"{grade.submission}: {grade.message or ' '.join(grade.notes)}")
    return 1 if ungraded else 0


def _reset(arguments: argparse.Namespace) -> int:
    from paged_kv.commands import reset

    lang = language()
    ids = sorted(reset.exercises(lang)) if arguments.all else arguments.exercises
    if not ids:
        return _refuse(tr("Name an exercise, e.g. 09.1, or give --all."))
    try:
        for line in reset.reset(ids, lang, reset.find_course(arguments.course)):
            print(line)
    except (reset.CannotReset, OSError) as error:
        return _refuse(str(error))
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from paged_kv.commands import doctor

    failed = False
    for finding in doctor.examine_installation():
        print(finding, flush=True)
        failed |= bool(finding.remedy)
    return 1 if failed else 0


def _refuse(text: str) -> int:
    print(text, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
