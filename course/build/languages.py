"""The two languages of a master: code comments by language, and the sync lock."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from .master import Cell, CourseError, Master

_COMMENT = re.compile(r"(?P<indent>\s*)# (?P<lang>ru|en):(?P<text>.*)")
_NEAR_MISS = re.compile(r"#\s*(ru|en)\s*:", re.IGNORECASE)

Pair = tuple[Cell, Cell, str, str]  # the cells of both sides, and both texts


def line_for(line: str, lang: str) -> str | None:
    """Return a line of code as ``lang`` sees it, or None if it is the other's."""
    match = _COMMENT.fullmatch(line)
    if match is None:
        return line.replace("{{lang}}", lang)
    if match["lang"] != lang:
        return None
    return f"{match['indent']}#{match['text'].rstrip()}"


def code_for(source: str, lang: str) -> str:
    """Return code with the comments of one language and ``{{lang}}`` replaced."""
    lines = (line_for(line, lang) for line in source.splitlines())
    return "\n".join(line for line in lines if line is not None)


def comment_problems(cell: Cell) -> list[str]:
    """Find language markers that are not whole comment lines, or stand alone."""
    problems = []
    found = set()
    for i, line in enumerate(cell.source.splitlines()):
        bare = line.replace("# STUB: ", "", 1)
        match = _COMMENT.fullmatch(bare)
        if match:
            found.add(match["lang"])
        if _NEAR_MISS.search(match["text"] if match else bare):
            problems.append(
                f"{cell.at(i)} a language marker that is not a line `# ru: …`"
            )
    if len(found) == 1:
        problems.append(f"{cell.at()} comments in {found.pop()} only")
    return problems


def pairs(masters: Iterable[Master]) -> dict[str, Pair]:
    """Return ``master:key`` → both sides, of markdown and of commented code."""
    found: dict[str, Pair] = {}
    for master in masters:
        cells = iter(master.cells)
        for cell in cells:
            other = cell if cell.lang is None else next(cells)
            ru, en = (
                side.source if side.lang else comments(side.source, lang)
                for side, lang in ((cell, "ru"), (other, "en"))
            )
            if ru or en:
                found[f"{master.path}:{cell.key}"] = (cell, other, ru, en)
    return found


def comments(source: str, lang: str) -> str:
    """Return the text of the comment lines of one language in a code cell."""
    bare = (line.replace("# STUB: ", "", 1) for line in source.splitlines())
    matches = (_COMMENT.fullmatch(line) for line in bare)
    return "\n".join(m["text"].strip() for m in matches if m and m["lang"] == lang)


def _hashes(pair: Pair) -> tuple[str, str]:
    ru, en = (hashlib.sha256(text.encode()).hexdigest()[:12] for text in pair[2:])
    return ru, en


def read_lock(path: Path) -> dict[str, tuple[str, str]]:
    """Read ``i18n.lock``: a line ``master:key hash-of-ru hash-of-en`` per pair."""
    if not path.exists():
        return {}
    lock = {}
    for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match line.split():
            case [key, ru, en]:
                lock[key] = (ru, en)
            case _:
                fault = "not `key hash hash`; repair the merge, or delete the line"
                raise CourseError([f"course/{path.name}:{i}: {fault}: {line}"])
    return lock


def lock_problems(
    lock: dict[str, tuple[str, str]], found: dict[str, Pair]
) -> list[str]:
    """Compare the pairs with what was acknowledged last."""
    stale = lock.keys() - found.keys()
    problems = [
        f"course/i18n.lock: no cell {key} any more; run acknowledge"
        for key in sorted(stale)
    ]
    for key, pair in found.items():
        ru, en = pair[:2]
        lines = f"lines {ru.line} and {en.line}"
        old, new = lock.get(key), _hashes(pair)
        if old is None:
            fault = f"new; read both sides ({lines}), then run acknowledge"
        elif old[0] != new[0] and old[1] != new[1]:
            fault = f"both sides changed; read {lines} once more, then run acknowledge"
        elif old != new:
            fault = (
                f"only {'ru' if old[0] != new[0] else 'en'} changed; bring {lines} in"
                " step, then run acknowledge"
            )
        else:
            continue
        problems.append(f"{ru.at()} {fault}")
    return problems


def acknowledge(path: Path, found: dict[str, Pair], select: str = "") -> int:
    """Record that both sides of ``found``, masters named by ``select``, say the same.

    Returns
    -------
    int
        How many lines of the lock are new, changed or gone.
    """
    old = read_lock(path)
    new = {key: value for key, value in old.items() if select not in key.split(":")[0]}
    new.update((key, _hashes(pair)) for key, pair in found.items())
    rows = [f"{key} {ru} {en}\n" for key, (ru, en) in sorted(new.items())]
    path.write_text("".join(rows), encoding="utf-8")
    return len(dict(old.items() ^ new.items()))
