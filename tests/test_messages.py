"""Everything shown to a person exists in Russian, and the catalogues are in step."""

import ast
import gettext
import io
import re
from pathlib import Path
from string import Formatter

import pytest
from babel.messages.pofile import read_po

import paged_kv
from paged_kv.messages import trn, use_language
from paged_kv.messages.build import compile_catalogue

PACKAGE = Path(paged_kv.__file__).parent
ROOT = PACKAGE.parent
CATALOGUES = sorted((PACKAGE / "messages" / "ru").glob("*.po"))
TEXTS = {"tr": 1, "trn": 2}  # how many arguments of a call are messages


def in_code():
    """Return {msgid or (singular, plural): where it stands}.

    From the syntax tree, since Babel's own extraction misses calls inside f-strings.
    """
    found = {}
    for place, arguments in calls():
        texts = tuple(argument.value for argument in arguments)
        found[texts if len(texts) > 1 else texts[0]] = place
    return found


def calls():
    """Yield where `tr` and `trn` are called, and the arguments that are messages.

    In the package, and in the masters of the notebooks, whose cells print.
    """
    masters = ROOT.glob("course/*/[0-9]*.py")
    for path in sorted([*PACKAGE.rglob("*.py"), *masters]):
        if path.parent.name == "messages":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(getattr(node, "func", None), "id", None)
            if isinstance(node, ast.Call) and name in TEXTS:
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield place, node.args[: TEXTS[name]]


def read(path):
    with path.open("rb") as file:
        return read_po(file, locale="ru")


def entries(path):
    """Return {msgid or (singular, plural): message} of a catalogue."""
    return {tuple(m.id) if m.pluralizable else m.id: m for m in read(path) if m.id}


each_catalogue = pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem) for path in CATALOGUES]
)


def test_messages_are_literal():
    """A message that is put together cannot be found, and so not be translated."""
    for place, arguments in calls():
        assert all(isinstance(argument, ast.Constant) for argument in arguments), place


def test_every_message_has_a_russian_text():
    translated = set().union(*(entries(path) for path in CATALOGUES))
    # A singular that stands alone elsewhere: gettext finds it by its plural's entry.
    translated |= {key[0] for key in translated if isinstance(key, tuple)}
    missing = {m: at for m, at in in_code().items() if m not in translated}
    assert missing == {}


@each_catalogue
def test_no_entry_is_unused(path):
    assert set(entries(path)) - set(in_code()) == set()


@each_catalogue
def test_every_entry_is_complete(path):
    assert read(path).num_plurals == 3
    for message in read(path):
        assert not message.fuzzy or not message.id, message.id
        if not message.id:
            continue
        texts = message.string if message.pluralizable else [message.string]
        assert len(texts) == (3 if message.pluralizable else 1), message.id
        assert all(texts), message.id


@each_catalogue
def test_placeholders_are_the_same(path):
    for message in entries(path).values():
        english = message.id if message.pluralizable else [message.id]
        russian = message.string if message.pluralizable else [message.string]
        wanted = set().union(*map(placeholders, english))
        for text in russian:
            assert placeholders(text) == wanted, message.id


def placeholders(text):
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@each_catalogue
def test_units_stand_after_a_no_break_space(path):
    for message in entries(path).values():
        for text in message.string if message.pluralizable else [message.string]:
            assert not re.search(r"[\d}] (?:[КМГ]и?Б|мк?с|нс)(?!\w)", text), text


@each_catalogue
def test_the_compiled_catalogue_is_that_of_its_source(path):
    assert path.with_suffix(".mo").read_bytes() == compile_catalogue(path)
    compiled = gettext.GNUTranslations(io.BytesIO(compile_catalogue(path)))
    for message in entries(path).values():
        if not message.pluralizable:
            assert compiled.gettext(message.id) == message.string


def test_no_area_translates_what_another_one_does():
    # The same English text has one Russian text, wherever it stands.
    texts = {}
    for path in CATALOGUES:
        for key, message in entries(path).items():
            assert texts.setdefault(key, message.string) == message.string, key


@each_catalogue
def test_russian_plurals(path, monkeypatch):
    monkeypatch.setattr("paged_kv.messages._current", None)
    use_language("ru")
    for key, message in entries(path).items():
        if message.pluralizable:
            names = set().union(*map(placeholders, key)) - {"n"}
            values = dict.fromkeys(names, "0")
            for n, form in ((1, 0), (21, 0), (3, 1), (22, 1), (5, 2), (11, 2), (0, 2)):
                wanted = message.string[form].format(n=n, **values)
                assert trn(*key, n, **values) == wanted
