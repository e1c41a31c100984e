"""K and V that say which prefix they belong to, for the tests of the caches."""

import zlib

import numpy as np

from paged_kv import BlockPool, gather_kv

N_LAYERS, N_KV_HEADS, HEAD_DIM = 2, 3, 2


def kv_of(tokens, extra=None):
    """Return K and V, (n_layers, T, n_kv_heads, head_dim), made from each prefix.

    The value at position t depends on all tokens up to t (and on lora and salt), as in
    a model: the same token after another prefix has another K.
    """
    values, state = [], zlib.crc32(repr(extra).encode())
    for token in tokens:
        state = zlib.crc32(str(token).encode(), state)
        values.append(state % (1 << 20))  # exact in float32, places included
    places = np.arange(N_LAYERS * N_KV_HEADS * HEAD_DIM, dtype=np.float32)
    grid = places.reshape(N_LAYERS, 1, N_KV_HEADS, HEAD_DIM) / 16
    K = np.asarray(values, np.float32)[None, :, None, None] + grid
    return K, -K - 0.5


def write(seq, tokens, start, extra=None):
    """Write the K and V of tokens from position `start` on."""
    K, V = kv_of(tokens, extra)
    slots = seq.slots(start)
    for layer in range(N_LAYERS):
        seq.pool.write(layer, slots, K[layer, start:], V[layer, start:])


def assert_holds(seq, tokens, extra=None):
    """Read every token of a sequence back."""
    assert len(seq) == len(tokens)
    K, V = kv_of(tokens, extra)
    for layer in range(N_LAYERS):
        got_k, got_v = gather_kv(seq.pool, seq, layer)
        assert np.array_equal(got_k, K[layer])
        assert np.array_equal(got_v, V[layer])


def nan_pool(num_blocks, block_size):
    """Return a pool full of NaN: reading a slot that nobody wrote shows at once."""
    pool = BlockPool(num_blocks, N_LAYERS, N_KV_HEADS, HEAD_DIM, block_size)
    pool.k[:] = np.nan
    pool.v[:] = np.nan
    return pool


def run(cache, seq_id, tokens, **extra):
    """Run one request: admit, write what is not cached, publish."""
    seq, n_cached = cache.admit(seq_id, tokens, **extra)
    write(seq, tokens, n_cached, extra or None)
    cache.publish(seq, tokens, **extra)
    return seq, n_cached
