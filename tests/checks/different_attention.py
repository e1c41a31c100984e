"""Right solutions of 09.2 that are built in another way; all must pass."""

TWO_PASSES = """
def paged_attention(pool, seq, layer, q, scale):
    # The maximum first, then the sums: every block is read twice.
    if not len(seq):
        raise ValueError
    n_kv, d = pool.k.shape[3:]
    if q.shape[1:] != (d,):
        raise ValueError(q.shape)
    q = np.float32(scale) * np.asarray(q, np.float32).reshape(n_kv, -1, d)
    m = -np.inf
    for i, block in enumerate(seq.block_table):
        K = pool.k[layer, block][: len(seq) - i * pool.block_size]
        m = max(m, np.einsum("kgd,tkd->kgt", q, K).max())
    l, acc = 0, 0
    for i, block in enumerate(seq.block_table):
        n = min(pool.block_size, len(seq) - i * pool.block_size)
        K, V = pool.k[layer, block, :n], pool.v[layer, block, :n]
        P = np.exp(np.einsum("kgd,tkd->kgt", q, K) - np.float32(m))
        l = l + P.sum(-1, keepdims=True)
        acc = acc + np.einsum("kgt,tkd->kgd", P, V)
    return (acc / l).reshape(-1, d)
"""

HEAD_BY_HEAD = """
def paged_attention(pool, seq, layer, q, scale):
    # One head after the other, with matrix products of one head.
    if len(seq) == 0:
        raise ValueError("empty")
    q = np.asarray(q, np.float32)
    scale = float(scale)
    n_kv = pool.k.shape[3]
    if q.shape[0] % n_kv:
        raise ValueError(q.shape)
    out = np.empty(q.shape, np.float32)
    for h in range(len(q)):
        kv = h // (len(q) // n_kv)
        m, l, acc = -np.inf, 0.0, np.zeros(q.shape[1], np.float32)
        left = len(seq)
        for block in seq.block_table:
            K = pool.k[layer, block, :left, kv].astype(np.float32)
            V = pool.v[layer, block, :left, kv].astype(np.float32)
            left -= len(K)
            s = K @ q[h] * scale
            new = max(m, s.max())
            p = np.exp(s - new)
            l = l * np.exp(m - new) + p.sum()
            acc = acc * np.exp(m - new) + p @ V
            m = new
        out[h] = acc / l
    return out
"""

TOKEN_BY_TOKEN = """
def paged_attention(pool, seq, layer, q, scale):
    if len(seq) == 0:
        raise ValueError("empty")
    scale = float(scale)
    n_kv, d = pool.k.shape[3:]
    if q.shape[1:] != (d,):
        raise ValueError(q.shape)
    q = q.reshape(n_kv, -1, d).astype(np.float32)
    m = np.full(q.shape[:2], -np.inf, np.float32)
    l, acc = np.zeros_like(m), np.zeros_like(q)
    for t in range(len(seq)):
        block, slot = seq.block_table[t // pool.block_size], t % pool.block_size
        k, v = pool.k[layer, block, slot], pool.v[layer, block, slot]
        s = (q * k[:, None]).sum(-1) * scale
        new = np.maximum(m, s)
        a, p = np.exp(m - new), np.exp(s - new)
        l, acc, m = l * a + p, acc * a[..., None] + p[..., None] * v[:, None], new
    return (acc / l[..., None]).reshape(-1, d)
"""

MERGED = """
def paged_attention(pool, seq, layer, q, scale):
    # Each block on its own, then merged by the log of the sum of exponentials.
    if len(seq) == 0:
        raise ValueError("empty")
    n_kv, d = pool.k.shape[3:]
    if q.shape[1:] != (d,):
        raise ValueError(q.shape)
    q = np.float32(scale) * q.reshape(n_kv, -1, d)
    out, lse = 0.0, np.full((*q.shape[:2], 1), -np.inf, np.float32)
    for i, block in enumerate(seq.block_table):
        n = min(pool.block_size, len(seq) - i * pool.block_size)
        K, V = pool.k[layer, block, :n], pool.v[layer, block, :n]
        S = q @ K.transpose(1, 2, 0)
        top = S.max(-1, keepdims=True)
        P = np.exp(S - top)
        total = P.sum(-1, keepdims=True)
        one, one_lse = P @ V.transpose(1, 0, 2) / total, top + np.log(total)
        both = np.logaddexp(lse, one_lse)
        out = out * np.exp(lse - both) + one * np.exp(one_lse - both)
        lse = both
    return np.asarray(out.reshape(-1, d), np.float32)
"""

