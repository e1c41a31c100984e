"""The check of exercise 09.6: each mistake has its own diagnosis, right code passes."""

import re

import pytest

from paged_kv.checks import check, hint
from paged_kv.gpu import interpreter
from paged_kv.messages import use_language
from tests.checks.student import run_cell

from .batches import needs_triton
from .kernel_solution import SOURCE

LOOP = SOURCE[SOURCE.index("        block = tl.load") : SOURCE.index("    tl.store")]


@pytest.fixture(autouse=True)
def english():
    use_language("en")


def checked(source, **options):
    return check("09.6", run_cell(source)["paged_decode"], **options)


def changed(old, new):
    assert old in SOURCE, f"the solution does not contain {old!r}"
    return SOURCE.replace(old, new)


SLOT_MAPPING = """        block = tl.load(table_ptr + seq * width + i)
        base = block.to(tl.int64) * (BLOCK_SIZE * N_KV_HEADS * HEAD_DIM)
        base += kv_head * HEAD_DIM
        inside = t[:, None] * (N_KV_HEADS * HEAD_DIM) + d[None, :]
        n = tl.minimum(length - i * BLOCK_SIZE, BLOCK_SIZE)
        v = tl.load(v_ptr + base + inside, mask=t[:, None] < n, other=0)
        kt = tl.load(
            k_ptr + base + t[None, :] * (N_KV_HEADS * HEAD_DIM) + d[:, None],
            mask=t[None, :] < n,
            other=0,
        )
        S = tl.where(t[None, :] < n, tl.dot(q * scale, kt), float("-inf"))
        new = tl.maximum(m, tl.max(S, axis=1))
        P = tl.exp(S - new[:, None])
        acc = acc * tl.exp(m - new)[:, None] + tl.dot(P, v)
        l = l * tl.exp(m - new) + tl.sum(P, axis=1)
        m = new
"""
PRODUCT_AND_SUM = """        block = tl.load(table_ptr + seq * width + i).to(tl.int64)
        valid = i * BLOCK_SIZE + t < length
        rows_ = (block * BLOCK_SIZE + t) * N_KV_HEADS + kv_head
        where = rows_[:, None] * HEAD_DIM + d[None, :]
        k = tl.load(k_ptr + where, mask=valid[:, None], other=0.0)
        S = tl.sum(q[:, None, :] * k[None, :, :], 2) * scale
        S = tl.where(valid[None, :], S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        P = tl.exp(S - m_new[:, None])
        v = tl.load(v_ptr + where, mask=valid[:, None], other=0.0)
        acc *= tl.exp(m - m_new)[:, None]
        acc += tl.sum(P[:, :, None] * v[None, :, :], 1)
        l = l * tl.exp(m - m_new) + tl.sum(P, 1)
        m = m_new
"""
MASK_IN_THE_LAST_BLOCK = """        block = tl.load(table_ptr + seq * width + i)
        block = block.to(tl.int64)
        rows_ = (block * BLOCK_SIZE + t) * N_KV_HEADS + kv_head
        where = rows_[:, None] * HEAD_DIM + d[None, :]
        left = length - i * BLOCK_SIZE
        if left >= BLOCK_SIZE:
            k = tl.load(k_ptr + where)
            v = tl.load(v_ptr + where)
            S = tl.dot(q, tl.trans(k)) * scale
        else:
            k = tl.load(k_ptr + where, mask=t[:, None] < left, other=0)
            v = tl.load(v_ptr + where, mask=t[:, None] < left, other=0)
            S = tl.dot(q, tl.trans(k)) * scale
            S += tl.where(t < left, 0.0, float("-inf"))[None, :]
        m_new = tl.maximum(m, tl.max(S, 1))
        P = tl.exp(S - m_new[:, None])
        l = l * tl.exp(m - m_new) + tl.sum(P, 1)
        acc = tl.dot(P, v, acc * tl.exp(m - m_new)[:, None])
        m = m_new
"""
SLOT_BY_SLOT = """        block = tl.load(table_ptr + seq * width + i).to(tl.int64)
        for slot in range(tl.minimum(length - i * BLOCK_SIZE, BLOCK_SIZE)):
            row = (block * BLOCK_SIZE + slot) * N_KV_HEADS + kv_head
            k = tl.load(k_ptr + row * HEAD_DIM + d)
            v = tl.load(v_ptr + row * HEAD_DIM + d)
            s = tl.sum(q * k[None, :], 1) * scale
            m_new = tl.maximum(m, s)
            alpha, p = tl.exp(m - m_new), tl.exp(s - m_new)
            l = l * alpha + p
            acc = acc * alpha[:, None] + p[:, None] * v[None, :]
            m = m_new
"""
MERGED_STATES = """        block = tl.load(table_ptr + seq * width + i).to(tl.int64)
        valid = i * BLOCK_SIZE + t < length
        rows_ = (block * BLOCK_SIZE + t) * N_KV_HEADS + kv_head
        where = rows_[:, None] * HEAD_DIM + d[None, :]
        k = tl.load(k_ptr + where, mask=valid[:, None], other=0)
        v = tl.load(v_ptr + where, mask=valid[:, None], other=0)
        S = tl.where(valid[None, :], tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        m_here = tl.max(S, 1)
        P = tl.exp(S - m_here[:, None])
        m_new = tl.maximum(m, m_here)
        old, here = tl.exp(m - m_new), tl.exp(m_here - m_new)
        l = l * old + tl.sum(P, 1) * here
        acc = acc * old[:, None] + tl.dot(P, v) * here[:, None]
        m = m_new
"""
RIGHT = {
    "rows": SOURCE,
    "mask in the last block": SOURCE.replace(LOOP, MASK_IN_THE_LAST_BLOCK),
    "slot by slot": SOURCE.replace(LOOP, SLOT_BY_SLOT),
    "a state per block, merged": SOURCE.replace(LOOP, MERGED_STATES),
    "last block first": changed(
        "for i in range(tl.cdiv(length, BLOCK_SIZE)):",
        "for back in range(tl.cdiv(length, BLOCK_SIZE)):\n"
        "        i = tl.cdiv(length, BLOCK_SIZE) - 1 - back",
    ),
    "block pointers": SOURCE.replace(LOOP, SLOT_MAPPING),
    "product and sum": SOURCE.replace(LOOP, PRODUCT_AND_SUM),
    "powers of two": changed(
        "tl.exp(m - m_new)", "tl.exp2((m - m_new) * 1.4426950408889634)"
    ),
}


