"""What the package may import: numpy at most, and its own parts one way only."""

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(importlib.util.find_spec("paged_kv").origin).parent

# A part of the package (a module or a folder) and the parts it may import. A new part
# is one more line. "paged_kv" is the package's own front, ``paged_kv/__init__.py``.
BOOKS = {"spec", "free_queue", "audit", "allocator"}
CORE = {*BOOKS, "pool", "sequence", "attention", "quantization"}
CACHES = {"prefix_cache", "radix_cache"}
RADIX = {"radix_tree", "radix_policies", "radix_render"}
BELOW = {"paged_kv", *CORE, *CACHES, *RADIX, "caching", "partitions"}
BELOW |= {"serving", "model", "gpu"}
MAY_IMPORT = {
    "messages": set(),
    # the core
    "spec": set(),
    "free_queue": set(),
    "audit": set(),
    "allocator": {"spec", "free_queue", "audit"},
    "pool": BOOKS,
    "sequence": {*BOOKS, "pool"},
    "attention": {*BOOKS, "pool", "sequence"},
    "quantization": {*BOOKS, "pool", "sequence", "attention"},
    "paged_kv": CORE,
    # what stands on it
    "partitions": {*BOOKS, "pool", "sequence", "attention"},
    "caching": CORE,
    "prefix_cache": {*CORE, "caching"},
    "radix_policies": set(),
    "radix_tree": {*BOOKS, "caching", "radix_policies"},
    "radix_render": {"messages", "radix_tree"},
    "radix_cache": {*CORE, "caching", *RADIX},
    "serving": {"messages", *CORE, *CACHES, "caching"},
    "model": {*CORE, *CACHES, "caching"},
    "gpu": {"messages", *BOOKS, "pool", "sequence", "attention"},
    # what people see: nothing below stands on these
    "figures": {"messages", *BELOW},
    "checks": {"messages", *BELOW},
    "widgets": {"messages", *BELOW, "checks"},  # a student's code runs under limits
    "grading": {"messages", "checks"},
    "commands": {"messages", "paged_kv", "spec", "model"},
    "cli": {"messages", "checks", "grading", "commands"},
    "__main__": {"messages", "paged_kv", *CORE},
}


def part_of(path: Path) -> str:
    """Return the part of the package that a source file belongs to."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "paged_kv" if first == "__init__" else first


def imported_names(path: Path) -> Iterator[str]:
    """Yield each ``paged_kv.…`` that a file imports anywhere, relatively as well."""
    package = ["paged_kv", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            # ``from paged_kv import pool`` imports the part, not the front.
            modules = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (m for m in modules if m.split(".")[0] == "paged_kv")


def imported_parts(path: Path) -> Iterator[str]:
    """Yield the parts of the package that a file imports."""
    for module in imported_names(path):
        names = module.split(".")
        part = names[1] if len(names) > 1 else "paged_kv"
        yield part if is_part(part) else "paged_kv"


def is_part(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def file_of(module: str) -> Path:
    """Return the file of ``paged_kv.…``, of the module itself or of what defines it."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    if path.with_suffix(".py").is_file():
        return path.with_suffix(".py")
    if (path / "__init__.py").is_file():
        return path / "__init__.py"
    return file_of(module.rpartition(".")[0])


SOURCES = sorted(PACKAGE.rglob("*.py"))


def test_every_part_has_its_line_and_no_line_is_stale():
    parts = {part_of(path) for path in SOURCES}
    assert parts == set(MAY_IMPORT), "add or remove the line in MAY_IMPORT"


def test_the_table_has_no_circle():
    TopologicalSorter(MAY_IMPORT).prepare()


# A report draws itself in a notebook, so it calls what draws reports.
BACKWARDS = {("checks/report.py", "checks/html.py")}


def test_no_file_imports_itself_in_a_circle():
    """Inside the parts too; imports in functions count, for they only hide a circle."""
    files = {
        path: {file_of(name) for name in imported_names(path)} - {path}
        for path in SOURCES
    }
    for user, used in BACKWARDS:
        files[PACKAGE / user].remove(PACKAGE / used)
    try:
        TopologicalSorter(files).prepare()
    except CycleError as circle:
        pytest.fail(" ← ".join(str(p.relative_to(PACKAGE)) for p in circle.args[1]))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_imports_only_what_its_part_may(path):
    part = part_of(path)
    imported = set(imported_parts(path)) - {part}
    assert imported <= MAY_IMPORT.get(part, set())


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ("import paged_kv", {"paged_kv"}),
        ("import paged_kv.pool as p", {"pool"}),
        ("from paged_kv import BlockPool", {"paged_kv"}),
        ("from paged_kv import pool, spec", {"pool", "spec"}),
        ("from paged_kv.pool import BlockPool", {"pool"}),
        ("from . import pool", {"pool"}),
        ("from .pool import BlockPool", {"pool"}),
        ("def f():\n    from paged_kv.sequence import Sequence", {"sequence"}),
        ("import numpy, json.decoder", set()),
    ],
)
def test_each_way_to_import_is_seen(monkeypatch, tmp_path, source, imported):
    for name in ("pool", "sequence", "spec", "reader"):
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    assert set(imported_parts(tmp_path / "reader.py")) == imported


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh Python holds after ``statement``."""
    program = (
        f"import sys; {statement}; print(*{{m.split('.')[0] for m in sys.modules}})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavier_than_numpy():
    more = loaded_by("import paged_kv") - loaded_by("import numpy")
    assert more - sys.stdlib_module_names == {"paged_kv"}
