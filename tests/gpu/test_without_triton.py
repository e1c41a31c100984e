"""The notebooks of 09.6 run where Triton cannot be imported (macOS, Windows)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a machine without Triton looks like to an import; measuring is cut short.
PREPARED = """
import sys
sys.modules["triton"] = None
from paged_kv.gpu import measure
full = measure.fastest
measure.fastest = lambda runs, budget=0: full(runs, 0)
"""


def run(notebook):
    """Run the code of a notebook in a process and return what it printed."""
    cells = json.loads((ROOT / notebook).read_text(encoding="utf-8"))["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([PREPARED, *code, "print(globals())"])],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("lang", ["ru", "en"])
def test_the_exercise_says_so(lang):
    printed = run(f"exercises/{lang}/09.6_gpu.ipynb")
    assert "Triton" in printed
    assert "Linux" in printed


def test_the_lesson_goes_on_with_torch_and_says_so():
    printed = run("notebooks/en/09.6_gpu.ipynb")
    assert "backends=torch\n" in printed
    assert "needs Triton's interpreter" in printed
    assert "triton: max|diff|" not in printed
