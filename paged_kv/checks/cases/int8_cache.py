"""Cases of exercise 09.5: the cache with an exact tail."""

from __future__ import annotations

import numpy as np

from paged_kv.checks.cases.int8_expect import (
    expect_block,
    expect_blocks,
    expect_exact,
    expect_length,
    expect_read,
)
from paged_kv.checks.cases.int8_flaws import DIM, HEADS
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr


def exact_tail(s: Script) -> None:
    """Check that a block which is not full reads back bit by bit."""
    s.do(f"cache = Int8Cache({HEADS}, {DIM}, block_size=4)")
    s.use_random_tokens(HEADS, DIM)
    for n in (1, 2, 3):
        s.do("cache.append(kv())")
        expect_length(s, n, 4)
        expect_exact(s, 0, np.stack(s.arrays))
    s.restart()
    s.do(f"cache = Int8Cache({HEADS}, {DIM}, block_size=4)")
    s.use_random_tokens(HEADS, DIM)
    s.do("k = kv()")
    s.do("cache.append(k)")
    s.do("k[:] = 0", tr("an engine uses its buffer again for the next token"))
    s.do("read = cache.read()")
    if not np.asarray(s.names["read"]).any():
        raise Wrong(
            "token-not-copied",
            tr(
                "The cache kept the caller's own array, and when the caller "
                "wrote something else into it, the token changed. Keep a copy: "
                "`np.array(k)`."
            ),
            show(s.arrays[-1][0]),
            show(s.names["read"][0, 0]),
        )


def full_block(s: Script) -> None:
    """Check a block at the moment it becomes full: codes, made once."""
    _growing_tokens(s, 17)
    s.do(f"cache = Int8Cache({HEADS}, {DIM}, block_size=16)")
    s.do("for k in K[:15]: cache.append(k)")
    expect_length(s, 15, 16)
    expect_exact(s, 0, s.names["K"][:15])
    s.do("cache.append(K[15])")
    expect_blocks(s, 1)
    expect_length(s, 16, 16)
    expect_block(s, 0, 16)
    expect_read(s, 16, 16)
    s.do("cache.append(K[16])")
    expect_length(s, 17, 16)
    expect_read(s, 17, 16)


def many_blocks(s: Script) -> None:
    """Check blocks of different size, and the order of everything."""
    s.do("rng = np.random.default_rng(6)")
    s.do(f"K = rng.standard_normal((15, {HEADS}, {DIM}), dtype=np.float32)")
    s.do("K[4:8] *= 100; K[8:12] /= 100")
    s.do(f"cache = Int8Cache({HEADS}, {DIM}, block_size=4)")
    s.do("for k in K: cache.append(k)")
    expect_blocks(s, 3)
    expect_length(s, 15, 4)
    for i in range(3):
        expect_block(s, i, 4)
    expect_read(s, 15, 4)


def sizes(s: Script) -> None:
    """Check an empty cache, block size 1, and lengths around a boundary."""
    s.do(f"cache = Int8Cache({HEADS}, {DIM})")
    expect_length(s, 0, 16)
    read, error = s.attempt("cache.read()")
    if error is not None or np.shape(read) != (0, HEADS, DIM):
        raise Wrong(
            "empty-cache-not-read",
            tr("A cache without tokens reads as an array of no tokens."),
            f"shape (0, {HEADS}, {DIM})",
            f"{type(error).__name__}" if error else f"shape {np.shape(read)}",
        )
    for block_size, length in ((1, 3), (3, 2), (3, 3), (3, 4), (16, 33)):
        s.restart()
        _growing_tokens(s, length)
        s.do(f"cache = Int8Cache({HEADS}, {DIM}, block_size={block_size})")
        s.do("for k in K: cache.append(k)")
        expect_blocks(s, length // block_size)
        expect_length(s, length, block_size)
        expect_read(s, length, block_size)


def nothing_exact_stays(s: Script) -> None:
    """Check that full blocks are kept as codes alone."""
    n = 16 * 40
    _growing_tokens(s, n)
    s.do(f"cache = Int8Cache({HEADS}, {DIM}, block_size=16)")
    s.do("for k in K: cache.append(k)")
    kept, exact = _array_bytes(s.names["cache"], set()), s.names["K"].nbytes
    if kept > 0.4 * exact:
        raise Wrong(
            "exact-copy-kept",
            tr(
                "The cache holds more than the codes: exact values of full blocks are "
                "still there, and no memory is saved. Once a block is coded, let go "
                "of its exact tokens."
            ),
            tr("about {n} bytes for {tokens} tokens", n=exact // 4, tokens=n),
            tr("{n} bytes", n=kept),
        )


def _growing_tokens(s: Script, n: int) -> None:
    """Define K: each token is larger than the one before, as in the worst case."""
    s.do("rng = np.random.default_rng(7)")
    s.do(f"K = rng.standard_normal(({n}, {HEADS}, {DIM}), dtype=np.float32)")
    s.do(f"K *= np.linspace(0.2, 3, {n}, dtype=np.float32)[:, None, None]")


def _array_bytes(value: object, seen: set[int]) -> int:
    """Return the bytes of all arrays that can be reached from `value`, once each."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return value.nbytes if value.base is None else _array_bytes(value.base, seen)
    if isinstance(value, list | tuple | set):
        return sum(_array_bytes(item, seen) for item in value)
    if isinstance(value, dict):
        return sum(_array_bytes(item, seen) for item in value.values())
    inside = getattr(value, "__dict__", None)
    is_code = isinstance(value, type) or callable(value)
    return 0 if inside is None or is_code else _array_bytes(inside, seen)


def _lesson() -> str:
    return tr("09.5, “The tail”")


CACHE_CASES = (
    Case(lambda: tr("the tail reads back exactly"), _lesson, exact_tail),
    Case(
        lambda: tr("a block is coded once, when it becomes full"),
        _lesson,
        full_block,
    ),
    Case(lambda: tr("each block has scales of its own"), _lesson, many_blocks),
    Case(
        lambda: tr("other block sizes, lengths at a boundary, an empty cache"),
        _lesson,
        sizes,
    ),
    Case(
        lambda: tr("no exact values of full blocks are kept"),
        _lesson,
        nothing_exact_stays,
    ),
)
