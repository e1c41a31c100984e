"""``strict=True`` is added to the calls of check, and to nothing else."""

import pytest

from course.build.master import Cell
from course.build.solution import add_strict


@pytest.mark.parametrize(
    ("source", "strict"),
    [
        ('check("09.1", A, B)', 'check("09.1", A, B, strict=True)'),
        ("r = check('09.1', f(A)[0])", "r = check('09.1', f(A)[0], strict=True)"),
        ('check("09.1", (A))', 'check("09.1", (A), strict=True)'),
        ('check("09.1", A)  # ok', 'check("09.1", A, strict=True)  # ok'),
        ('check(\n  "9",\n  A,  # x)\n)', 'check(\n  "9",\n  A, strict=True  # x)\n)'),
        ('check("9"), check("8")', 'check("9", strict=True), check("8", strict=True)'),
        ('"ы"; check("09.1", A)', '"ы"; check("09.1", A, strict=True)'),
        ('check("a)", lambda: "(", A)', 'check("a)", lambda: "(", A, strict=True)'),
        ("pool.check(sequences)", "pool.check(sequences)"),
        ('pool.check("x")', 'pool.check("x")'),
        ('def check("x"): ...', 'def check("x"): ...'),
        ('"check(\'x\', A)"', '"check(\'x\', A)"'),
        ('# check("x", A)', '# check("x", A)'),
    ],
)  # fmt: skip
def test_add_strict(source, strict):
    assert add_strict(Cell("m.py", 1, "k", None, source, {}), source) == strict
