"""Shared by the benchmarks: times that can be compared on a noisy machine.

Alternatives are timed in turn, A B A B …, within one run, and told as ratios of their
medians; seconds alone mean little on a shared machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def medians(
    alternatives: dict[str, Callable[[], object]], repeats: int = 15
) -> dict[str, float]:
    """Return the median seconds of each alternative, timed in turn after a warm-up."""
    for run in alternatives.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in alternatives}
    for _ in range(repeats):
        for name, run in alternatives.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def report(title: str, seconds: dict[str, float], unit: str = "ms") -> None:
    """Print medians, and their ratio to the first alternative."""
    factor = {"ms": 1e3, "us": 1e6}[unit]
    print(f"\n{title}")
    first = next(iter(seconds.values()))
    for name, value in seconds.items():
        print(f"  {name:<34} {value * factor:9.3f} {unit}   {value / first:7.2f}x")
