"""``make bench``: the simulator from 10⁴ to 10⁶ requests, and four systems on a trace.

Alone: seconds and memory by number of requests. With ``TRACE.csv 1 2``: waste, batch
and preemptions on that trace, at its own rate and at twice that.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

from paged_kv import KVCacheSpec
from paged_kv.messages import use_language
from paged_kv.serving import (
    SHAREGPT,
    BlockCounter,
    CostModel,
    paper,
    poisson_workload,
    read_trace,
    simulate,
    summary,
)
from paged_kv.spec import GB


def serve(n: int) -> None:
    """Serve `n` requests and print what it took; in a process of its own."""
    started = time.perf_counter()
    workload = poisson_workload(SHAREGPT, paper.RATES[SHAREGPT], n)
    drawn = time.perf_counter()
    result = simulate(workload, BlockCounter(paper.NUM_SLOTS), paper.ENGINE)
    served = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{n:9,d} requests: {drawn - started:5.2f} s to draw, "
        f"{served - drawn:6.2f} s to serve, {peak:4.0f} MiB at most, "
        f"{result.iterations:,d} iterations, {result.preemptions:,d} preemptions",
        flush=True,
    )


def serve_trace(path: str, speed: float) -> None:
    """Compare the four systems on a trace: Llama-3-8B, 20 GB for KV, A100 40GB."""
    spec = KVCacheSpec.preset("llama-3-8b")
    cost = CostModel.of(spec, bandwidth=paper.BANDWIDTH, flops=paper.FLOPS)
    trace = read_trace(path).faster(speed)
    slots, max_len = 20 * GB // spec.bytes_per_token(), 16_384
    kept = trace.no_longer_than(max_len)
    print(f"{len(kept)} of {len(trace)} requests have at most {max_len} tokens")
    systems = paper.systems(slots, max_len)
    print(summary([simulate(kept, system, cost) for system in systems]))


def main() -> None:
    use_language("en")
    if len(sys.argv) == 1:
        for n in (10**4, 10**5, 10**6):
            # Peak memory is that of a process, so each size has its own.
            subprocess.run([sys.executable, __file__, "--requests", str(n)], check=True)
    elif sys.argv[1] == "--requests":
        serve(int(sys.argv[2]))
    else:
        for speed in map(float, sys.argv[2:] or ("1", "2")):
            print(f"\n{speed:g} times as many requests per second as in the trace")
            serve_trace(sys.argv[1], speed)


if __name__ == "__main__":
    main()
