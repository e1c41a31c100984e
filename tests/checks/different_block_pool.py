"""Right solutions of 09.1 that are built in another way; all must pass."""

LIST = "self._free = list(range(num_blocks - 1, -1, -1))"
ALLOCATE = """        if not self._free:
            raise MemoryError("no free block")
        block = self._free.pop()
"""
TABLE = "self.block_table = []"

LINKED = """
class BlockPool:
    # A free list threaded through an array: the next free block of each block.
    def __init__(self, num_blocks, n_layers, n_kv_heads, head_dim, block_size=16,
                 dtype=np.float32):
        self.block_size = block_size
        shape = (n_layers, num_blocks, block_size, n_kv_heads, head_dim)
        self.k = np.zeros(shape, dtype)
        self.v = np.zeros_like(self.k)
        self.ref = np.zeros(num_blocks, np.int64)
        self._next = np.arange(1, num_blocks + 1)
        self._first = 0
        self.used, self.free, self.peak = 0, num_blocks, 0

    def allocate(self):
        if self.free == 0:
            raise OutOfBlocks
        block = self._first
        self._first = int(self._next[block])
        self.used += 1
        self.free -= 1
        self.ref[block] = 1
        if self.used > self.peak:
            self.peak = self.used
        return block

    def release(self, block):
        assert self.ref[block] > 0, "already free"
        self.ref[block] -= 1
        if not self.ref[block]:
            self._next[block] = self._first
            self._first = block
            self.used -= 1
            self.free += 1

    def bytes_per_block(self):
        return 2 * self.k[:, 0].nbytes


class OutOfBlocks(Exception):
    pass
"""

NODES = """
@dataclass
class Block:
    id: int
    older: "Block | None" = None


class BlockPool:
    # Objects in a chain; counts in a list; ids counted from the end.
    def __init__(self, num_blocks, n_layers, n_kv_heads, head_dim, block_size=16,
                 dtype=np.float32):
        self.block_size = block_size
        self.k, self.v = np.empty(
            (2, n_layers, num_blocks, block_size, n_kv_heads, head_dim), dtype)
        self.ref = [0] * num_blocks
        self._top = None
        for i in range(num_blocks):
            self._top = Block(i, self._top)
        self.free = num_blocks
        self.peak = 0

    used = property(lambda self: len(self.ref) - self.free)

    def allocate(self):
        if self._top is None:
            raise MemoryError
        block, self._top = self._top, self._top.older
        self.free -= 1
        self.peak = max(self.peak, self.used)
        self.ref[block.id] = 1
        return block.id

    def release(self, block):
        if not self.ref[block]:
            raise RuntimeError("double free")
        self.ref[block] -= 1
        if self.ref[block] == 0:
            self._top = Block(block, self._top)
            self.free += 1

    def bytes_per_block(self):
        n_layers, _, *rest = self.k.shape
        return 2 * n_layers * int(np.prod(rest)) * self.k.itemsize
"""

FREED = """
@dataclass
class Sequence:
    # Use after free is refused; the table is a property, the length is counted.
    pool: object
    seq_id: object
    _blocks: list = field(default_factory=list)
    _tokens: int = 0
    _alive: bool = True

    @property
    def block_table(self):
        if not self._alive:
            raise RuntimeError("freed")
        return tuple(self._blocks)

    @property
    def length(self):
        if not self._alive:
            raise RuntimeError("freed")
        return self._tokens

    def __len__(self):
        return self.length

    def append(self, k, v):
        pool, t = self.pool, self.length
        want = (pool.k.shape[0],) + pool.k.shape[3:]
        for x in (k, v):
            if np.shape(x) != want:
                raise ValueError(np.shape(x))
        block, slot = divmod(t, pool.block_size)
        if block == len(self._blocks):
            self._blocks.append(pool.allocate())
        block = self._blocks[block]
        for layer in range(want[0]):
            pool.k[layer][block][slot] = k[layer]
            pool.v[layer][block][slot] = v[layer]
        self._tokens += 1
        return np.int64(block)

    def free(self):
        if not self._alive:
            raise RuntimeError("freed")
        while self._blocks:
            self.pool.release(self._blocks.pop())
        self._alive = False
"""

IMPORTS = (
    "import numpy as np\n",
    "import heapq\nfrom array import array\nfrom collections import deque\n"
    "from dataclasses import dataclass, field\n\nimport numpy as np\n",
)

