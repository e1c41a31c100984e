"""The check of exercise 09.5: each mistake has its own diagnosis, right code passes."""

import pytest

from paged_kv.checks import CheckFailed, check, hint
from paged_kv.messages import use_language
from tests.checks.student import run_cell

from .int8_solution import APPEND, QUANTIZE, READ, SOURCE

NAMES = ("quantize_block_int8", "dequantize_block_int8", "Int8Cache")


@pytest.fixture(autouse=True)
def english():
    use_language("en")


def checked(source, **options):
    names = run_cell(source)
    return check("09.5", *(names[name] for name in NAMES), **options)


BUFFER_TAIL = """
    def __init__(self, n_kv_heads, head_dim, block_size=16):
        self.block_size = block_size
        self.blocks = []
        self._buffer = np.empty((block_size, n_kv_heads, head_dim), np.float32)
        self._n = 0

    def __len__(self):
        return len(self.blocks) * self.block_size + self._n

    def append(self, k):
        self._buffer[self._n] = k
        self._n += 1
        if self._n == self.block_size:
            self.blocks.append(quantize_block_int8(self._buffer))
            self._n = 0

    def read(self):
        parts = [dequantize_block_int8(*block) for block in self.blocks]
        return np.concatenate([*parts, self._buffer[: self._n]])
"""
SEPARATE_LISTS = """
    @property
    def blocks(self):
        return tuple(zip(self._codes, self._scales))

    def __init__(self, n_kv_heads, head_dim, block_size=16):
        self._bs, self._codes, self._scales = block_size, [], []
        self._tail = np.zeros((0, n_kv_heads, head_dim), "f4")

    def __len__(self):
        return sum(map(len, self._codes)) + len(self._tail)

    def append(self, k):
        self._tail = np.concatenate([self._tail, [k]])
        if len(self._tail) == self._bs:
            codes, scale = quantize_block_int8(self._tail)
            self._codes += [codes]
            self._scales += [scale]
            self._tail = self._tail[:0].copy()

    def read(self):
        return np.concatenate(
            [c.astype("f4") * s for c, s in self.blocks] + [self._tail]
        )
"""
CLASS_BODY = SOURCE[SOURCE.index("    def __init__") :]
WITH_INVERSE = '''def quantize_block_int8(Kb):
    """Multiply by the inverse; round halves away from zero."""
    amax = np.max([Kb.max(axis=(0, 2)), -Kb.min(axis=(0, 2))], axis=0)
    inverse = np.divide(127, amax, out=np.zeros_like(amax), where=amax > 0)
    x = Kb * inverse[None, :, None]
    codes = np.sign(x) * np.floor(np.abs(x) + 0.5)
    return codes.astype("i1"), (amax / np.float32(127))[None, :, None]


'''
HEAD_BY_HEAD = """def quantize_block_int8(Kb):
    codes = np.zeros(Kb.shape, np.int8)
    scale = np.zeros((1, Kb.shape[1], 1), np.float32)
    for h in range(Kb.shape[1]):
        if amax := float(abs(Kb[:, h]).max()):
            scale[0, h, 0] = amax / 127
            codes[:, h] = np.rint(Kb[:, h] * (127 / amax))
    return codes, scale


"""


@pytest.mark.parametrize(
    "source",
    [
        SOURCE,
        SOURCE.replace(CLASS_BODY, BUFFER_TAIL),
        SOURCE.replace(CLASS_BODY, SEPARATE_LISTS),
        SOURCE.replace(QUANTIZE, WITH_INVERSE),
        SOURCE.replace(QUANTIZE, HEAD_BY_HEAD),
        SOURCE.replace(
            "return codes.astype(np.int8), scale",
            "return [codes.astype(np.int8), scale]",
        ),
    ],
    ids=["list", "buffer", "two lists", "inverse", "head by head", "a list returned"],
)
def test_any_right_design_passes(source):
    report = checked(source, strict=True)
    assert report.passed, repr(report)


