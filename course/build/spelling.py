"""Spelling of both languages, by hunspell's dictionaries and a list of our terms.

A word is judged by its letters: Cyrillic ones by the Russian dictionary, Latin ones by
the English, wherever they stand, since each language names the other's terms.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO

from babel.messages.pofile import read_po
from spylls.hunspell import Dictionary
from spylls.hunspell.readers import read_aff, read_dic
from spylls.hunspell.readers.file_reader import FileReader

from .languages import comments
from .master import Master
from .prose import guides, plain

DICTIONARIES = ("ru_RU", "en_GB")
# Words, and `word/model` for a word with the endings of another; `#` comments.
TERMS = "course/terms.txt"
_MESSAGES = "paged_kv/messages/ru"

_CYRILLIC = r"[а-яё]+(?:-[а-яё]+)*"
_LATIN = r"[a-zéöüä]+(?:['’-][a-zéöüä]+)*"
_WORD = re.compile(
    rf"(?<![\w.])(?<!\d-)(?:{_CYRILLIC}(?!\w)|{_LATIN}(?![\w(]))", re.IGNORECASE
)
# Placeholders, code, markup, addresses and what looks like a name in code.
_NOT_WORDS = re.compile(
    r"\{[^{}]*\}|`[^`]*`|<[^<>]*>|&\w+;|%\(\w+\)\w|https?://\S+|\w*_\w+|[\w./-]+\.\w+"
)


def find_dictionaries() -> dict[str, Path]:
    """Return the stems of the dictionaries that this machine has, by name.

    ``DICPATH`` names folders that are looked in first, as it does for hunspell.
    """
    folders = [Path(name) for name in os.environ.get("DICPATH", "").split(os.pathsep)]
    folders += [
        Path("/usr/share/hunspell"),
        Path("/usr/share/myspell/dicts"),
        Path("/Library/Spelling"),
        Path.home() / "Library" / "Spelling",
    ]
    return {
        name: folder / name
        for name in DICTIONARIES
        for folder in reversed(folders)
        if (folder / f"{name}.dic").is_file() and (folder / f"{name}.aff").is_file()
    }


def words(text: str) -> Iterator[str]:
    """Yield the words of a text without markdown that a dictionary can judge."""
    for match in _WORD.finditer(_NOT_WORDS.sub(" ", text)):
        word = match[0].replace("’", "'")
        if word[1:] == word[1:].lower():  # neither GQA nor ShareGPT
            yield word


def texts(root: Path, masters: list[Master]) -> Iterator[tuple[str, str]]:
    """Yield (place, text) of all that people read: masters, catalogues, guides."""
    for master in masters:
        for lang, summary in master.header.get("summary", {}).items():
            yield f"{master.path}:1: [summary, {lang}]", summary
        for cell in master.cells:
            if cell.lang is not None:
                yield cell.at(), plain(cell.source)
            else:
                for lang in ("ru", "en"):
                    yield cell.at(), comments(cell.source, lang)
    for path in sorted((root / _MESSAGES).glob("*.po")):
        name = path.relative_to(root).as_posix()
        with path.open("rb") as file:
            for message in filter(lambda m: m.id, read_po(file, locale="ru")):
                for side in (message.id, message.string):
                    for text in [side] if isinstance(side, str) else side:
                        yield f"{name}:{message.lineno}:", plain(text)
    for name, text in guides(root):
        yield f"{name}:", plain(text)


def _open(stem: Path) -> Dictionary:
    with ExitStack() as files:

        class Reader(FileReader):
            """spylls leaves its files open; these are closed."""

            def _open(self, path: str, encoding: str) -> IO[str]:
                return files.enter_context(super()._open(path, encoding))

        aff, context = read_aff(Reader(f"{stem}.aff"))
        dic = read_dic(
            Reader(f"{stem}.dic", context.encoding), aff=aff, context=context
        )
    return Dictionary(aff, dic)


def read_terms(path: Path) -> dict[str, str]:
    """Return each listed word in lower case, and its model or ""."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    items = [item for line in lines for item in line.partition("#")[0].lower().split()]
    return {word: model for word, _, model in (item.partition("/") for item in items)}


def _learn(terms: dict[str, str], *dictionaries: Dictionary) -> list[str]:
    """Add words with a model to the dictionary of the model; return unknown models."""
    unknown = []
    for word, model in terms.items():
        found = [
            (dictionary.dic, entry)
            for dictionary in dictionaries
            for entry in dictionary.dic.homonyms(model)
        ]
        for dic, entry in found:
            dic.append(replace(entry, stem=word), lower=[word])
        if model and not found:
            unknown.append(f"{TERMS}: {word}/{model}: no dictionary has the model")
    return unknown


def spelling_problems(
    root: Path, masters: list[Master], dictionaries: dict[str, Path]
) -> list[str]:
    """Return ``place: word`` for each word that neither dictionary nor list has.

    A hyphenated word is right if it is listed, or if its parts are right.
    """
    known = read_terms(root / TERMS)
    russian, english = (_open(dictionaries[name]) for name in DICTIONARIES)
    problems = _learn(known, russian, english)
    judged: dict[str, bool] = {}

    def right(word: str) -> bool:
        if word not in judged:
            judge = russian if re.match(r"[а-яё]", word, re.I) else english
            parts = word.split("-")
            judged[word] = (
                word.lower() in known
                or word.lower().removesuffix("'s") in known
                or judge.lookup(word)
                or (len(parts) > 1 and all(map(right, parts)))
            )
        return judged[word]

    return problems + [
        f"{place} {word!r} is no word of the dictionary; mend it, or list it in {TERMS}"
        for place, text in texts(root, masters)
        for word in dict.fromkeys(words(text))
        if not right(word)
    ]
