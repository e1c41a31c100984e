"""What `check` returns: the diagnosis as data, and its two faces, HTML and text."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Literal

from paged_kv.messages import language, tr

State = Literal["not started", "raised", "wrong", "passed"]
WIDTH = 84


def state_word(state: str) -> str:
    """Return the state in the current language."""
    words = {
        "raised": tr("stopped by an exception"),
        "wrong": tr("not right yet"),
        "passed": tr("passed"),
    }
    return words.get(state) or tr("not started")


@dataclass(frozen=True)
class Section:
    """A labelled part of a report.

    Attributes
    ----------
    label : str
        Its heading.
    lines : tuple of str
        One item each; of code when `is_code`.
    """

    label: str
    lines: tuple[str, ...]
    is_code: bool = False


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a check.

    Attributes
    ----------
    exercise : str
        Its id, "09.1".
    title : str
        Exercise and state for people.
    state : str
        "not started", "raised", "wrong" or "passed".
    code : str
        Stable id of the diagnosed mistake, "passed" or "not-started".
    message : str
        What happened, and why.
    sections : tuple of Section
        Operations, expected, got, place, lesson, hint: whatever there is.
    language : str
        "ru" or "en".
    """

    exercise: str
    title: str
    state: State
    code: str
    message: str
    sections: tuple[Section, ...] = ()
    language: str = field(default_factory=language)

    @property
    def passed(self) -> bool:
        """Whether the solution is right."""
        return self.state == "passed"

    def __repr__(self) -> str:
        parts = [self.title, textwrap.fill(self.message, WIDTH)]
        parts += [_section_text(section) for section in self.sections]
        return "\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        from paged_kv.checks.html import render

        return render(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def _section_text(section: Section) -> str:
    if section.is_code and len(section.lines) == 1:
        return f"{section.label}: {section.lines[0]}"
    if section.is_code:
        return "\n".join([f"{section.label}:", *(f"    {x}" for x in section.lines)])
    if len(section.lines) == 1:
        text = f"{section.label}: {section.lines[0]}"
        return textwrap.fill(text, WIDTH, subsequent_indent="    ")
    items = [
        textwrap.fill(x, WIDTH, initial_indent="  - ", subsequent_indent="    ")
        for x in section.lines
    ]
    return "\n".join([f"{section.label}:", *items])


@dataclass(frozen=True, repr=False)
class Note:
    """A short text to be displayed: a hint, or the progress.

    Attributes
    ----------
    title : str
        Its heading.
    paragraphs : tuple of str
        A paragraph whose lines are indented is code.
    language : str
        "ru" or "en".
    """

    title: str
    paragraphs: tuple[str, ...]
    language: str = field(default_factory=language)

    def __repr__(self) -> str:
        body = (p if p[0] == " " else textwrap.fill(p, WIDTH) for p in self.paragraphs)
        return "\n".join([self.title, *body])

    def _repr_html_(self) -> str:
        from paged_kv.checks.html import render_note

        return render_note(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
