"""Mistakes of students in exercise 09.2, each with the diagnosis it must get."""

from tests.checks.student import mistake

LOOP_K = "        K = pool.k[layer, block, :valid]\n"
LOOP_V = "        V = pool.v[layer, block, :valid]\n"
LOOP_S = '        S = np.einsum("kgd,tkd->kgt", grouped, K) * scale\n'
VALID = "        valid = min(size, len(seq) - i * size)\n"
ALPHA = "        alpha = np.exp(m - m_new)\n"
DENOMINATOR = "        l = l * alpha + P.sum(axis=-1)\n"
ACC = (
    "        acc = acc * alpha[..., None]"
    ' + np.einsum("kgt,tkd->kgd", P, V)\n        m = m_new\n'
)
RESULT = "    return (acc / l[..., None]).reshape(n_heads, head_dim)\n"
WALK = "enumerate(seq.block_table)"
LOCAL = "        # each block on its own\n"
REFERENCE_SCORES = '    scores = np.einsum("kgd,tkd->kgt", grouped, K) * scale\n'

GATHERED = {
    "by concatenation": "K_all = np.concatenate(list(pool.k[layer, seq.block_table]))",
    "block by block": "K_all = np.concatenate("
    "[pool.k[layer, block] for block in seq.block_table])",
    "token by token": "K_all = np.array([pool.k[layer, "
    "seq.block_table[t // size], t % size] for t in range(len(seq))])",
    "by the module": "K_all, _ = pool.read_blocks(layer, np.array(seq.block_table))",
    "for checking": "from paged_kv import gather_kv\n"
    "    K_all, _ = gather_kv(pool, seq, layer)",
}