@needs_triton
@pytest.mark.parametrize("name", RIGHT)
def test_any_right_design_passes(name):
    report = checked(RIGHT[name], strict=True)
    assert report.passed, repr(report)


TABLE = "table_ptr + seq * width + i"
ROWS = "(block * BLOCK_SIZE + t) * N_KV_HEADS + kv_head"
MISTAKES = {
    "table not read": ("table-ignored", "wrong", f"tl.load({TABLE}).to(tl.int64)", "i"),
    "one table for all": ("batch-row-ignored", "wrong", TABLE, "table_ptr + i"),
    "no width": ("batch-row-ignored", "wrong", "seq * width + i", "seq * 0 + i"),
    "rows of the table packed": (
        "table-rows-packed",
        "wrong",
        "seq * width + i",
        "seq * tl.cdiv(length, BLOCK_SIZE) + i",
    ),
    "blocks counted from 1": ("next-table-entry", "wrong", TABLE, TABLE + " + 1"),
    "block id as token": (
        "block-not-multiplied",
        "wrong",
        "block * BLOCK_SIZE + t",
        "block + t",
    ),
    "heads not skipped": (
        "heads-not-skipped",
        "wrong",
        ROWS,
        "block * BLOCK_SIZE + t + kv_head",
    ),
    "head not added": ("head-not-added", "wrong", ROWS, ROWS[: -len(" + kv_head")]),
    "slots of a head together": (
        "head-major",
        "wrong",
        ROWS,
        "(block * N_KV_HEADS + kv_head) * BLOCK_SIZE + t",
    ),
    "bytes in place of elements": (
        "reads-outside",
        "wrong",
        "kv_rows[:, None] * HEAD_DIM",
        "kv_rows[:, None] * HEAD_DIM * 4",
    ),
    "no int64": ("offset-overflows", "wrong", ".to(tl.int64)", ""),
    "tail counted": (
        "tail-not-masked",
        "wrong",
        "valid = i * BLOCK_SIZE + t < length",
        "valid = t < BLOCK_SIZE",
    ),
    "one slot too many": (
        "one-slot-too-many",
        "wrong",
        "+ t < length",
        "+ t <= length",
    ),
    "scores not masked": (
        "empty-slots-weighted",
        "wrong",
        'tl.where(valid[None, :], S, float("-inf"))',
        "S",
    ),
    "V loaded without a mask": (
        "nan-from-empty-slots",
        "wrong",
        "tl.load(v_ptr + offsets, mask=valid[:, None], other=0)",
        "tl.load(v_ptr + offsets)",
    ),
    "m never grows": ("last-block-only", "wrong", "        m = m_new\n", ""),
    "no rescale": (
        "no-rescale",
        "wrong",
        "alpha = tl.exp(m - m_new)",
        "alpha = tl.exp(m_new - m_new)",
    ),
    "acc not rescaled": (
        "accumulator-not-rescaled",
        "wrong",
        "acc * alpha[:, None] +",
        "acc +",
    ),
    "l not rescaled": (
        "denominator-not-rescaled",
        "wrong",
        "l * alpha + tl.sum",
        "l + tl.sum",
    ),
    "no scale": (
        "scale-missing",
        "wrong",
        "tl.dot(q, tl.trans(k)) * scale",
        "tl.dot(q, tl.trans(k))",
    ),
    "V is K": ("values-from-k", "wrong", "v = tl.load(v_ptr", "v = tl.load(k_ptr"),
    "no maximum": (
        "maximum-not-subtracted",
        "wrong",
        "m_new = tl.maximum(m, tl.max(S, 1))",
        "m_new = tl.zeros([GROUP], tl.float32)",
    ),
    "loop body left out": (
        "nothing-useful-written",
        "wrong",
        LOOP,
        "        m = m\n",
    ),
    "no decorator": ("not-a-kernel", "wrong", "@triton.jit\n", ""),
    "slots by the remainder": (
        "nothing-useful-written",
        "wrong",
        "valid = i * BLOCK_SIZE + t < length",
        "valid = t < length % BLOCK_SIZE",
    ),
    "V before P": ("dot-shapes", "raised", "tl.dot(P, v)", "tl.dot(v, P)"),
    "K not transposed": ("dot-shapes", "raised", "tl.trans(k)", "k"),
    "no new axis": ("shapes-incompatible", "raised", "alpha[:, None]", "alpha"),
    "numpy's exp": (
        "not-tritons-language",
        "raised",
        "alpha = tl.exp(",
        "import numpy as np\n        alpha = np.exp(",
    ),
    "the operator @": ("not-tritons-language", "raised", "tl.dot(P, v)", "P @ v"),
    "stores into q": (
        "input-modified",
        "wrong",
        "tl.store(out_ptr + rows[:, None] * HEAD_DIM + d[None, :], acc / l[:, None])",
        "tl.store(q_ptr + rows[:, None] * HEAD_DIM + d[None, :], acc / l[:, None])",
    ),
}


