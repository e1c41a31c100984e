"""Nothing of one machine stands in the project: no home, no package index."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FOLDERS = ("home", "Users", "root", "work", "tmp")
INDEXES = ("pypi", "pythonhosted", "npmjs", "debian", "anaconda", "pytorch")
FORBIDDEN = {
    "a path of one machine": rf"(?<![\w.])[/\\](?:{'|'.join(FOLDERS)})[/\\]",
    "the host of a package index": rf"\b(?:{'|'.join(INDEXES)})\.(?:org|com)\b",
}


def tracked_texts() -> dict[str, str]:
    """Return the text of every tracked file that is text, by path."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    texts = {}
    for name in filter(None, listing.stdout.decode().split("\0")):
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b"\0"
        if b"\0" not in content:
            texts[name] = content.decode("utf-8")
    return texts


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
