"""Nothing of one machine, one address of the course, and a small repository."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FOLDERS = ("home", "Users", "root", "work", "tmp")
INDEXES = ("pypi", "pythonhosted", "npmjs", "debian", "anaconda", "pytorch")
FORBIDDEN = {
    "a path of one machine": rf"(?<![\w.])[/\\](?:{'|'.join(FOLDERS)})[/\\]",
    "the host of a package index": rf"\b(?:{'|'.join(INDEXES)})\.(?:org|com)\b",
}


def tracked_files() -> dict[str, bytes]:
    """Return the content of every tracked file, by path."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    names = filter(None, listing.stdout.decode().split("\0"))
    return {
        name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()
    }


def tracked_texts() -> dict[str, str]:
    """Return the text of every tracked file that is text, by path."""
    return {
        name: content.decode("utf-8")
        for name, content in tracked_files().items()
        if b"\0" not in content
    }


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_holds(what):
    found = [
        f"{name}: {match.group()}"
        for name, text in tracked_texts().items()
        for match in re.finditer(FORBIDDEN[what], text)
    ]
    assert found == []


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("path", ["see /{}/eva", '"/{}/x.py"', r"C:\{}\eva"])
def test_each_folder_would_be_found(folder, path):
    assert re.search(FORBIDDEN["a path of one machine"], path.format(folder))


@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize("address", ["https://{}.org/simple", "files.{}.com"])
def test_each_index_would_be_found(name, address):
    assert re.search(FORBIDDEN["the host of a package index"], address.format(name))


def test_the_files_together_are_below_30_mb():
    sizes = {name: len(content) for name, content in tracked_files().items()}
    largest = sorted(sizes, key=sizes.get)[-5:]
    assert sum(sizes.values()) < 30e6, {name: sizes[name] for name in largest}


def test_the_address_of_the_course_stands_in_one_place():
    """The build puts it into notebooks; every other file links to those."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    address = project["project"]["urls"]["Repository"].removeprefix("https://")
    services = ("mybinder." + "org/v2", "colab.research." + "google.com/github")
    at_home = {
        "pyproject.toml",
        "course/build/published.py",
        "tests/notebooks/test_published.py",
    }
    found = [
        f"{name}: {text}"
        for name, content in tracked_texts().items()
        if name not in at_home and not name.endswith(".ipynb")
        for text in (address, *services)
        if text in content
    ]
    assert found == []