@needs_triton
@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_has_its_diagnosis(name):
    code, state, old, new = MISTAKES[name]
    report = checked(changed(old, new))
    assert (report.code, report.state) == (code, state), repr(report)
    text = repr(report)
    assert "What was run" in text
    assert not re.search(r"0x[0-9a-f]{4}|/\w+/\w+", text), text

    use_language("ru")
    russian = checked(changed(old, new))
    assert russian.code == code
    assert re.search("[а-я]", russian.message), russian.message


@needs_triton
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("while True:\n            m = m", "time-limit"),
        ("while True:\n            print('x' * 1000)", "endless-printing"),
        ("raise ValueError('mine')", "exception"),
        ("raise SystemExit", "sys-exit"),
        ("return", "nothing-useful-written"),
    ],
)
def test_nothing_ends_the_notebook(body, code, monkeypatch):
    monkeypatch.setattr("paged_kv.checks.runner.SECONDS", 0.5)
    report = checked(SOURCE.replace(LOOP, f"        {body}\n"))
    assert report.code == code, repr(report)


@needs_triton
def test_the_stub_is_not_started():
    stub = SOURCE.replace(LOOP, "        raise NotImplementedError\n")
    report = checked(stub)
    assert (report.state, report.code) == ("not started", "not-started")
    assert "paged_decode" in report.message


def test_without_triton_the_check_says_so(monkeypatch):
    monkeypatch.setattr(interpreter, "has_triton", lambda: False)
    monkeypatch.setattr("paged_kv.gpu.practice.has_triton", lambda: False)
    report = checked(SOURCE)
    assert report.code == "no-triton"
    assert "Linux" in report.message


@pytest.mark.parametrize("language", ["ru", "en"])
def test_hints(language):
    use_language(language)
    texts = {repr(hint("09.6", level)) for level in (1, 2, 3)}
    assert len(texts) == 3
