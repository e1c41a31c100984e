"""Exercise 09.5: int8 per block and head, with an exact tail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paged_kv.checks.exercise import Asked, Case, Exercise
from paged_kv.checks.int8_flaws import BLOCK_FLAWS, CODE_FLAWS, SCALE_FLAWS
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr

Array = NDArray[Any]
HEADS, DIM = 3, 8


def codes_and_scale(s: Script) -> None:
    """Check quantize_block_int8 on heads of very different size."""
    _random_block(s)
    _call(s, "result = quantize_block_int8(K)")
    result = s.names["result"]
    if not isinstance(result, tuple | list) or len(result) != 2:
        cause = tr("quantize_block_int8 must return two things: codes, scale.")
        raise Wrong("not-a-pair", cause, "codes, scale", show(result))
    s.do("codes, scale = result")
    _expect_form(s, "codes", (5, HEADS, DIM), np.int8)
    _expect_scale_form(s, "scale", (5, HEADS, DIM))
    K, codes, scale = s.names["K"], s.names["codes"], s.names["scale"]
    right = np.abs(K).max(axis=(0, 2), keepdims=True) / 127
    if not np.allclose(scale, right, rtol=1e-4):
        _raise_flaw(SCALE_FLAWS, K, scale, right, "wrong-scale", "scale")
    if np.abs(codes - K / right).max() > 0.5 + 1e-3:
        rounded = np.round(K / right)
        _raise_flaw(CODE_FLAWS, K / right, codes, rounded, "wrong-codes", "codes")


def reads_back(s: Script) -> None:
    """Check dequantize_block_int8, and the error of the round trip."""
    _random_block(s)
    s.do("codes, scale = quantize_block_int8(K)")
    _call(s, "back = dequantize_block_int8(codes, scale)")
    _expect_form(s, "back", (5, HEADS, DIM), np.float32)
    back, codes, scale = (s.names[name] for name in ("back", "codes", "scale"))
    right = codes * scale
    if not np.allclose(back, right, rtol=1e-4, atol=1e-6):
        code, cause = (
            "wrong-read",
            tr("A value that reads back is its code times the scale of its head."),
        )
        if np.allclose(back, codes):
            code, cause = "scale-not-applied", tr("The scale was not used.")
        elif np.allclose(back, codes / scale, rtol=1e-3):
            code, cause = "divided-by-scale", tr("Multiply by the scale, not divide.")
        raise Wrong(code, cause, *_at(back, right, "back"))


def zeros(s: Script) -> None:
    """Check a head in which every element is 0, beside others."""
    _random_block(s)
    s.do("K[:, 1] = 0")
    s.do("back = dequantize_block_int8(*quantize_block_int8(K))")
    back = np.asarray(s.names["back"])
    if not (back[:, 1] == 0).all():
        raise Wrong(
            "zero-head-not-zero",
            tr(
                "All of head 1 is zero, so its scale is 0, and 0 / 0 is NaN. Divide by "
                "something else there: every code is 0 anyway."
            ),
            "back[:, 1] == 0",
            show(back[0, 1]),
        )


def exact_tail(s: Script) -> None:
    """Check that a block which is not full reads back bit by bit."""
    s.do(f"cache = Int8Cache({HEADS}, {DIM}, block_size=4)")
    s.use_random_tokens(HEADS, DIM)
    for n in (1, 2, 3):
        s.do("cache.append(kv())")
        _expect_length(s, n)
        _expect_exact(s, 0, np.stack(s.arrays))
    s.do(f"cache = Int8Cache({HEADS}, {DIM}, block_size=4)")
    s.do("k = kv()")
    s.do("cache.append(k)")
    s.do("k[:] = 0  # an engine uses its buffer again for the next token")
    s.do("read = cache.read()")
    if not np.asarray(s.names["read"]).any():
        raise Wrong(
            "token-not-copied",
            tr(
                "The cache kept the caller's own array, and when the caller wrote "
                "something else into it, the token changed. Keep a copy: np.array(k)."
            ),
            show(s.arrays[-1][0]),
            show(s.names["read"][0, 0]),
        )


def full_block(s: Script) -> None:
    """Check a block at the moment it becomes full: codes, made once."""
    _growing_tokens(s, 17)
    s.do(f"cache = Int8Cache({HEADS}, {DIM}, block_size=16)")
    s.do("for k in K[:15]: cache.append(k)")
    _expect_length(s, 15)
    _expect_exact(s, 0, s.names["K"][:15])
    s.do("cache.append(K[15])")
    _expect_blocks(s, 1)
    _expect_length(s, 16)
    _expect_block(s, 0, 16)
    _expect_read(s, 16, 16)
    s.do("cache.append(K[16])")
    _expect_length(s, 17)
    _expect_read(s, 17, 16)


def many_blocks(s: Script) -> None:
    """Check blocks of different size, and the order of everything."""
    s.do("rng = np.random.default_rng(6)")
    s.do(f"K = rng.standard_normal((15, {HEADS}, {DIM}), dtype=np.float32)")
    s.do("K[4:8] *= 100; K[8:12] /= 100")
    s.do(f"cache = Int8Cache({HEADS}, {DIM}, block_size=4)")
    s.do("for k in K: cache.append(k)")
    _expect_blocks(s, 3)
    _expect_length(s, 15)
    for i in range(3):
        _expect_block(s, i, 4)
    _expect_read(s, 15, 4)


def sizes(s: Script) -> None:
    """Check an empty cache, block size 1, and lengths around a boundary."""
    s.do(f"cache = Int8Cache({HEADS}, {DIM})")
    _expect_length(s, 0)
    read, error = s.attempt("cache.read()")
    if error is not None or np.shape(read) != (0, HEADS, DIM):
        raise Wrong(
            "empty-cache-not-read",
            tr("A cache without tokens reads as an array of no tokens."),
            f"shape (0, {HEADS}, {DIM})",
            f"{type(error).__name__}" if error else f"shape {np.shape(read)}",
        )
    for block_size, length in ((1, 3), (3, 2), (3, 3), (3, 4), (16, 33)):
        s.lines.clear()
        _growing_tokens(s, length)
        s.do(f"cache = Int8Cache({HEADS}, {DIM}, block_size={block_size})")
        s.do("for k in K: cache.append(k)")
        _expect_blocks(s, length // block_size)
        _expect_length(s, length)
        _expect_read(s, length, block_size)


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


def _random_block(s: Script) -> None:
    s.do("rng = np.random.default_rng(5)")
    s.do(f"K = rng.standard_normal((5, {HEADS}, {DIM}), dtype=np.float32)")
    s.do("K[:, 1] *= 10; K[:, 2] *= 0.1; K[3, 1, 2] = -40")


def _growing_tokens(s: Script, n: int) -> None:
    """Define K: each token is larger than the one before, as in the worst case."""
    s.do("rng = np.random.default_rng(7)")
    s.do(f"K = rng.standard_normal(({n}, {HEADS}, {DIM}), dtype=np.float32)")
    s.do(f"K *= np.linspace(0.2, 3, {n}, dtype=np.float32)[:, None, None]")


def _call(s: Script, line: str) -> None:
    """Run a line and make sure that K is what it was."""
    before = s.names["K"].copy()
    s.do(line)
    if not np.array_equal(before, s.names["K"]):
        cause = tr("Your code changes K, which belongs to the caller. Work on a copy.")
        raise Wrong("input-modified", cause, show(before), show(s.names["K"]))


def _expect_form(s: Script, name: str, shape: tuple[int, ...], dtype: type) -> None:
    value = np.asarray(s.names[name])
    if value.shape != shape:
        cause = tr("{name} has the wrong shape.", name=name)
        raise Wrong(f"{name}-wrong-shape", cause, str(shape), str(value.shape))
    if value.dtype != dtype:
        wanted = np.dtype(dtype).name
        cause = tr("{name} must be of type {dtype}.", name=name, dtype=wanted)
        if dtype is np.int8:
            cause += " " + tr("An int8 code takes one byte; that is what is saved.")
        raise Wrong(f"{name}-not-{wanted}", cause, wanted, str(value.dtype))


def _expect_scale_form(s: Script, name: str, shape: tuple[int, ...]) -> None:
    n, heads, dim = shape
    got = np.shape(s.names[name])
    if got != (1, heads, 1):
        codes: dict[tuple[int, ...], tuple[str, str]] = {
            (n, heads, 1): (
                "scale-per-token",
                tr("Each token has its own scale. One is asked for per head."),
            ),
            (1, heads, dim): (
                "scale-per-channel",
                tr("Each channel has its own scale. One is asked for per head."),
            ),
        }
        if np.size(s.names[name]) == 1:
            codes[got] = (
                "one-scale-for-all-heads",
                tr(
                    "All heads share one scale, so the largest head decides how "
                    "coarse the others are. Take the maximum over axes 0 and 2 only."
                ),
            )
        unknown = (
            "scale-wrong-shape",
            tr("scale must have one number per head; keepdims=True keeps the axes."),
        )
        code, cause = codes.get(got, unknown)
        raise Wrong(code, cause, f"scale.shape == (1, {heads}, 1)", str(got))
    _expect_form(s, name, (1, heads, 1), np.float32)


def _expect_length(s: Script, n: int) -> None:
    got = s.do("len(cache)")
    if got == n:
        return
    code, cause = "wrong-length", tr("len(cache) is the number of tokens appended.")
    if n and isinstance(got, int) and got > n:
        code, cause = _twice()
    raise Wrong(code, cause, f"len(cache) == {n}", show(got))


def _twice() -> tuple[str, str]:
    return "tail-not-emptied", tr(
        "Tokens are counted twice: they are in the block that became full, and still "
        "in the tail. Empty the tail when its block is coded."
    )


def _expect_blocks(s: Script, n: int) -> None:
    got = len(s.do("cache.blocks"))
    if got == n:
        return
    code, cause = (
        "wrong-number-of-blocks",
        tr("cache.blocks holds a pair (codes, scale) for each full block."),
    )
    if got == n - 1 and n:
        code, cause = (
            "coded-late",
            tr(
                "The last block is full and not coded yet. Code it in the append that "
                "fills it: there may be no other."
            ),
        )
    if not got:
        code, cause = (
            "never-coded",
            tr(
                "A block is full and cache.blocks is empty. Right after the append "
                "that fills it, quantise it and add (codes, scale) to cache.blocks."
            ),
        )
    if got > n:
        code, cause = (
            "coded-early",
            tr(
                "A block was coded before it was full. Until then its tokens stay "
                "exact: the next one may be larger and change the scale."
            ),
        )
    raise Wrong(code, cause, f"len(cache.blocks) == {n}", show(got))


def _expect_block(s: Script, i: int, block_size: int) -> None:
    block = s.ask(f"cache.blocks[{i}]")
    if not isinstance(block, tuple | list) or len(block) != 2:
        cause = tr("cache.blocks holds a pair (codes, scale) for each full block.")
        raise Wrong("not-a-pair", cause, "codes, scale", show(block))
    s.do(f"codes, scale = cache.blocks[{i}]")
    _expect_form(s, "codes", (block_size, HEADS, DIM), np.int8)
    _expect_scale_form(s, "scale", (block_size, HEADS, DIM))


def _read(s: Script, n: int) -> Array:
    s.do("read = cache.read()")
    got = np.shape(s.names["read"])
    if got != (n, HEADS, DIM):
        code, cause = "read-wrong-shape", tr("{name} has the wrong shape.", name="read")
        if got[1:] == (HEADS, DIM):
            code, cause = (
                ("tail-not-read", tr("Tokens are missing: read blocks and tail."))
                if got[0] < n
                else _twice()
            )
        raise Wrong(code, cause, f"read.shape == {(n, HEADS, DIM)}", str(got))
    _expect_form(s, "read", (n, HEADS, DIM), np.float32)
    return np.asarray(s.names["read"])


def _expect_exact(s: Script, first: int, tail: Array) -> None:
    """Check that what follows token `first` reads back as it was appended."""
    read = _read(s, first + len(tail))[first:]
    if np.array_equal(read, tail):
        return
    code, cause = "tail-wrong", tr("The tail does not read as it was appended.")
    if np.abs(read - tail).max() < 0.05 * np.abs(tail).max():
        code, cause = (
            "tail-not-exact",
            tr(
                "The tokens of a block that is not full come back rounded. Keep them "
                "exact, in float32: they are quantised once, when the block is full."
            ),
        )
    raise Wrong(code, cause, *_at(read, tail, "read", first))


def _expect_read(s: Script, n: int, bs: int) -> None:
    """Check blocks against the error bound, the tail bit by bit."""
    K, read = s.names["K"][:n], _read(s, n)
    for start in range(0, n - n % bs, bs):
        block, got = K[start : start + bs], read[start : start + bs]
        bound = np.abs(block).max(axis=(0, 2), keepdims=True) / 254
        if (np.abs(got - block) <= bound * (1 + 1e-3)).all():
            continue
        for code, (simulate, explain) in BLOCK_FLAWS.items():
            if np.allclose(got, simulate(block, K[:bs]), rtol=1e-3, atol=1e-5):
                raise Wrong(code, explain(), *_at(got, block, "read", start))
        unknown = tr(
            "A full block must come back within amax / 254 of each head, and this one "
            "does not."
        )
        raise Wrong("error-too-large", unknown, *_at(got, block, "read", start))
    if n % bs:
        _expect_exact(s, n - n % bs, K[n - n % bs :])


def _raise_flaw(
    flaws: dict[str, tuple[Callable[[Array], Array], Callable[[], str]]],
    given: Array,
    got: Array,
    right: Array,
    unknown: str,
    name: str,
) -> None:
    for code, (simulate, explain) in flaws.items():
        if np.allclose(got, simulate(given), rtol=1e-3):
            raise Wrong(code, explain(), *_at(got, right, name))
    cause = tr("The formulas stand in the exercise: scale, then codes.")
    raise Wrong(unknown, cause, *_at(got, right, name))


def _at(got: Array, right: Array, name: str, first: int = 0) -> tuple[str, str, str]:
    """Return expected, got and place of the largest difference."""
    got, right = np.asarray(got, float), np.asarray(right, float)
    difference = np.nan_to_num(np.abs(got - right), nan=np.inf)
    t, h, i = np.unravel_index(difference.argmax(), right.shape)
    place = tr("token {token}, head {head}", token=int(t) + first, head=int(h))
    expected = f"{name}[{t + first}, {h}, {i}] == {right[t, h, i]:.5g}"
    return expected, f"{got[t, h, i]:.5g}", place


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


def _hints() -> tuple[str, str, str]:
    return (
        tr(
            "Start with one head and paper: which number must become 127, and what is "
            "then the value of one step?\n\n"
            "For the cache ask when the largest number of a block is known for good."
        ),
        tr(
            "The maximum of each head runs over its tokens and channels: axes 0 and "
            "2, keepdims=True. Round before you cast: astype(np.int8) cuts off.\n\n"
            "append: a copy of the token goes to the tail; is the tail as long as a "
            "block now? Then it becomes codes, and a new tail begins."
        ),
        tr(
            "The skeleton, with the middle left for you:\n\n"
            "    amax = ...                      # (1, n_kv_heads, 1)\n"
            "    scale = (amax / 127).astype(np.float32)\n"
            "    divisor = ...                   # scale, but never 0\n"
            "    codes = ...                     # round, clip, int8\n\n"
            "read: the blocks one after the other, each dequantised, then the tail if "
            "there is one. np.concatenate of nothing fails: an empty cache needs a "
            "line of its own."
        ),
    )


def _bound() -> str:
    return tr("09.5, “The error bound”")


def _tail() -> str:
    return tr("09.5, “The tail”")


INT8_BLOCKS = Exercise(
    id="09.5",
    title=lambda: tr("int8 blocks with an exact tail"),
    asked=(
        Asked("quantize_block_int8"),
        Asked("dequantize_block_int8"),
        Asked("Int8Cache", ("__init__", "__len__", "append", "read")),
    ),
    cases=(
        Case(
            lambda: tr("codes are int8, with one float32 scale per head"),
            _bound,
            codes_and_scale,
        ),
        Case(lambda: tr("a block reads back as code · scale"), _bound, reads_back),
        Case(lambda: tr("a head of zeros reads back as zeros"), _bound, zeros),
        Case(lambda: tr("the tail reads back exactly"), _tail, exact_tail),
        Case(
            lambda: tr("a block is coded once, when it becomes full"), _tail, full_block
        ),
        Case(lambda: tr("each block has scales of its own"), _tail, many_blocks),
        Case(
            lambda: tr("other block sizes, lengths at a boundary, an empty cache"),
            _tail,
            sizes,
        ),
        Case(
            lambda: tr("no exact values of full blocks are kept"),
            _tail,
            nothing_exact_stays,
        ),
    ),
    hints=_hints,
    not_verified=lambda: (
        tr("NaN and infinite values: they have no scale"),
        tr("forks and copy-on-write: the module's QuantizedBlockPool has them"),
    ),
    optional=True,
)
