"""`make test` runs every step, shows its output, and fails when one fails."""

import sys

import pytest

from tests.run_steps import main

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a Unix shell")


@pytest.fixture
def make(tmp_path):
    """Return a stand-in for make: it names its target, and fails for ``broken``."""
    script = tmp_path / "make"
    script.write_text(
        '#!/bin/sh\necho "ran $2"; echo "warned $2" >&2; [ $2 != broken ]\n'
    )
    script.chmod(0o755)
    return str(script)


def test_all_good(make, capsys):
    assert main(make, ["lint", "unit", "nbval"]) == 0
    printed = capsys.readouterr().out
    for target in ("lint", "unit", "nbval"):
        assert f"===== {target}\nran {target}\nwarned {target}\n" in printed
    assert "failed" not in printed.lower()


def test_one_broken_step_stops_no_other_and_fails_the_whole(make, capsys):
    assert main(make, ["broken", "unit", "nbval"]) == 1
    printed = capsys.readouterr().out
    assert "ran unit" in printed
    assert "ran nbval" in printed
    assert printed.endswith("failed: broken\n")
