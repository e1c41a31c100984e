"""Everything shown to a person, in Russian and English.

The English text in the code is the message id; Russian stands in ``ru/*.po``, one file
per area, compiled to ``.mo`` by ``build.py`` beside this file.
"""

from __future__ import annotations

import gettext
import locale
import os
from pathlib import Path

LANGUAGES = ("ru", "en")
_current: str | None = None
_loaded: dict[str, gettext.NullTranslations] = {}


def use_language(code: str) -> None:
    """Show everything from now on in Russian (``"ru"``) or English (``"en"``).

    Raises
    ------
    ValueError
        For another code.
    """
    global _current
    if code not in LANGUAGES:
        raise ValueError(f"language must be one of {LANGUAGES}, got {code!r}")
    _current = code


def language() -> str:
    """Return the language in use; by default that of the locale, else English."""
    if _current:
        return _current
    names = [os.environ.get(n, "") for n in ("LC_ALL", "LC_MESSAGES", "LANG")]
    name = next(filter(None, names), locale.getlocale()[0] or "")
    return "ru" if name.lower().startswith("ru") else "en"


def tr(message: str, /, **values: object) -> str:
    """Return `message` in the current language with `values` put in."""
    return _translations().gettext(message).format(**values)


def trn(singular: str, plural: str, n: int, /, **values: object) -> str:
    """Return the form for `n` (1 блок, 2 блока, 5 блоков), with `n` and `values`."""
    return _translations().ngettext(singular, plural, n).format(n=n, **values)


def _translations() -> gettext.NullTranslations:
    code = language()
    if code not in _loaded:
        chain = gettext.NullTranslations()
        for path in sorted((Path(__file__).parent / code).glob("*.mo")):
            with path.open("rb") as file:
                translations = gettext.GNUTranslations(file)
            translations.add_fallback(chain)
            chain = translations
        _loaded[code] = chain
    return _loaded[code]
