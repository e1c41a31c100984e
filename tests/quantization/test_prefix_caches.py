"""Both prefix caches over a quantised pool: a hit reads what was coded once."""

import numpy as np
import pytest

from paged_kv import gather_kv
from paged_kv.prefix_cache import PrefixCache
from paged_kv.quantization import GroupedInt, QuantizedBlockPool
from paged_kv.radix_cache import RadixCache

N_LAYERS, N_KV_HEADS, HEAD_DIM = 2, 2, 8


def kv_of(tokens):
    """Return K and V, each a number for every token, layer, head and channel."""
    shape = (2, N_LAYERS, 1, N_KV_HEADS, HEAD_DIM)
    each = [np.random.default_rng(t).normal(size=shape) for t in tokens]
    return np.concatenate(each, axis=2).astype(np.float32)


def run(pool, cache, name, tokens, way):
    seq, n_cached = cache.admit(name, tokens)
    slots = seq.slots(n_cached)
    K, V = kv_of(tokens[n_cached:])
    if way == "layers":
        for layer in range(N_LAYERS):
            pool.write(layer, slots, K[layer], V[layer])
    else:
        pool.write_all_layers(slots, *pool.as_kv(K, V, K.shape))
    cache.publish(seq, tokens)
    return seq, n_cached


@pytest.mark.parametrize("way", ["layers", "at once"])
@pytest.mark.parametrize("make_cache", [PrefixCache, RadixCache])
def test_a_hit_reads_codes_that_were_made_once(make_cache, way):
    quantizers = GroupedInt(4, "channel"), GroupedInt(2, "token")
    pool = QuantizedBlockPool(
        12,
        N_LAYERS,
        N_KV_HEADS,
        HEAD_DIM,
        4,
        k_quantizer=quantizers[0],
        v_quantizer=quantizers[1],
    )
    cache = make_cache(pool)
    prompt = list(range(100, 110))
    first, _ = run(pool, cache, "first", prompt, way)
    expected = [gather_kv(pool, first, layer) for layer in range(N_LAYERS)]
    kept = [a[:, first.block_table[:2]].copy() for a in pool.k_codes.arrays]
    first.free()
    assert len(pool.open) == 0  # nobody can find a partial block again
    second, n_cached = run(pool, cache, "second", [*prompt[:9], 7, 8], way)
    assert n_cached == 8
    for layer in range(N_LAYERS):
        for got, want in zip(
            gather_kv(pool, second, layer), expected[layer], strict=True
        ):
            assert np.array_equal(got[:9], want[:9])
    for array, before in zip(pool.k_codes.arrays, kept, strict=True):
        assert np.array_equal(array[:, second.block_table[:2]], before)
    child = second.fork("child")
    child.append(*kv_of([5])[:, :, 0])
    for layer in range(N_LAYERS):
        mine, hers = gather_kv(pool, child, layer)[0], gather_kv(pool, second, layer)[0]
        assert np.array_equal(mine[:8], hers[:8])
    pool.check([second, child], [cache])