DOUBLE = """
def paged_attention(pool, seq, layer, q, scale):
    # float64 inside, heads repeated, a few blocks at a time, last block first.
    if len(seq) == 0:
        raise ValueError("empty")
    n_kv, d = pool.k.shape[3:]
    group, rest = divmod(len(q), n_kv)
    if rest or q.shape[1] != d:
        raise ValueError(q.shape)
    q = np.asarray(q, np.float64)
    bs, table = pool.block_size, np.asarray(seq.block_table)
    m = np.full((len(q), 1), -np.inf)
    l, acc = np.zeros_like(m), np.zeros_like(q)
    for first in reversed(range(0, len(table), 4)):
        rows = min(4 * bs, len(seq) - first * bs)
        blocks = table[first : first + 4]
        K = pool.k[layer, blocks].reshape(-1, n_kv, d)[:rows].astype(np.float64)
        V = pool.v[layer, blocks].reshape(-1, n_kv, d)[:rows].astype(np.float64)
        K, V = K.repeat(group, axis=1), V.repeat(group, axis=1)
        S = np.einsum("hd,thd->ht", q, K) * scale
        new = np.maximum(m, S.max(1, keepdims=True))
        P, a = np.exp(S - new), np.exp(m - new)
        l = l * a + P.sum(1, keepdims=True)
        acc = acc * a + np.einsum("ht,thd->hd", P, V)
        m = new
    return (acc / l).astype(np.float32)
"""

ONE_VIEW = """
def paged_attention(pool, seq, layer, q, scale):
    # Views of the whole layer cost nothing; only blocks are read from them.
    if len(seq) == 0:
        raise ValueError("empty")
    K_all, V_all = pool.k[layer], pool.v[layer]
    n_kv, d = K_all.shape[2:]
    if q.shape[1:] != (d,):
        raise ValueError(q.shape)
    q = q.reshape(n_kv, -1, d) * np.float32(scale)
    m = l = acc = None
    for t in range(0, len(seq), pool.block_size):
        block = seq.block_table[t // pool.block_size]
        K = np.moveaxis(K_all[block, : len(seq) - t], 0, 2)
        V = np.moveaxis(V_all[block, : len(seq) - t], 0, 1)
        S = np.matmul(q, K)
        top = S.max(-1, keepdims=True)
        if m is None:
            m = top
            l = np.exp(S - m).sum(-1, keepdims=True)
            acc = np.exp(S - m) @ V
            continue
        new = np.maximum(m, top)
        P = np.exp(S - new)
        l = l * np.exp(m - new) + P.sum(-1, keepdims=True)
        acc = acc * np.exp(m - new) + P @ V
        m = new
    return (acc / l).reshape(-1, d)
"""

REFERENCE = """
def reference_attention(K, V, q, scale):
    # float64 inside, head by head.
    K, V, q = (np.asarray(x, np.float64) for x in (K, V, q))
    rows = []
    for h, one in enumerate(q):
        kv = h * K.shape[1] // len(q)
        s = scale * K[:, kv] @ one
        w = np.exp(s - np.logaddexp.reduce(s))
        rows.append(w @ V[:, kv])
    return np.array(rows, np.float32)
"""

WHERE = """
def paged_attention(pool, seq, layer, q, scale):
    # Whole blocks, from the last to the first, and zeros where nobody wrote.
    if len(seq) == 0:
        raise ValueError("empty")
    n_kv, d = pool.k.shape[3:]
    if q.ndim != 2 or q.shape[1] != d or len(q) % n_kv:
        raise ValueError(q.shape)
    q = q.reshape(n_kv, -1, d)
    m = np.float32(-1e30)  # one maximum for all heads
    l, acc = np.zeros(q.shape[:2], np.float32), np.zeros(q.shape, np.float32)
    for i in reversed(range(len(seq.block_table))):
        used = i * pool.block_size + np.arange(pool.block_size) < len(seq)
        K, V = (
            np.where(used[:, None, None], x[layer, seq.block_table[i]], 0)
            for x in (pool.k, pool.v)
        )
        S = np.einsum("kgd,tkd->kgt", q, K) * float(scale)
        S[..., ~used] = -np.inf
        new = max(m, S.max())
        P, a = np.exp(S - new), np.exp(m - new)
        l, acc = l * a + P.sum(-1), acc * a + np.einsum("kgt,tkd->kgd", P, V)
        m = new
    return (acc / l[..., None]).reshape(-1, d)
"""

TORCH = """
import torch


def reference_attention(K, V, q, scale):
    K, V, q = (torch.from_numpy(np.array(x)) for x in (K, V, q))
    group = len(q) // K.shape[1]
    K, V = K.repeat_interleave(group, 1), V.repeat_interleave(group, 1)
    weights = torch.softmax(torch.einsum("hd,thd->ht", q, K) * float(scale), -1)
    return torch.einsum("ht,thd->hd", weights, V).numpy()
"""

MODULE = "\nfrom paged_kv import paged_attention, reference_attention\n"


def solutions(right):
    """Return the texts of all different solutions by name."""
    texts = {
        "as it stands": "",
        "two passes": TWO_PASSES,
        "head by head": HEAD_BY_HEAD,
        "token by token": TOKEN_BY_TOKEN,
        "merged by log-sum-exp": MERGED,
        "float64, repeated heads, several blocks": DOUBLE,
        "views of a layer": ONE_VIEW,
        "another reference": REFERENCE,
        "backwards, whole blocks, one maximum": WHERE,
        "a reference in torch": TORCH,
        "the module's own": MODULE,
    }
    return {name: right + text for name, text in texts.items()}
