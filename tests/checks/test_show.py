"""Values as text: short, the same in every run, and without this machine in it."""

import re

import numpy as np
import pytest

from paged_kv.checks.show import LONGEST, clean, show


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ("3", "'3'"),
        (None, "None"),
        (np.int64(3), "3"),
        (np.float32(0.5), "0.5"),
        ([1, 2], "[1, 2]"),
        (np.array([1, 2]), "[1, 2]"),
        (np.zeros((2, 1)), "[[0.], [0.]] (shape (2, 1), float64)"),
    ],
)
def test_values(value, text):
    assert show(value) == text


@pytest.mark.parametrize("value", [object(), len, show, type("A", (), {})()])
def test_no_addresses(value):
    assert not re.search("0x[0-9a-f]", show(value))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("No such file: '/srv/anna/course/x.npy'", "No such file: 'x.npy'"),
        (r"D:\anna\x.npy is missing", "x.npy is missing"),
        ("x = a / b / c", "x = a / b / c"),
        ("t // 16 and t % 16", "t // 16 and t % 16"),
        ("h // (n_heads // n_kv_heads)", "h // (n_heads // n_kv_heads)"),
        ("1/2", "1/2"),
    ],
)
def test_folders_are_removed_and_divisions_are_not(text, cleaned):
    assert clean(text) == cleaned


def test_long_values_are_cut():
    assert len(show("x" * 10**6)) == LONGEST
    assert len(show(np.random.default_rng(0).random((50, 50)))) <= LONGEST
