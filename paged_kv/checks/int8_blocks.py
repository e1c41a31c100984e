"""Exercise 09.5: int8 per block and head, with an exact tail."""

from __future__ import annotations

from paged_kv.checks.cases.int8_cache import CACHE_CASES
from paged_kv.checks.cases.int8_functions import FUNCTION_CASES
from paged_kv.checks.exercise import Asked, Exercise
from paged_kv.messages import tr


def _hints() -> tuple[str, str, str]:
    return (
        tr(
            "Start with one head and paper: which number must become 127, and what is "
            "then the value of one step?\n\n"
            "For the cache ask when the largest number of a block is known for good."
        ),
        tr(
            "The maximum of each head runs over its tokens and channels: "
            "axes 0 and 2, `keepdims=True`. Round before you cast: "
            "`astype(np.int8)` cuts off.\n\n"
            "append: a copy of the token goes to the tail; is the tail as "
            "long as a block now? Then it becomes codes, and a new tail "
            "begins."
        ),
        tr(
            "The skeleton, with the middle left for you:\n\n"
            "    amax = ...                      # (1, n_kv_heads, 1)\n"
            "    scale = (amax / 127).astype(np.float32)\n"
            "    divisor = ...                   # scale, but never 0\n"
            "    codes = ...                     # round, clip, int8\n\n"
            "read: the blocks one after the other, each dequantised, then "
            "the tail if there is one. `np.concatenate` of nothing fails: an "
            "empty cache needs a line of its own."
        ),
    )


INT8_BLOCKS = Exercise(
    id="09.5",
    title=lambda: tr("int8 blocks with an exact tail"),
    asked=(
        Asked("quantize_block_int8"),
        Asked("dequantize_block_int8"),
        Asked("Int8Cache", ("__init__", "__len__", "append", "read")),
    ),
    cases=(*FUNCTION_CASES, *CACHE_CASES),
    hints=_hints,
    not_verified=lambda: (
        tr("NaN and infinite values: they have no scale"),
        tr("forks and copy-on-write: the module's QuantizedBlockPool has them"),
    ),
    optional=True,
)