CODE_IT = "self.blocks.append(quantize_block_int8(np.stack(self.tail)))"
READ_IT = "dequantize_block_int8(*quantize_block_int8(np.stack(self.tail)))"
SCALE = "    scale = (amax / 127).astype(np.float32)\n"
AMAX = "np.abs(Kb).max(axis=(0, 2), keepdims=True)"
CODES = "np.clip(np.round(Kb / divisor), -127, 127)"
MISTAKES = {
    # The functions.
    "only codes": (
        "not-a-pair",
        "return two things",
        "return codes.astype(np.int8), scale",
        "return codes.astype(np.int8)",
    ),
    "codes not cast": (
        "codes-not-int8",
        "one byte",
        "return codes.astype(np.int8), scale",
        "return codes, scale",
    ),
    "scale in float64": (
        "scale-not-float32",
        "float32",
        "astype(np.float32)\n    divisor",
        "astype(np.float64)\n    divisor",
    ),
    "one scale": (
        "one-scale-for-all-heads",
        "axes 0 and 2",
        AMAX,
        "np.abs(Kb).max(keepdims=True)",
    ),
    "one scale, broadcast": (
        "one-scale-for-all-heads",
        "axes 0 and 2",
        AMAX,
        "np.full((1, Kb.shape[1], 1), np.abs(Kb).max())",
    ),
    "scale per token": (
        "scale-per-token",
        "per head",
        AMAX,
        "np.abs(Kb).max(axis=2, keepdims=True)",
    ),
    "scale per channel": (
        "scale-per-channel",
        "per head",
        AMAX,
        "np.abs(Kb).max(axis=0, keepdims=True)",
    ),
    "no keepdims": (
        "scale-wrong-shape",
        "keepdims",
        SCALE,
        SCALE + "    return np.zeros(Kb.shape, np.int8), scale.ravel()\n",
    ),
    "range": (
        "range-in-place-of-amax",
        "no zero point",
        AMAX,
        "np.ptp(Kb, axis=(0, 2), keepdims=True) / 2",
    ),
    "sign": ("sign-lost", "np.abs", AMAX, "Kb.max(axis=(0, 2), keepdims=True)"),
    "128": ("divided-by-128", "ends at 127", "amax / 127", "amax / 128"),
    "255": ("divided-by-255", "255 levels", "amax / 127", "amax / 255"),
    "not divided": ("scale-not-divided", "one step", "amax / 127", "amax / 1"),
    "inverted": ("scale-inverted", "upside down", "amax / 127", "127 / amax"),
    "no rounding": ("truncated", "np.round", "np.round(Kb / divisor)", "Kb / divisor"),
    "floor": ("floored", "nearest", "np.round(Kb / divisor)", "Kb // divisor"),
    "input changed": (
        "input-modified",
        "copy",
        "    amax = ",
        "    Kb[0] = 0\n    amax = ",
    ),
    "scale forgotten": (
        "scale-not-applied",
        "not used",
        "np.float32) * scale",
        "np.float32) + 0 * scale",
    ),
    "divided when read": (
        "divided-by-scale",
        "not divide",
        "np.float32) * scale",
        "np.float32) / scale",
    ),
    "zero head": (
        "zero-head-not-zero",
        "0 / 0",
        "np.float32) * scale",
        "np.float32) * (scale / scale * scale)",
    ),
    # The cache.
    "tail coded at once": (
        "tail-not-exact",
        "Keep them exact",
        "self.tail.append(np.array(k, np.float32))",
        "self.tail.extend(" + READ_IT.replace("np.stack(self.tail)", "k[None]") + ")",
    ),
    "tail in float16": (
        "tail-not-exact",
        "Keep them exact",
        "np.array(k, np.float32)",
        "np.array(k, np.float16).astype(np.float32)",
    ),
    "tail not read": ("tail-not-read", "blocks and tail", "if self.tail:", "if False:"),
    "token not copied": (
        "token-not-copied",
        "np.array(k)",
        "np.array(k, np.float32)",
        "k",
    ),
    "tail kept": (
        "tail-not-emptied",
        "Empty the tail",
        "            self.tail = []\n\n    def read",
        "\n    def read",
    ),
    "16 tokens a block": (
        "block-size-hard-coded",
        "counts 16 tokens",
        "len(self.blocks) * self.block_size",
        "len(self.blocks) * 16",
    ),
    "never coded": (
        "never-coded",
        "`cache.blocks` is empty",
        "== self.block_size:",
        "== -1:",
    ),
    "coded one late": (
        "coded-late",
        "the append that fills it",
        APPEND,
        """
    def append(self, k):
        if len(self.tail) == self.block_size and self.blocks:
            self.blocks.append(quantize_block_int8(np.stack(self.tail)))
            self.tail = []
        self.tail.append(np.array(k, np.float32))
        if len(self.tail) == self.block_size and not self.blocks:
            self.blocks.append(quantize_block_int8(np.stack(self.tail)))
            self.tail = []

""",
    ),
    "block of one": (
        "wrong-length",
        "tokens appended",
        "* self.block_size + len(self.tail)",
        "* self.block_size",
    ),
    "order lost": (
        "error-too-large",
        "amax / 254",
        "np.stack(self.tail)))",
        "np.stack(self.tail[::-1])))",
    ),
    "first scale": (
        "scale-frozen",
        "first token",
        CODE_IT,
        """_, scale = quantize_block_int8(self.tail[0][None])
            codes = np.clip(np.round(np.stack(self.tail) / scale), -127, 127)
            self.blocks.append((codes.astype(np.int8), scale))""",
    ),
    "scale of the first block": (
        "scale-of-first-block",
        "first one",
        CODE_IT,
        """codes, scale = quantize_block_int8(np.stack(self.tail))
            if self.blocks:
                scale = self.blocks[0][1]
                codes = np.clip(np.round(np.stack(self.tail) / scale), -127, 127)
            self.blocks.append((codes.astype(np.int8), scale))""",
    ),
    "coded again and again": (
        "requantised",
        "errors add up",
        APPEND,
        """
    def append(self, k):
        self.tail.append(np.array(k, np.float32))
        self._exact = [*getattr(self, "_exact", []), np.array(k, np.float32)]
        read = dequantize_block_int8(*quantize_block_int8(np.stack(self.tail)))
        self.tail = list(read)
        if len(self.tail) == self.block_size:
            self.blocks.append(quantize_block_int8(np.stack(self.tail)))
            self.tail, self._exact = [], []

""",
        READ,
        READ.replace("np.stack(self.tail)", "np.stack(self._exact)"),
    ),
    "empty cache": ("empty-cache-not-read", "no tokens", "if not parts:", "if False:"),
    "exact copy": (
        "exact-copy-kept",
        "no memory is saved",
        "        self.tail.append",
        "        self.shape += (np.array(k),)\n        self.tail.append",
    ),
}


