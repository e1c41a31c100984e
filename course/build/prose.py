"""Markdown as a reader sees it: the shape of a cell, its typography, its links."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

from .languages import line_for
from .master import Cell

_PARSER = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)
_MATH = ("math_inline", "math_inline_double", "math_block")
_HTML = ("html_block", "html_inline")
_STRUCTURE = re.compile(
    r"(bullet_list|ordered_list|list_item|table|tr|blockquote)_open"
)
_NOT_PROSE = "\ufffc"  # stands for code and formulas in the text of a sentence
_EMPHASIS = "\ufffd"  # stands at both ends of *italics*

_CYRILLIC = re.compile(r"[\u0400-\u04ff]+")
_MIXED = re.compile(r"\w*(?:[A-Za-z][\u0400-\u04ff]|[\u0400-\u04ff][A-Za-z])\w*")
_LONE_LATIN = re.compile(r"(?<=[а-яё] )[aco](?= [а-яё])")
# A Russian «с» is a unit only at the end of a phrase, else a preposition.
_UNIT = re.compile(
    rf"(?:\d[\d,]*|{_NOT_PROSE}) ?"
    r"(?:(?:[КМГТ]и?)?Б(?:/с)?|мс|мкс|нс|%|с(?=[.,;:!?)]|$))(?!\w)"
)


class Heading(NamedTuple):
    """A heading: its level and its text."""

    level: int
    text: str


def _flat(text: str) -> Iterator[Token]:
    for token in _PARSER.parse(text):
        yield token
        yield from _children(token)


def _children(token: Token) -> Iterator[Token]:
    for child in token.children or []:
        yield child
        yield from _children(child)


def _text(inline: Token) -> str:
    parts = []
    for token in _children(inline):
        if token.type == "text":
            parts.append(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif token.type in ("em_open", "em_close"):
            parts.append(_EMPHASIS)
        elif token.type == "code_inline" or token.type in _MATH:
            parts.append(_NOT_PROSE)
    return "".join(parts)


def guides(root: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of every guide: what is read outside of the notebooks."""
    for pattern in ("*.md", "course/*.md", "docs/*.md"):
        for path in sorted(root.glob(pattern)):
            yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def plain(text: str) -> str:
    """Return the sentences of a markdown text: no code, formulas, addresses or tags.

    One line per paragraph, heading or table cell; alternative text counts as text.
    """
    lines = []
    for token in _PARSER.parse(text):
        if token.type == "inline":
            described = [t.content for t in _children(token) if t.type == "image"]
            lines += [re.sub(f"[{_EMPHASIS}{_NOT_PROSE}]", " ", _text(token))]
            lines += described
        elif token.type == "html_block":
            lines.append(re.sub(r"<[^>]*>", " ", token.content))
    return "\n".join(lines)


def headings(text: str) -> list[Heading]:
    """Return the headings with the text that anchors are made of."""
    tokens = _PARSER.parse(text)
    return [
        Heading(
            int(opened.tag[1]),
            "".join(t.content for t in _children(inline) if t.type != "image"),
        )
        for opened, inline in pairwise(tokens)
        if opened.type == "heading_open"
    ]


def links(text: str) -> list[str]:
    """Return the targets of links and images, also of HTML tags."""
    found = []
    for token in _flat(text):
        found += [str(token.attrs[a]) for a in ("href", "src") if a in token.attrs]
        if token.type in _HTML:
            found += re.findall(r"""(?:href|src)=["']([^"']*)""", token.content)
    return found


def _formula(text: str) -> str:
    """Drop what may differ between languages: words, decimal comma, spaces."""
    text = re.sub(r"\\(text|mathrm|operatorname)\{[^{}]*\}", r"\\\1", text)
    return re.sub(r"\s|\\[,;:! ]", "", text.replace("{,}", "."))


