"""``paged-kv reset``: put an exercise back as it came, and keep the student's copy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import paged_kv
from paged_kv.messages import tr

#: Copies of ``exercises/`` that the build of the course keeps beside this file, so
#: that a reset needs neither git nor the tools of the build.
PRISTINE = Path(__file__).parent / "exercises"
BACKUPS = "backups"  # not below exercises/: everything there is built and tested


class CannotReset(Exception):
    """Nothing was changed; the text says why."""


def exercises(lang: str) -> dict[str, Path]:
    """Return the pristine notebooks of a language by exercise id."""
    found = sorted((PRISTINE / lang).glob("*.ipynb"))
    return {path.name.partition("_")[0]: path for path in found}


def find_course(given: Path | None = None) -> Path:
    """Return the folder of the course: `given`, this folder or one above it, the clone.

    Raises
    ------
    CannotReset
        If none of them has a folder ``exercises``.
    """
    here = Path.cwd()
    clone = Path(paged_kv.__file__).parents[1]
    candidates = [given] if given else [here, *here.parents, clone]
    for folder in candidates:
        if all((folder / "exercises" / lang).is_dir() for lang in ("ru", "en")):
            return folder
    raise CannotReset(
        tr(
            "The course is not in {folder}: there is no folder exercises/ru and "
            "exercises/en. Go into the folder of the course, or name it with --course.",
            folder=candidates[0],
        )
    )


def reset(ids: list[str], lang: str, course: Path) -> Iterator[str]:
    """Put exercises back as they came, and yield a line about each.

    A notebook that differs is kept in the folder `BACKUPS` of the course, as
    ``ru/09.1_block_pool.1.ipynb`` (2, 3…).

    Raises
    ------
    CannotReset
        For an unknown id, before anything is changed.
    OSError
        If a file cannot be written; the student's notebook is then as it was.
    """
    known = exercises(lang)
    if unknown := [given for given in ids if given not in known]:
        raise CannotReset(
            tr(
                "There is no exercise {given}. There are: {known}.",
                given=", ".join(unknown),
                known=", ".join(known),
            )
        )
    for exercise in ids:
        pristine = known[exercise]
        path = course / "exercises" / lang / pristine.name
        if not path.exists():
            _put(pristine, path)
            yield tr("{file}: was missing, is there again.", file=path.name)
        elif path.read_bytes() == pristine.read_bytes():
            yield tr("{file}: is as it came, nothing to do.", file=path.name)
        else:
            backup = _keep(path, course / BACKUPS / lang)
            _put(pristine, path)
            yield tr(
                "{file}: is as it came; your copy is {backup}. If the notebook is "
                "open, reload it from disk.",
                file=path.name,
                backup=backup.relative_to(course).as_posix(),
            )


def _keep(path: Path, folder: Path) -> Path:
    """Copy a notebook to a new file in `folder`; no file is ever overwritten."""
    content = path.read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    for n in count(1):
        backup = folder / f"{path.stem}.{n}.ipynb"
        try:
            with backup.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            continue
        break
    return backup


def _put(pristine: Path, path: Path) -> None:
    """Replace `path` in one step."""
    new = path.with_name(f".{path.name}.new")
    shutil.copyfile(pristine, new)
    os.replace(new, path)