@pytest.mark.parametrize(
    ("code", "says", "changes"),
    [(code, says, changes) for code, says, *changes in MISTAKES.values()],
    ids=MISTAKES,
)
def test_each_mistake_is_named(code, says, changes):
    source = SOURCE
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in source, f"the solution does not contain {old!r}"
        source = source.replace(old, new)
    report = checked(source)
    assert (report.state, report.code) == ("wrong", code), repr(report)
    assert says in report.message
    (run,) = (s.lines for s in report.sections if s.label == "What was run")
    assert sum(line.startswith("cache = ") for line in run) < 2, run  # no earlier cache
    with pytest.raises(CheckFailed, match=code):
        checked(source, strict=True)


def test_an_untouched_stub_is_not_started():
    stub = """
def quantize_block_int8(Kb):
    raise NotImplementedError

def dequantize_block_int8(codes, scale):
    raise NotImplementedError

class Int8Cache:
    def __init__(self, n_kv_heads, head_dim, block_size=16):
        self.blocks = []
    def __len__(self):
        raise NotImplementedError
    def append(self, k):
        raise NotImplementedError
    def read(self):
        raise NotImplementedError
"""
    assert checked(stub).state == "not started"
    functions = SOURCE[: SOURCE.index("class Int8Cache")]
    half = functions + stub[stub.index("class Int8Cache") :]
    assert checked(half).state == "not started"


@pytest.mark.parametrize("language", ["ru", "en"])
def test_there_are_three_hints(language):
    use_language(language)
    texts = {repr(hint("09.5", level)) for level in (1, 2, 3)}
    assert len(texts) == 3
