"""Run make targets two at a time, print each one's output, then a table of seconds.

    python tests/run_steps.py MAKE TARGET...

Most steps leave a core idle (a type checker, a browser that waits), so two at once are
quicker than one after the other. Every step runs, even when an earlier one failed; the
exit status is 1 when any did. Give the longest first.
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

AT_ONCE = 2


def run(make: str, target: str) -> tuple[bool, float, str]:
    """Run ``make target``; return success, seconds and all that it printed."""
    start = time.monotonic()
    step = subprocess.run(
        [make, "--no-print-directory", target],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    return step.returncode == 0, time.monotonic() - start, step.stdout


def main(make: str, targets: list[str]) -> int:
    start = time.monotonic()
    print(f"steps: {' '.join(targets)}", flush=True)
    lines = []
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {pool.submit(run, make, target): target for target in targets}
        for done in as_completed(runs):
            target = runs[done]
            succeeded, seconds, output = done.result()
            if not succeeded:
                failed.append(target)
            print(f"\n===== {target}\n{output}", flush=True)
            lines.append(
                f"{target:<18}{seconds:7.1f} s  {'' if succeeded else 'FAILED'}"
            )
    print("\n===== seconds, two steps at a time")
    print("\n".join(lines))
    print(f"{'together':<18}{time.monotonic() - start:7.1f} s")
    if failed:
        print(f"failed: {' '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
