"""Internal links of notebooks and README files: find those that lead nowhere."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from .prose import headings, links


def link_problems(texts: Iterable[tuple[str, str]], root: Path) -> list[str]:
    """Judge the links of (path relative to ``root``, markdown) pairs."""
    texts = list(texts)
    anchors = {
        path: {
            _anchor(path, h.text) for p, t in texts if p == path for h in headings(t)
        }
        for path, _ in texts
    }
    problems = []
    for path, text in texts:
        for link in links(text):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = unquote(link).partition("#")
            found = (
                (root / path).parent.joinpath(name).resolve() if name else root / path
            )
            target = (
                found.relative_to(root).as_posix() if found.is_relative_to(root) else ""
            )
            there = target in anchors or (target and found.exists())
            if name.startswith("/") or not there:
                problems.append(f"{path}: dead link: {link}")
            elif anchor and anchor not in anchors.get(target, ()):
                problems.append(f"{path}: dead link: {link} has no such heading")
    return problems


def markdown(path: str, notebook: Any) -> list[tuple[str, str]]:
    """Return the (path, text) pairs of a notebook's markdown cells."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    return [(path, cell.source) for cell in cells]


def _anchor(path: str, heading: str) -> str:
    """Return the anchor as JupyterLab makes it, or GitHub for a .md file."""
    if path.endswith(".ipynb"):
        return heading.replace(" ", "-")
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
