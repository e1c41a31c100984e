"""Numbers in prose: each is set or shown by a cell, cited with its source, or small.

What a cell shows changes with the code; a sentence that repeats it does not. So a
number in prose must stand in the code or in a text output of a notebook of the same
master (a sentence may round decimals), or in ``course/cited.toml``. A wrong number
that happens to stand there as well is not found.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from .master import LANGS, CourseError, Master
from .notebook import targets
from .prose import plain

# A table per master, `lessons/09_0_memory`: a number in English notation = its source.
CITED = "course/cited.toml"
# Whole numbers up to this one count things in view.
SMALL = 10

_GAP = "[\u00a0\u202f\u2009 ]"
_GROUPED = {
    "ru": rf"\d{{1,3}}(?:{_GAP}\d{{3}})+(?:,\d+)?(?!\d)",
    "en": r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)",
}
_SAID = {
    "ru": re.compile(rf"{_GROUPED['ru']}|\d+(?:,\d+)?"),
    "en": re.compile(rf"{_GROUPED['en']}|\d+(?:\.\d+)?"),
}
# `print` groups digits and sets decimal points as English does, in both languages.
_SHOWN = re.compile(rf"{_GROUPED['ru']}|{_GROUPED['en']}|\d+(?:[.,]\d+)?")
_SET = re.compile(r"\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?")

_LIST = r"\d[\d.]*(?:(?:\s?[–-]\s?|,\s|\s(?:and|to|или|и|по)\s)\d[\d.]*)*"
# What names a place, a date, a version or a model, and counts nothing.
_NAMES = re.compile(
    rf"§+\s?{_LIST}"
    r"|\b(?:[Ff]ig(?:ures?|s)?|[Tt]ables?|[Aa]lg|[Рр]ис(?:ун\w+)?|[Тт]абл(?:иц\w+)?|алг"
    r"|[Ll]essons?|[Ee]xercises?|[Mm]odules?|[Уу]рок\w*|[Уу]пражнени\w+|[Мм]одул\w+"
    rf"|CC BY)\b\.?\s?{_LIST}"
    r"|\barXiv:?\s?[\d.]+|['’]\d\d\b|\b\d+\.\d+\.\d+\b|\b(?:19|20)\d\d\b|\b0\d\.\d\b"
    r"|(?<!\w)(?:[A-Za-z][\w.]*-?)+\d[\w.]*(?:-\w+)*|\b\d+[A-Za-z]\w*"
)


def said(text: str, lang: str) -> Iterator[tuple[str, Decimal]]:
    """Yield each number of a sentence that counts or measures, and its value."""
    for match in _SAID[lang].finditer(_NAMES.sub(" ", text)):
        yield match[0], _value(match[0], lang)


def _value(written: str, lang: str) -> Decimal:
    if lang == "ru":
        return Decimal(re.sub(_GAP, "", written).replace(",", "."))
    return Decimal(written.replace(",", ""))


def computed(notebook: Any) -> set[Decimal]:
    """Return every number that a code cell of the notebook sets or shows as text.

    Of an output the plain text counts, not the HTML: a widget's table has so many
    numbers that any would be found in it, and its plain text says what matters.
    """
    found = set()
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        found |= {Decimal(n[0].replace("_", "")) for n in _SET.finditer(cell.source)}
        for output in cell.outputs:
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            for match in _SHOWN.finditer(text):
                found |= set(_readings(match[0]))
    return found


def _readings(written: str) -> Iterator[Decimal]:
    bare = re.sub(_GAP, "", written)
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", bare):
        yield _value(bare, "en")
    if bare.count(",") + bare.count(".") <= 1:
        yield _value(bare.replace(".", ","), "ru")


def backed(value: Decimal, known: set[Decimal]) -> bool:
    """Tell whether ``value`` is small, known, or a known number rounded."""
    whole = value == value.to_integral_value()
    if value in known or (whole and value <= SMALL):
        return True
    decimals = value.as_tuple().exponent
    return not whole and any(
        number.as_tuple().exponent < decimals
        and number.quantize(value, ROUND_HALF_UP) == value
        for number in known
    )


def read_cited(path: Path) -> dict[str, dict[Decimal, str]]:
    """Return master's name → number → source.

    Raises
    ------
    CourseError
        If the file is not a table of such tables, or a source is empty.
    """
    if not path.exists():
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        return {
            name: {Decimal(number): _source(source) for number, source in table.items()}
            for name, table in tables.items()
        }
    except (ArithmeticError, AttributeError, ValueError) as error:
        fault = f'not `[master]` with lines `"20.4" = "source"`: {error!r}'
        raise CourseError([f"{CITED}: {fault}"]) from error


def _source(text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"no source in {text!r}")
    return text


def number_problems(
    masters: Iterable[Master],
    notebooks: Mapping[str, Any],
    cited: dict[str, dict[Decimal, str]],
) -> list[str]:
    """Judge the numbers in the prose of each master by its stored notebooks.

    An exercise is judged with its solution, which computes what it asks for.
    """
    problems = []
    names = set()
    for master in masters:
        name = master.path.removeprefix("course/").removesuffix(".py")
        names.add(name)
        wanted = targets([master])
        if any(target.path not in notebooks for target in wanted):
            continue  # not built yet, and that is told
        sources = cited.get(name, {})
        unsaid = set(sources)
        for lang in LANGS:
            known = set(sources)
            for target in wanted:
                if target.lang in (lang, ""):
                    known |= computed(notebooks[target.path])
            for cell in master.cells:
                if cell.lang != lang:
                    continue
                numbers = dict(said(plain(cell.source), lang))
                unsaid -= set(numbers.values())
                problems += [
                    f"{cell.at()} {written} is in no output and no code of the"
                    f" notebook: mend it, or name its source in {CITED}"
                    for written, value in numbers.items()
                    if not backed(value, known)
                ]
        problems += [
            f"{CITED}: [{name}] {number} is in no sentence; delete the line"
            for number in sorted(unsaid)
        ]
    problems += [f"{CITED}: no master {name}" for name in sorted(set(cited) - names)]
    return problems
