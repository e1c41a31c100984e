"""A short report for one student, as a page of HTML that stands alone."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import zip_longest
from pathlib import Path

from paged_kv.checks.html import SIGNS, prose, render
from paged_kv.checks.registry import EXERCISES
from paged_kv.grading.grade import Grade, state_word
from paged_kv.messages import language, tr, trn

_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 900px; margin: 2em auto; padding: 0 16px;
  font: 15px/1.5 system-ui, sans-serif; color: CanvasText; background: Canvas; }
h1 { font-size: 22px; overflow-wrap: anywhere; } h2 { font-size: 18px; }
table { border-collapse: collapse; margin: 12px 0; }
th, td { padding: 2px 10px; text-align: left; border-bottom: 1px solid GrayText; }
"""


def write_pages(grades: Iterable[Grade], folder: Path) -> None:
    """Write a page per submission below `folder`, named like it."""
    submissions: dict[str, list[Grade]] = {}
    for grade in grades:
        submissions.setdefault(grade.submission, []).append(grade)
    for submission, theirs in submissions.items():
        path = folder / f"{submission.removesuffix('.ipynb')}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        # A file's name, or a student's text, may hold what UTF-8 cannot.
        path.write_text(_page(submission, theirs), "utf-8", "backslashreplace")


def _page(submission: str, grades: list[Grade]) -> str:
    body = "\n".join(map(_part, grades))
    return (
        f'<!DOCTYPE html>\n<html lang="{language()}">\n<head><meta charset="utf-8">\n'
        f"<title>{escape(submission)}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body><main>\n<h1>{escape(submission)}</h1>\n{body}\n</main></body></html>\n"
    )


def _part(grade: Grade) -> str:
    """Return what there is to say about one exercise."""
    parts = []
    if grade.exercise:
        points = trn(
            "{n} point of {total}",
            "{n} points of {total}",
            grade.points,
            total=grade.max_points,
        )
        title = f"{grade.exercise} {EXERCISES[grade.exercise].title()}"
        parts.append(f"<h2>{escape(title)}: {points}</h2>")
    parts.append(f"<p>{escape(state_word(grade.state).capitalize())}.</p>")
    if grade.ended:
        parts.append(f"<p>{prose(grade.ended)}</p>")
    if grade.notes:
        parts.append(_list(tr("Notes"), grade.notes))
    if grade.report:
        parts.append(render(grade.report))
    if grade.exercise:
        parts.append(_criteria(grade))
        not_verified = EXERCISES[grade.exercise].not_verified()
        parts.append(_list(tr("Not verified"), not_verified))
    return "\n".join(parts)


def _criteria(grade: Grade) -> str:
    cases = EXERCISES[grade.exercise].cases
    rows = []
    for n, (case, holds) in enumerate(zip_longest(cases, grade.criteria), start=1):
        sign = {True: SIGNS["passed"], False: SIGNS["wrong"], None: "–"}[holds]
        word = {True: tr("holds"), False: tr("does not hold"), None: tr("not tried")}
        rows.append(
            f"<tr><td>{n}</td><td>{prose(case.about())}</td>"
            f"<td>{sign} {word[holds]}</td></tr>"
        )
    return "\n".join(["<table><tbody>", *rows, "</tbody></table>"])


def _list(label: str, lines: Iterable[str]) -> str:
    items = "".join(f"<li>{prose(line)}</li>" for line in lines)
    return f"<h3>{label}</h3><ul>{items}</ul>"
