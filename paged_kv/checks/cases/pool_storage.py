"""A student's BlockPool: the memory."""

from __future__ import annotations

import numpy as np

from paged_kv.checks import lessons
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr


def storage(s: Script) -> None:
    """Check k, v, dtype and bytes_per_block."""
    s.do("pool = BlockPool(6, 7, 3, 5, block_size=4, dtype=np.float16)")
    shape = (7, 6, 4, 3, 5)
    for name in ("k", "v"):
        array = s.ask(f"pool.{name}")
        if not isinstance(array, np.ndarray):
            cause = tr("`pool.{name}` must be one numpy array.", name=name)
            raise Wrong("storage-not-array", cause, "numpy.ndarray", show(array))
        s.expect(
            f"pool.{name}.shape",
            shape,
            "storage-wrong-shape",
            tr(
                "The shape of `pool.{name}` is not `(n_layers, num_blocks, block_size, "
                "n_kv_heads, head_dim)`.",
                name=name,
            ),
        )
        s.expect(
            f"pool.{name}.dtype",
            np.dtype(np.float16),
            "dtype-ignored",
            tr(
                "`pool.{name}` is not stored in the dtype that was asked for. A wider "
                "type takes more memory than `bytes_per_block()` promises.",
                name=name,
            ),
        )
    s.expect(
        "getattr(pool, 'block_size', 4)",
        4,
        "block-size-not-kept",
        tr(
            "`pool.block_size` must be the argument `block_size`: sequences read it "
            "there."
        ),
    )
    if s.ask("np.shares_memory(pool.k, pool.v)"):
        raise Wrong(
            "k-and-v-share-memory",
            tr(
                "`pool.k` and `pool.v` are one and the same array: V overwrites K. "
                "Make two arrays."
            ),
            "np.shares_memory(pool.k, pool.v) == False",
            "True",
        )
    _bytes_per_block(s)
    _defaults(s)


def _defaults(s: Script) -> None:
    s.restart()
    s.do("pool = BlockPool(6, 7, 3, 5)")
    cause = tr("Without these arguments a pool has `block_size=16, dtype=np.float32`.")
    s.expect("pool.k.shape", (7, 6, 16, 3, 5), "wrong-default", cause)
    s.expect("pool.k.dtype", np.dtype(np.float32), "wrong-default", cause)


def _bytes_per_block(s: Script) -> None:
    right = 2 * 7 * 4 * 3 * 5 * 2
    wider = "BlockPool(6, 7, 3, 5, block_size=4, dtype=np.float32).bytes_per_block()"
    got = s.ask("pool.bytes_per_block()")
    factors = {
        right // 2: tr("It counts K only, and a block holds K and V: factor 2.")
        if s.ask(wider) != got
        else tr("It counts elements, and an element of float16 has 2 bytes."),
        right // 7: tr("It counts one layer; a block holds the token in all layers."),
        right // 4: tr("The block size is missing: a block holds 4 tokens."),
        right * 6: tr("It is the size of the whole pool, not of one block."),
        right * 2: tr("It counts 4 bytes per element, and float16 has 2."),
    }
    cause = factors.get(int(got)) if isinstance(got, int | np.integer) else None
    s.expect(
        "pool.bytes_per_block()",
        right,
        "bytes-per-block-wrong",
        cause
        or tr("It is `2 * n_layers * block_size * n_kv_heads * head_dim * itemsize`."),
    )


STORAGE_CASES = (
    Case(
        lambda: tr("k and v have the shape and dtype asked for; `bytes_per_block()`"),
        lessons.blocks,
        storage,
    ),
)