CHANGES = {
    "as it stands": (),
    "FIFO": (
        (LIST, "self._free = deque(range(num_blocks))"),
        ("self._free.pop()", "self._free.popleft()"),
    ),
    "heap, smallest id first": (
        (LIST, "self._free = list(range(num_blocks))"),
        ("self._free.pop()", "heapq.heappop(self._free)"),
        ("self._free.append(block)", "heapq.heappush(self._free, int(block))"),
    ),
    "set": (
        (LIST, "self._free = set(range(num_blocks))"),
        ("self._free.append(block)", "self._free.add(block)"),
    ),
    "largest id first": ((LIST, "self._free = list(range(num_blocks))"),),
    "numpy stack": (
        (
            LIST,
            "self._ids = np.arange(num_blocks)[::-1].copy()\n"
            "        self._n = num_blocks",
        ),
        ("if not self._free:", "if self._n == 0:"),
        ("self._free.pop()", "self._ids[self._n - 1]\n        self._n -= 1"),
        (
            "self._free.append(block)",
            "self._ids[self._n] = block\n            self._n += 1",
        ),
        ("len(self._free)", "self._n"),
    ),
    "ids made when they are first needed": (
        (LIST, "self._free, self._made = [], 0"),
        ("if not self._free:", "if self.free == 0:"),
        (
            "block = self._free.pop()",
            "if self._free:\n            block = self._free.pop()\n"
            "        else:\n            block = self._made\n"
            "            self._made += 1",
        ),
        ("return len(self._free)", "return self.num_blocks - self.used"),
        (
            "return self.num_blocks - len(self._free)",
            "return self._made - len(self._free)",
        ),
    ),
    "counts in a list": (
        ("self.ref = np.zeros(num_blocks, np.int32)", "self.ref = [0] * num_blocks"),
    ),
    "array of a table": (
        (TABLE, 'self.block_table = array("i")'),
        (
            "        for block in reversed(self.block_table):",
            "        for block in self.block_table[::-1]:",
        ),
    ),
    "numpy table": (
        (TABLE, "self.block_table = np.zeros(0, np.int32)"),
        (
            "self.block_table.append(pool.allocate())",
            "self.block_table = np.append(self.block_table, pool.allocate())",
        ),
    ),
    "dict in the order of release": (
        (LIST, "self._free = dict.fromkeys(range(num_blocks))"),
        ("self._free.pop()", "self._free.popitem()[0]"),
        ("self._free.append(block)", "self._free[block] = None"),
    ),
    "k and v are views of one array": (
        (
            "        self.k = np.empty(shape, dtype)\n"
            "        self.v = np.empty(shape, dtype)\n",
            "        self.k, self.v = np.empty((2, *shape), dtype)\n",
        ),
    ),
    "a block's layers are neighbours in memory": tuple(
        (
            f"self.{name} = np.empty(shape, dtype)",
            f"self.{name} = np.empty((num_blocks, n_layers, *shape[2:]), dtype)"
            ".swapaxes(0, 1)",
        )
        for name in "kv"
    ),
    "the length follows from the last block": (
        (
            "        self.length = 0\n\n    def __len__(self):\n"
            "        return self.length\n",
            "        self._filled = 0\n\n    def __len__(self):\n"
            "        full = max(len(self.block_table) - 1, 0)\n"
            "        return full * self.pool.block_size + self._filled\n\n"
            "    length = property(__len__)\n",
        ),
        ("slot = self.length % pool", "slot = self._filled % pool"),
        ("        self.length += 1\n", "        self._filled = slot + 1\n"),
        ("        self.length = 0\n", "        self._filled = 0\n"),
    ),
    "the table is made of objects": (
        (
            "class Sequence:\n",
            "@dataclass\nclass Entry:\n    id: int\n\n\nclass Sequence:\n",
        ),
        (
            "        self.block_table = []\n        self.length = 0\n\n    def __len__",
            "        self._entries = []\n        self.length = 0\n\n"
            "    block_table = property(lambda self: [e.id for e in self._entries])\n\n"
            "    def __len__",
        ),
        (
            "self.block_table.append(pool.allocate())",
            "self._entries.append(Entry(pool.allocate()))",
        ),
        ("        self.block_table = []\n", "        self._entries = []\n"),
    ),
    "slots in place of a dict": (
        (
            "class Sequence:\n",
            "class Sequence:\n"
            '    __slots__ = ("pool", "seq_id", "block_table", "length")\n\n',
        ),
    ),
    "one view per layer and slot": (
        (
            "        pool.k[:, block, slot] = k\n        pool.v[:, block, slot] = v\n",
            "        for store, x in ((pool.k, k), (pool.v, v)):\n"
            "            rows = store.reshape(len(store), -1, *store.shape[3:])\n"
            "            rows[:, block * pool.block_size + slot] = x\n",
        ),
    ),
}
CLASSES = {
    "linked through an array": LINKED,
    "linked objects": NODES,
    "a sequence that refuses use after free": FREED,
}


def solutions(right):
    """Return the texts of all different solutions by name."""
    old, new = IMPORTS
    found = {}
    for name, changes in CHANGES.items():
        source = right.replace(old, new)
        for piece, other in changes:
            assert piece in source, (name, piece)
            source = source.replace(piece, other)
        found[name] = source
    for name, text in CLASSES.items():
        found[name] = right.replace(old, new) + "\n" + text
    return found
