"""Shared by the tests of the core: data that is random and different everywhere."""

import numpy as np
import pytest

from paged_kv import BlockPool


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def make_pool():
    """Return a maker of pools full of NaN: reading an unwritten slot shows at once."""

    def make(num_blocks=16, n_layers=2, n_kv_heads=3, head_dim=4, **options):
        pool = BlockPool(num_blocks, n_layers, n_kv_heads, head_dim, **options)
        pool.k[:] = np.nan
        pool.v[:] = np.nan
        return pool

    return make


@pytest.fixture
def make_kv(rng):
    """Return a maker of K and V for T tokens of a pool, all layers."""

    def make(pool, n_tokens):
        shape = (pool.n_layers, n_tokens, pool.n_kv_heads, pool.head_dim)
        return tuple(
            rng.normal(size=shape).astype(np.float32).astype(pool.dtype)
            for _ in range(2)
        )

    return make
