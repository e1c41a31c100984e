"""``python -m paged_kv``: its lines, its languages, its exit status."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from paged_kv import __main__ as self_check
from paged_kv import messages

LINES = [
    r"== 09\.1 .*==",
    r"tokens=70487 seqs=64 max_len=2048",
    r"reserved_blocks=8192 paged_blocks=4436 ratio=0\.542",
    r"waste_tokens=489 waste_ratio=0\.6890%",
    r"== 09\.2 .*==",
    r"L=40 blocks=\[0, 1, 2\] max\|diff\|=\d\.\de-0[678]",
    r"== 09\.3 .*==",
    r"system prompt: 500 tokens -> 32 blocks, used=32, ref\[last\]=1",
    r"req0: \[0, 1, …, 30, 32\]",
    r"req1: \[0, 1, …, 30, 33\]",
    r"shared physical blocks \(req0 ∩ req1\): 31",
    r"total blocks used: 42 vs no-sharing 320, saved 278 blocks = 556 (MiB|МиБ)",
    r"after base\.free\(\): pool\.used=41",
    r"pool empty after freeing all forks",
    r"== int8.*==",
    r"int8: scale shape=\(1, 8, 1\), max\|err\|=0\.0318",
    r"OK",
]


@pytest.fixture(autouse=True)
def forget_language(monkeypatch):
    monkeypatch.setattr(messages, "_current", None)


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | environment,
        check=False,
    )


@pytest.mark.parametrize("python", [[], ["-O"]])
@pytest.mark.parametrize(("lang", "unit"), [("ru", "МиБ"), ("en", "MiB")])
def test_prints_the_lecture_and_succeeds(python, lang, unit):
    done = run(*python, "-m", "paged_kv", "--lang", lang)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(LINES)
    for line, pattern in zip(lines, LINES, strict=True):
        assert re.fullmatch(pattern, line), line
    assert unit in done.stdout
    assert bool(re.search("[а-яё]", lines[0])) == (lang == "ru")


@pytest.mark.parametrize(
    ("locale", "unit"), [("ru_RU.UTF-8", "МиБ"), ("C", "MiB"), ("de_DE.UTF-8", "MiB")]
)
def test_language_follows_the_locale(locale, unit):
    assert unit in run("-m", "paged_kv", LC_ALL=locale, LANG=locale).stdout


def test_narrow_console_does_not_stop_it():
    done = run("-m", "paged_kv", "--lang", "ru", PYTHONIOENCODING="ascii")
    assert done.returncode == 0


def test_unknown_language_is_refused():
    done = run("-m", "paged_kv", "--lang", "de")
    assert done.returncode == 2


FAULTS = {
    "blocks are not returned": (
        "Sequence.free",
        lambda real: lambda self: None,
    ),
    "fork copies nothing on write": (
        "BlockPool.copy_block",
        lambda real: lambda self, source, target: None,
    ),
    "attention off by a little": (
        "paged_attention",
        lambda real: lambda *a: real(*a) + np.float32(1e-4),
    ),
    "coarse codes": (
        "quantize_block_int8",
        lambda real: lambda block: real(np.round(block, 1)),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_part_can_fail(monkeypatch, capsys, fault):
    where, wrap = FAULTS[fault]
    owner = self_check
    *path, name = where.split(".")
    for step in path:
        owner = getattr(owner, step)
    monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))
    assert self_check.main(["--lang", "en"]) == 1
    out = capsys.readouterr().out
    assert "FAILED" in out
    assert not out.endswith("OK\n")
