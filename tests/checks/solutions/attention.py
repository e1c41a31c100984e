"""A right solution of 09.2; the bank of mistakes changes its text."""

import numpy as np


def reference_attention(K, V, q, scale):
    n_heads, head_dim = q.shape
    scale = float(scale)
    grouped = q.reshape(K.shape[1], -1, head_dim)
    scores = np.einsum("kgd,tkd->kgt", grouped, K) * scale
    scores = scores - scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores)
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.einsum("kgt,tkd->kgd", weights, V).reshape(n_heads, head_dim)


def paged_attention(pool, seq, layer, q, scale):
    if len(seq) == 0:
        raise ValueError("the sequence is empty")
    scale = float(scale)
    n_heads, head_dim = q.shape
    n_kv_heads = pool.k.shape[3]
    size = pool.block_size
    grouped = q.reshape(n_kv_heads, n_heads // n_kv_heads, head_dim)
    m = np.full(grouped.shape[:2], -np.inf, np.float32)
    l = np.zeros(grouped.shape[:2], np.float32)
    acc = np.zeros(grouped.shape, np.float32)
    for i, block in enumerate(seq.block_table):
        valid = min(size, len(seq) - i * size)
        K = pool.k[layer, block, :valid]
        V = pool.v[layer, block, :valid]
        S = np.einsum("kgd,tkd->kgt", grouped, K) * scale
        m_new = np.maximum(m, S.max(axis=-1))
        alpha = np.exp(m - m_new)
        P = np.exp(S - m_new[..., None])
        l = l * alpha + P.sum(axis=-1)
        acc = acc * alpha[..., None] + np.einsum("kgt,tkd->kgd", P, V)
        m = m_new
    return (acc / l[..., None]).reshape(n_heads, head_dim)