MISTAKES = [
    # The reference.
    mistake(
        "reference: no scale",
        "scale-missing",
        "not multiplied by scale",
        REFERENCE_SCORES,
        REFERENCE_SCORES.replace(" * scale", ""),
    ),
    mistake(
        "reference: softmax over the heads",
        "softmax-over-heads",
        "over the heads",
        "weights / weights.sum(axis=-1, keepdims=True)",
        "weights / weights.sum(axis=(0, 1), keepdims=True)",
        "scores - scores.max(axis=-1, keepdims=True)",
        "scores - scores.max()",
    ),
    mistake(
        "reference: one denominator for all",
        "softmax-over-everything",
        "each head has its own",
        "weights / weights.sum(axis=-1, keepdims=True)",
        "weights / weights.sum()",
    ),
    mistake(
        "reference: no division",
        "not-normalised",
        "division",
        "    weights = weights / weights.sum(axis=-1, keepdims=True)\n",
        "",
    ),
    mistake(
        "reference: no exp",
        "no-softmax",
        "apply exp",
        "    scores = scores - scores.max(axis=-1, keepdims=True)\n"
        "    weights = np.exp(scores)\n"
        "    weights = weights / weights.sum(axis=-1, keepdims=True)\n",
        "    weights = scores\n",
    ),
    mistake(
        "reference: K in place of V",
        "values-from-k",
        "sums up K",
        '"kgt,tkd->kgd", weights, V)',
        '"kgt,tkd->kgd", weights, K)',
    ),
    mistake(
        "reference: scores from V",
        "scores-from-v",
        "scores from V",
        '"kgd,tkd->kgt", grouped, K) * scale\n    scores',
        '"kgd,tkd->kgt", grouped, V) * scale\n    scores',
    ),
    mistake(
        "reference: 1 / sqrt(head_dim)",
        "scale-argument-ignored",
        "sqrt(head_dim)",
        "    grouped = q.reshape(K",
        "    scale = head_dim**-0.5\n    grouped = q.reshape(K",
    ),
    mistake(
        "reference: divided by scale",
        "scale-inverted",
        "divided by scale",
        REFERENCE_SCORES,
        REFERENCE_SCORES.replace("*", "/"),
    ),
    mistake(
        "reference: scale twice",
        "scale-twice",
        "twice",
        REFERENCE_SCORES,
        REFERENCE_SCORES.replace("* scale", "* scale * scale"),
    ),
    mistake(
        "reference: wrong shape",
        "wrong-shape",
        "shape of q",
        'np.einsum("kgt,tkd->kgd", weights, V).reshape(n_heads, head_dim)',
        'np.einsum("kgt,tkd->kgd", weights, V)',
    ),
    mistake(
        "reference: q scaled in place",
        "input-modified",
        "changes `q`",
        "    grouped = q.reshape(K",
        "    q *= scale\n    scale = 1.0\n    grouped = q.reshape(K",
    ),
    mistake(
        "reference: forgets to return",
        "returns-none",
        "return",
        "return np.einsum",
        "out = np.einsum",
    ),
    # What is read.
    mistake(
        "the block table ignored",
        "table-ignored",
        "block table was not used",
        WALK,
        "enumerate(range(len(seq.block_table)))",
    ),
    mistake(
        "a set of blocks",
        "table-order-lost",
        "order of the table",
        WALK,
        "enumerate(sorted(seq.block_table))",
    ),
    mistake(
        "layer ignored",
        "layer-ignored",
        "layer 0",
        "pool.k[layer, ",
        "pool.k[0, ",
        "pool.v[layer, ",
        "pool.v[0, ",
    ),
    mistake(
        "K and V swapped",
        "k-and-v-swapped",
        "swapped",
        LOOP_K + LOOP_V,
        LOOP_K.replace("K =", "V =") + LOOP_V.replace("V =", "K ="),
    ),
    mistake(
        "no mask in the last block",
        "tail-not-masked",
        "beyond `len(seq)`",
        VALID,
        "        valid = size\n",
    ),
    mistake(
        "the mask is 0",
        "mask-is-zero",
        "exp(0)",
        VALID,
        "        valid = size\n",
        LOOP_S,
        LOOP_S + "        S[..., max(0, len(seq) - i * size):] = 0\n",
    ),
    mistake(
        "one slot too many",
        "one-slot-too-many",
        "one slot beyond",
        VALID,
        "        valid = min(size, len(seq) - i * size + 1)\n",
    ),
    mistake(
        "the last token left out",
        "last-token-lost",
        "last token",
        VALID,
        "        valid = min(size, max(1, len(seq) - i * size - 1))\n",
    ),
    mistake(
        "only full blocks",
        "tail-lost",
        "Only full blocks",
        WALK,
        "enumerate(seq.block_table[: max(1, len(seq) // size)])",
    ),
    mistake(
        "a full last block has remainder 0",
        "last-block-lost",
        "all of its slots count",
        VALID,
        "        valid = size if i < len(seq.block_table) - 1 else len(seq) % size\n"
        "        if valid == 0 and i > 0:\n            continue\n"
        "        valid = valid or size\n",
    ),
    mistake(
        "the mask in every block",
        "mask-in-every-block",
        "every block",
        VALID,
        "        valid = len(seq) % size or size\n",
    ),
    mistake(
        "16 in place of block_size",
        "block-size-hard-coded",
        "pool.block_size",
        "size = pool.block_size",
        "size = 16",
        WALK,
        "enumerate(seq.block_table[: -(-len(seq) // 16)])",
    ),
    mistake(
        "block 0 taken for no block",
        "block-zero-skipped",
        "`if block`",
        VALID,
        "        if not block:\n            continue\n" + VALID,
    ),
    mistake(
        "only the first block",
        "first-block-only",
        "first block",
        WALK,
        "enumerate(seq.block_table[:1])",
    ),
    # Heads.
    mistake(
        "heads tiled",
        "heads-tiled",
        "h % n_kv_heads",
        "    grouped = q.reshape(n_kv_heads, n_heads // n_kv_heads, head_dim)\n",
        "    grouped = q.reshape(-1, n_kv_heads, head_dim).swapaxes(0, 1)\n",
        RESULT,
        "    out = (acc / l[..., None]).swapaxes(0, 1)\n"
        "    return out.reshape(n_heads, head_dim)\n",
    ),
    mistake(
        "heads out of order",
        "heads-out-of-order",
        "rows of other heads",
        RESULT,
        "    out = (acc / l[..., None]).swapaxes(0, 1)\n"
        "    return out.reshape(n_heads, head_dim)\n",
    ),
    mistake(
        "one KV head for all",
        "one-kv-head",
        "KV head 0",
        LOOP_V,
        LOOP_V
        + "        K, V = (np.repeat(x[:, :1], n_kv_heads, axis=1) for x in (K, V))\n",
    ),
    # The online softmax.
    mistake(
        "no rescaling",
        "no-rescale",
        "old one",
        ALPHA,
        "        alpha = np.ones_like(m)\n",
    ),
    mistake(
        "acc not rescaled",
        "accumulator-not-rescaled",
        "acc is not",
        "acc * alpha[..., None]",
        "acc",
    ),
    mistake(
        "l not rescaled",
        "denominator-not-rescaled",
        "l is not",
        "l = l * alpha +",
        "l = l +",
    ),
    mistake(
        "rescaled twice",
        "rescaled-twice",
        "twice",
        ALPHA,
        "        alpha = np.exp(m - m_new) ** 2\n",
    ),
    mistake(
        "alpha upside down",
        "rescale-inverted",
        "exp(m - m_new)",
        ALPHA,
        "        alpha = np.exp(m_new - m) if i else np.zeros_like(m)\n",
    ),
    mistake(
        "divided in every block",
        "divided-in-every-block",
        "Divide once",
        "        m = m_new\n",
        "        acc = acc / l[..., None]\n        m = m_new\n",
        RESULT,
        "    return acc.reshape(n_heads, head_dim)\n",
    ),
    mistake(
        "a softmax per block, averaged",
        "blocks-averaged",
        "averaged",
        DENOMINATOR + ACC,
        "        P /= P.sum(axis=-1, keepdims=True)\n"
        '        acc += np.einsum("kgt,tkd->kgd", P, V)\n        l += 1\n',
    ),
    mistake(
        "a softmax per block, added up",
        "blocks-summed",
        "added up",
        DENOMINATOR + ACC,
        "        P /= P.sum(axis=-1, keepdims=True)\n"
        '        acc += np.einsum("kgt,tkd->kgd", P, V)\n        l[:] = 1\n',
    ),
    mistake(
        "set anew in every block",
        "last-block-only",
        "set anew",
        VALID,
        VALID + "        m, l, acc = m * 0 - np.inf, l * 0, acc * 0\n",
        "np.full(grouped.shape[:2], -np.inf, np.float32)",
        "np.zeros(grouped.shape[:2], np.float32)",
    ),
    # Numbers that do not fit.
    mistake(
        "no maximum",
        "maximum-not-subtracted",
        "infinite",
        "        m_new = np.maximum(m, S.max(axis=-1))\n",
        "        m_new = np.zeros_like(m)\n",
    ),
    mistake(
        "the maximum starts at 0",
        "maximum-starts-at-zero",
        "Start at `-inf`",
        "np.full(grouped.shape[:2], -np.inf, np.float32)",
        "np.zeros(grouped.shape[:2], np.float32)",
    ),
    mistake(
        "the mask leaves NaN in V",
        "nan-from-empty-slots",
        "0 · NaN",
        VALID,
        "        valid = size\n",
        LOOP_S,
        LOOP_S + "        S[..., max(0, len(seq) - i * size):] = -np.inf\n",
    ),
    mistake(
        "accumulates in the pool's type",
        "computed-in-float16",
        "float16",
        "acc = np.zeros(grouped.shape, np.float32)",
        "acc = np.zeros(grouped.shape, pool.dtype)",
        "        m = m_new\n",
        "        m = m_new\n        acc = acc.astype(pool.dtype)\n",
        RESULT,
        RESULT.replace("(acc /", "(acc.astype(np.float32) /"),
    ),
    mistake(
        "a float64 scale spreads",
        "result-not-float32",
        "float(scale)",
        "    scale = float(scale)\n    n_heads, head_dim = q.shape\n    n_kv_heads",
        "    n_heads, head_dim = q.shape\n    n_kv_heads",
    ),
    # Manners.
    mistake(
        "the empty sequence gives NaN",
        "empty-sequence-accepted",
        "no tokens",
        '        raise ValueError("the sequence is empty")\n',
        "        return np.full_like(q, np.nan)\n",
    ),
    mistake(
        "q cut to size",
        "wrong-q-accepted",
        "does not fit",
        "    grouped = q.reshape(n_kv",
        "    n_heads -= n_heads % n_kv_heads\n    grouped = q[:n_heads].reshape(n_kv",
    ),
    mistake(
        "the pool is changed",
        "pool-modified",
        "only reads",
        LOOP_K,
        "        pool.k[layer, block, valid:] = 0\n" + LOOP_K,
    ),
    mistake(
        "the table is consumed",
        "sequence-modified",
        "changed the sequence",
        WALK,
        "enumerate([seq.block_table.pop(0) for _ in seq.block_table[:]])",
    ),
    mistake(
        "the whole K is gathered",
        "whole-k-gathered",
        "read a block",
        "    n_heads, head_dim = q.shape\n    n_kv_heads",
        "    K = pool.k[layer, seq.block_table].reshape(-1, *pool.k.shape[3:])\n"
        "    V = pool.v[layer, seq.block_table].reshape(-1, *pool.v.shape[3:])\n"
        "    if q.shape[0] % K.shape[1]:\n"
        '        raise ValueError("q does not fit")\n'
        "    return reference_attention(K[: len(seq)], V[: len(seq)], q, scale)\n"
        "    n_heads, head_dim = q.shape\n    n_kv_heads",
    ),
    *(
        mistake(
            f"the whole K is gathered {how}",
            "whole-k-gathered",
            "read a block",
            "    grouped = q.reshape(n_kv",
            f"    {line}\n    grouped = q.reshape(n_kv",
            LOOP_K,
            "        K = K_all[i * size : i * size + valid]\n",
        )
        for how, line in GATHERED.items()
    ),
    mistake(
        "a general mistake",
        "wrong-numbers",
        "differ",
        RESULT,
        RESULT.replace("(acc /", "(1.5 * acc /"),
    ),
    # Found by a sceptical reader: a diagnosis must be true, not only a refusal.
    mistake(
        "V of layer 0",
        "layer-of-v-ignored",
        "V is read from layer 0",
        LOOP_V,
        LOOP_V.replace("layer", "0"),
    ),
    mistake(
        "K of layer 0",
        "layer-of-k-ignored",
        "K is read from layer 0",
        LOOP_K,
        LOOP_K.replace("layer", "0"),
    ),
    mistake(
        "q grouped the other way round, the result not",
        "heads-grouped-backwards",
        "neighbouring heads",
        "q.reshape(n_kv_heads, n_heads // n_kv_heads, head_dim)",
        "q.reshape(-1, n_kv_heads, head_dim).swapaxes(0, 1)",
    ),
    mistake(
        "scale on the result",
        "scale-on-result",
        "inside exp",
        LOOP_S,
        LOOP_S.replace(" * scale", ""),
        RESULT,
        RESULT.replace("\n", " * scale\n"),
    ),
    mistake(
        "weights divided in every block",
        "weights-normalised-in-block",
        "Divide once",
        DENOMINATOR,
        "        P = P / P.sum(axis=-1, keepdims=True)\n" + DENOMINATOR,
    ),
    mistake(
        "the factor upside down from the first block on",
        "nan-in-result",
        "`exp(m_new - m)`",
        ALPHA,
        ALPHA.replace("m - m_new", "m_new - m"),
    ),
    mistake(
        "the maximum of this block only",
        "not-the-largest-score",
        "hundreds apart",
        "np.maximum(m, S.max(axis=-1))",
        "S.max(axis=-1)",
    ),
    mistake(
        "full last block of no tokens",
        "full-last-block",
        "is full",
        VALID,
        "        last = i == len(seq.block_table) - 1\n"
        "        valid = len(seq) % size if last else size\n",
        state="raised",
    ),
    mistake(
        "a block too many",
        "full-last-block",
        "already counts all blocks",
        f"    for i, block in {WALK}:\n",
        "    for i in range(len(seq) // size + 1):\n"
        "        block = seq.block_table[i]\n",
        state="raised",
    ),
    mistake(
        "a list is returned",
        "result-not-array",
        "one array",
        RESULT,
        RESULT.replace("\n", ".tolist()\n"),
    ),
    mistake(
        "float16 is returned",
        "result-not-float32",
        "rounded",
        RESULT,
        RESULT.replace("\n", ".astype(np.float16)\n"),
    ),
    mistake(
        "float64 is returned, whatever scale is",
        "result-not-float32",
        "unless they are given a dtype",
        RESULT,
        RESULT.replace("\n", ".astype(float)\n"),
    ),
    mistake(
        "q is reshaped and never looked at",
        "wrong-q-accepted",
        "does not fit",
        "reshape(n_kv_heads, n_heads // n_kv_heads, head_dim)",
        "reshape(n_kv_heads, -1, pool.head_dim)",
        ".reshape(n_heads, head_dim)\n",
        ".reshape(q.shape)\n",
    ),
    # A second round of invented mistakes, most of which were "not known" at first.
    *(
        mistake(
            f"reference: head h reads {index}",
            code,
            says,
            "    grouped = q.reshape(K.shape[1], -1, head_dim)\n",
            f"    h, n, group = np.arange(n_heads), K.shape[1], n_heads // K.shape[1]\n"
            f"    K, V = K[:, {index}], V[:, {index}]\n"
            "    grouped = q[:, None]\n",
        )
        for index, code, says in (
            ("h // n", "head-divided-by-kv-heads", "size of a group"),
            ("h % group", "head-modulo-group", "Groups are neighbours"),
        )
    ),
    mistake(
        "reference: repeated along the tokens",
        "shapes-do-not-fit",
        "q has the shape (6, 8), and K and V (7, 3, 8)",
        "    grouped = q.reshape(K.shape[1], -1, head_dim)\n",
        "    group = n_heads // K.shape[1]\n"
        "    K, V = np.repeat(K, group, axis=0), np.repeat(V, group, axis=0)\n"
        "    grouped = q[:, None]\n",
        state="raised",
    ),
    mistake(
        "reference: scale and 1 / sqrt(head_dim)",
        "scale-and-sqrt",
        "as well",
        REFERENCE_SCORES,
        REFERENCE_SCORES.replace("* scale", "* scale / np.sqrt(head_dim)"),
    ),
    mistake(
        "reference: exp of minus the scores",
        "scores-negated",
        "wrong sign",
        "weights = np.exp(scores)",
        "weights = np.exp(-scores)",
    ),
    mistake(
        "the mean of the weights for their sum",
        "weights-averaged",
        "their sum",
        DENOMINATOR,
        DENOMINATOR.replace("sum", "mean"),
    ),
    mistake(
        "reference: softmax over the group",
        "softmax-over-group",
        "heads of a group",
        "weights / weights.sum(axis=-1, keepdims=True)",
        "weights / weights.sum(axis=1, keepdims=True)",
    ),
    mistake(
        "reference: no maximum",
        "maximum-not-subtracted",
        "before exp",
        "    scores = scores - scores.max(axis=-1, keepdims=True)\n",
        "",
    ),
    mistake(
        "exp of S - m",
        "nan-in-result",
        "`exp(S - m)`",
        "P = np.exp(S - m_new[..., None])",
        "P = np.exp(S - m[..., None])",
    ),
    mistake(
        "m is overwritten before alpha is computed",
        "no-rescale",
        "refer to the old one",
        "        m_new = np.maximum(m, S.max(axis=-1))\n",
        "        m_new = m = np.maximum(m, S.max(axis=-1))\n",
    ),
    mistake(
        "m is never kept",
        "last-block-only",
        "`m = m_new` is missing",
        "        m = m_new\n",
        "",
    ),
    mistake(
        "l rescaled after the block was added",
        "denominator-rescaled-late",
        "rescale first",
        DENOMINATOR,
        "        l = (l + P.sum(axis=-1)) * alpha\n",
    ),
    mistake(
        "acc rescaled after the block was added",
        "accumulator-rescaled-late",
        "rescale first",
        ACC,
        '        acc += np.einsum("kgt,tkd->kgd", P, V)\n'
        "        acc *= alpha[..., None]\n        m = m_new\n",
    ),
    mistake(
        "both rescaled after the block was added",
        "rescaled-too-late",
        "rescale first",
        DENOMINATOR,
        "        l = (l + P.sum(axis=-1)) * alpha\n",
        ACC,
        '        acc += np.einsum("kgt,tkd->kgd", P, V)\n'
        "        acc *= alpha[..., None]\n        m = m_new\n",
    ),
    mistake(
        "divided in every block and at the end",
        "divided-at-the-end-too",
        "once more",
        "        m = m_new\n",
        "        m = m_new\n        acc = acc / l[..., None]\n",
    ),
    mistake(
        "one denominator for all heads",
        "denominators-added",
        "an l of its own",
        "(acc / l[..., None])",
        "(acc / l.sum())",
    ),
    mistake(
        "the first block is left out",
        "first-block-lost",
        "first block",
        WALK,
        "list(enumerate(seq.block_table))[1:] or enumerate(seq.block_table)",
    ),
    mistake(
        "a loop over tokens",
        "token-for-block",
        "5 here",
        f"    for i, block in {WALK}:\n",
        "    for i in range(len(seq)):\n        block = seq.block_table[i]\n",
        state="raised",
    ),
    mistake(
        "block before layer",
        "axes-out-of-order",
        "pool.k[layer, block, :n]",
        "[layer, block, :valid]",
        "[block, layer, :valid]",
        state="raised",
    ),
    mistake(
        "q in the pool's type",
        "computed-in-float16",
        "float16",
        "    grouped = q.reshape(n_kv",
        "    q = q.astype(pool.k.dtype)\n    grouped = q.reshape(n_kv",
    ),
    mistake(
        "the layer before",
        "wrong-numbers",
        "differ",
        "[layer, block",
        "[layer - 1, block",
    ),
]
