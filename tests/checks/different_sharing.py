"""Right solutions of 09.3 that are built in another way; all must pass."""

COUNT = """        for block in self.block_table:
            self.pool.ref[block] += 1
"""
COPY = """        pool.k[:, new] = pool.k[:, old]
        pool.v[:, new] = pool.v[:, old]
"""
TABLE = "self.block_table = []"
FORK = "        child = Sequence(self.pool, new_id)\n"

HELD = """
class Sequence:
    # References by retain and release_many, as the module's caches hold them.
    def __init__(self, pool, seq_id):
        self.pool, self.seq_id, self.block_table, self.length = pool, seq_id, [], 0

    def __len__(self):
        return self.length

    def append(self, k, v):
        pool = self.pool
        pool.as_kv(k, v, (pool.n_layers, pool.n_kv_heads, pool.head_dim))
        block, slot = divmod(self.length, pool.block_size)
        if slot == 0:
            self.block_table += pool.allocate_many(1)
        elif pool.ref[self.block_table[block]] != 1:
            [new] = pool.allocate_many(1)
            pool.copy_block(self.block_table[block], new)
            pool.release_many([self.block_table[block]])
            self.block_table[block] = new
        block = self.block_table[block]
        pool.k[:, block, slot], pool.v[:, block, slot] = k, v
        self.length += 1
        return block

    def fork(self, new_id):
        child = type(self)(self.pool, new_id)
        self.pool.retain(self.block_table)
        child.block_table = self.block_table[:]
        child.length = self.length
        return child

    def free(self):
        self.pool.release_many(self.block_table[::-1])
        self.block_table, self.length = [], 0
"""

OWN_EXPERIMENT = """
def prefix_sharing(Sequence, prompt=500, forks=10, answer=3):
    # A pool with just enough blocks; shared blocks counted in pool.ref.
    pool, x = BlockPool(42, 1, 1, 1), np.ones((1, 1, 1))
    base = Sequence(pool, 0)
    for _ in range(prompt):
        base.append(x, x)
    children = [base.fork(i) for i in range(1, forks + 1)]
    for child in children * answer:
        child.append(x, x)
    result = {"shared": np.sum(pool.ref > 1), "used": pool.used}
    result["unshared"] = sum(len(child.block_table) for child in children)
    result["saved_blocks"] = result["unshared"] - result["used"]
    result["saved_mib"] = 2 * result["saved_blocks"]
    base.free()
    result["used_after_base_free"] = pool.used
    for child in reversed(children):
        child.free()
    return result | {"used_after_all_free": pool.used}
"""

CHANGES = {
    "as it stands": (),
    "copy_block": ((COPY, "        pool.copy_block(old, new)\n"),),
    "copies only what is filled": (
        (
            COPY,
            "        n = self.length % pool.block_size\n"
            "        pool.k[:, new, :n] = pool.k[:, old, :n]\n"
            "        pool.v[:, new, :n] = pool.v[:, old, :n]\n",
        ),
    ),
    "counts by an index array": (
        (COUNT, "        self.pool.ref[np.array(self.block_table, int)] += 1\n"),
    ),
    "numpy table": (
        (TABLE, "self.block_table = np.zeros(0, np.int64)"),
        ("list(self.block_table)", "self.block_table.copy()"),
        (
            "self.block_table.append(pool.allocate())",
            "self.block_table = np.append(self.block_table, pool.allocate())",
        ),
    ),
    "array of a table": (
        (TABLE, 'self.block_table = array("i")'),
        ("list(self.block_table)", "self.block_table[:]"),
        ("reversed(self.block_table)", "self.block_table[::-1]"),
        ("import numpy as np\n\n", "from array import array\n\nimport numpy as np\n\n"),
    ),
    "tables are replaced, never changed": (
        (TABLE, "self.block_table = ()"),
        ("list(self.block_table)", "self.block_table"),
        (
            "self.block_table.append(pool.allocate())",
            "self.block_table = (*self.block_table, pool.allocate())",
        ),
        (
            "self.block_table[-1] = new",
            "self.block_table = (*self.block_table[:-1], new)",
        ),
    ),
    "fork without __init__": (
        (
            FORK,
            "        child = object.__new__(type(self))\n"
            "        child.pool, child.seq_id = self.pool, new_id\n",
        ),
    ),
    "the old block is let go without release": (
        ("        pool.release(old)\n", "        pool.ref[old] -= 1\n"),
    ),
    "forks of forks in the experiment": (
        (
            '[base.fork(f"req{i}") for i in range(forks)]',
            "[base.fork(0)]\n    while len(requests) < forks:\n"
            "        requests.append(requests[-1].fork(len(requests)))",
        ),
    ),
    "releases the head first": (("reversed(self.block_table)", "self.block_table"),),
}
TEXTS = {
    "references held for tables": HELD,
    "the module's own": "\nfrom paged_kv import Sequence\n",
    "another experiment": OWN_EXPERIMENT,
}


def solutions(right):
    """Return the texts of all different solutions by name."""
    found = {}
    for name, changes in CHANGES.items():
        source = right
        for piece, other in changes:
            assert piece in source, (name, piece)
            source = source.replace(piece, other)
        found[name] = source
    return found | {name: f"{right}\n{text}" for name, text in TEXTS.items()}
