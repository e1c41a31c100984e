"""What all widgets share: the frame of a picture, its style sheets and its script.

A picture is HTML that is complete in itself: it shows in a notebook, in a stored one,
and inside an ipywidgets ``HTML``. The script stands in the ``onload`` of the style
sheet, the one place where all three run it; without it, and without the style sheet
(an untrusted notebook drops both), tables and text remain.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html import escape
from importlib.resources import files

from paged_kv.messages import language


def root_classes(*sheets: str) -> list[str]:
    """Return the classes of the outermost element: "pkv", and one for each sheet.

    All widgets of a notebook share one page. A sheet therefore stands below its own
    class, ``softmax.css`` below ``.softmax``, and cannot touch another widget.
    """
    return ["pkv", *(sheet.removesuffix(".css") for sheet in sheets)]


@cache
def asset(name: str) -> str:
    """Return the text of a style sheet or script beside this file."""
    return files(__package__).joinpath(name).read_text("utf-8")


@cache
def style(*sheets: str, script: str = "explorer.js") -> str:
    """Return the ``<style>`` element that brings style sheets and script.

    Parameters
    ----------
    *sheets : str
        File names beside this one; ``base.css`` always comes first.
    script : str
        File name of the script. It runs with the style element as ``this``.
    """
    css = "\n".join(asset(name).strip() for name in ("base.css", *sheets))
    return f'<style onload="{escape(asset(script).strip())}">\n{css}\n</style>'


def page(body: str, label: str, *sheets: str) -> str:
    """Return a whole picture, style and script included.

    Parameters
    ----------
    body : str
        HTML.
    label : str
        Name of the picture, for screen readers.
    *sheets : str
        Style sheets besides ``base.css``.
    """
    return (
        f'<div class="{" ".join(root_classes(*sheets))}" role="group" '
        f'lang="{language()}" aria-label="{escape(label)}">\n'
        f"{style(*sheets)}\n{body}\n</div>"
    )


def title(text: str, lead: str = "") -> str:
    """Return the title line of a widget.

    Not a heading element: JupyterLab would list it in the table of contents.
    """
    more = f" <p>{escape(lead)}</p>" if lead else ""
    return f'<div class="ti"><p><b>{escape(text)}</b></p>{more}</div>'


class Picture:
    """Something a notebook shows: HTML, and the same facts as plain text.

    Parameters
    ----------
    html : callable
        Returns the HTML, in the language in use when the picture is shown.
    text : callable
        Returns the plain text.
    """

    def __init__(self, html: Callable[[], str], text: Callable[[], str]) -> None:
        self._html = html
        self._text = text

    def _repr_html_(self) -> str:
        return self._html()

    def __repr__(self) -> str:
        return self._text()
