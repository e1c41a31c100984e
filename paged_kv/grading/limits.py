"""Limits that the operating system sets to a process that runs foreign code."""

from __future__ import annotations

from collections.abc import Iterator

MIB = 2**20
LARGEST_FILE = 16 * MIB


def limit_this_process(seconds: int, memory_mib: int) -> None:
    """Limit processor time, memory, files and processes from now on, for good.

    Does what the system allows: nothing on Windows, not the memory on macOS, and root
    may start processes all the same.

    Parameters
    ----------
    seconds : int
        Of processor time.
    memory_mib : int
        MiB of address space; 0 for any.
    """
    try:
        import resource
    except ImportError:  # Windows
        return

    def limits() -> Iterator[tuple[int, int]]:
        # A second more of the hard limit: the signal of the soft one says why.
        yield resource.RLIMIT_CPU, seconds
        yield resource.RLIMIT_FSIZE, LARGEST_FILE
        yield resource.RLIMIT_CORE, 0
        # No further process or thread of this user can be started from here.
        yield resource.RLIMIT_NPROC, 0
        if memory_mib:
            yield resource.RLIMIT_AS, memory_mib * MIB

    for kind, value in limits():
        _, hard = resource.getrlimit(kind)
        highest = value + (kind == resource.RLIMIT_CPU)
        if hard != resource.RLIM_INFINITY:
            value, highest = min(value, hard), min(highest, hard)
        try:
            resource.setrlimit(kind, (value, highest))
        except (ValueError, OSError):  # macOS refuses some
            continue