def shape(text: str, lang: str) -> dict[str, Any]:
    """Return what must be the same in both languages."""
    tokens = list(_flat(text))
    mirrored = {"ru": "en", "en": "ru"}
    targets = [link.split("#") for link in links(text)]
    if lang == "ru":
        targets = [
            ["/".join(mirrored.get(part, part) for part in path.split("/")), *anchor]
            for path, *anchor in targets
        ]
    return {
        "headings": [heading.level for heading in headings(text)],
        "lists, tables and quotes": [
            t.type for t in tokens if _STRUCTURE.match(t.type)
        ],
        "formulas": sorted({_formula(t.content) for t in tokens if t.type in _MATH}),
        "code spans": sorted({t.content for t in tokens if t.type == "code_inline"}),
        "code blocks": [t.info for t in tokens if t.type in ("fence", "code_block")],
        "images": [t.attrs["src"] for t in tokens if t.type == "image"],
        # Anchors are headings, which are translated; the link check looks them up.
        "links": sorted((path, bool(anchor)) for path, *anchor in targets),
        "HTML tags": [
            tag
            for t in tokens
            if t.type in _HTML
            for tag in re.findall(r"</?\w+", t.content)
        ],
    }


def shape_problems(ru: Cell, en: Cell) -> list[str]:
    """Compare the two sides of a markdown cell."""
    left, right = shape(ru.source, "ru"), shape(en.source, "en")
    return [
        f"{ru.at()} the sides differ in {what}: ru {left[what]}, en {right[what]}"
        for what in left
        if left[what] != right[what]
    ]


def image_problems(text: str) -> list[str]:
    """Return a line for each image of a markdown text that has no words."""
    faults = []
    for token in _flat(text):
        tags = re.findall(r"<img\b[^>]*>", token.content) if token.type in _HTML else []
        mute = [tag for tag in tags if not re.search(r"""\balt=["'][^"']""", tag)]
        if token.type == "image" and not token.content.strip():
            mute.append(str(token.attrs["src"]))
        faults += [f"an image without alternative text: {image}" for image in mute]
    return faults


def typography_problems(cell: Cell) -> list[str]:
    """Judge the letters, quotes and spaces of a markdown cell, or of code."""
    problems = []
    for i, line in enumerate(cell.source.splitlines()):
        if cell.lang is None:
            english = line_for(line.replace("# STUB: ", "", 1), "en") or ""
            problems += [
                f"{cell.at(i)} Cyrillic in code: {word!r}"
                for word in _CYRILLIC.findall(english)
            ]
        # In code, `\n` before a Russian word is no Latin letter.
        bare = re.sub(r"\\[nrt]", " ", line) if cell.lang is None else line
        problems += [
            f"{cell.at(i)} Latin and Cyrillic letters in one word: {match[0]!r}"
            for match in _MIXED.finditer(bare)
        ]
    if cell.lang is None:
        return problems
    problems += [f"{cell.at()} {fault}" for fault in image_problems(cell.source)]
    for token in _flat(cell.source):
        at = cell.at((token.map or [0])[0])
        if token.type == "inline":
            faults = _russian(_text(token)) if cell.lang == "ru" else []
        elif token.type == "html_block" and cell.lang == "ru":
            faults = _russian(re.sub(r"<[^>]*>", _NOT_PROSE, token.content))
        else:
            faults = []
        problems += [f"{at} {fault}" for fault in faults]
    if cell.lang == "en":
        problems += [f"{cell.at()} {fault}" for fault in _english(cell.source)]
    return problems


def _russian(text: str) -> list[str]:
    faults = []
    if re.search('["”]', text):
        faults.append(f"typography: «ёлочки» for the quotes in {text.strip()!r}")
    faults += [
        f"typography: no no-break space before the unit in {match[0]!r}"
        for match in _UNIT.finditer(text)
    ]
    faults += [
        f"typography: a Latin {match[0]!r} between Russian words in {text.strip()!r}"
        for match in _LONE_LATIN.finditer(text)
    ]
    return faults


def _english(source: str) -> list[str]:
    faults = []
    for token in _flat(source):
        if token.type == "inline":
            text = re.sub(rf"{_EMPHASIS}.*?{_EMPHASIS}|\([^()]*\)", "", _text(token))
        elif token.type in ("text", "image"):
            continue
        else:
            text = token.content
        faults += [f"Cyrillic in English: {word!r}" for word in _CYRILLIC.findall(text)]
    return faults
