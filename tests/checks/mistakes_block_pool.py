"""Mistakes of students in exercise 09.1, each with the diagnosis it must get."""

from tests.checks.student import mistake

TAKE = """        if slot == 0:
            self.block_table.append(pool.allocate())
"""
WRITE = """        pool.k[:, block, slot] = k
        pool.v[:, block, slot] = v
"""
SHAPE = """        if k.shape != shape or v.shape != shape:
            raise ValueError(f"expected {shape}, got {k.shape} and {v.shape}")
"""
FREE = """        for block in reversed(self.block_table):
            self.pool.release(block)
        self.block_table = []
        self.length = 0
"""
ALLOCATE = """        if not self._free:
            raise MemoryError("no free block")
        block = self._free.pop()
"""
DOUBLE = """        if self.ref[block] == 0:
            raise ValueError(f"block {block} is already free")
"""
GIVE_BACK = """        if self.ref[block] == 0:
            self._free.append(block)
"""
LIST = "self._free = list(range(num_blocks - 1, -1, -1))"
INIT_SEQUENCE = (
    "        self.block_table = []\n        self.length = 0\n\n    def __len__"
)

MISTAKES = [
    # The pool: storage.
    mistake(
        "heads and slots swapped in the shape",
        "storage-wrong-shape",
        "n_layers, num_blocks, block_size",
        "num_blocks, block_size, n_kv_heads, head_dim)\n",
        "num_blocks, n_kv_heads, block_size, head_dim)\n",
    ),
    mistake(
        "the storage is a list of blocks",
        "storage-not-array",
        "one numpy array",
        "self.k = np.empty(shape, dtype)",
        "self.k = [np.empty(shape[2:], dtype) for _ in range(num_blocks)]",
    ),
    mistake(
        "dtype is not passed on",
        "dtype-ignored",
        "dtype that was asked for",
        "np.empty(shape, dtype)",
        "np.empty(shape)",
    ),
    mistake(
        "k and v are one array",
        "k-and-v-share-memory",
        "V overwrites K",
        "self.v = np.empty(shape, dtype)",
        "self.v = self.k",
    ),
    mistake(
        "bytes of K only",
        "bytes-per-block-wrong",
        "factor 2",
        "(self.k.nbytes + self.v.nbytes) // self.num_blocks",
        "self.k.nbytes // self.num_blocks",
    ),
    # The pool: books.
    mistake(
        "counts in the body of the class",
        "pool-state-shared",
        "one object for all pools",
        "class BlockPool:\n",
        "class BlockPool:\n    ref = np.zeros(64, np.int32)\n    _free = []\n\n",
        "        self.ref = np.zeros(num_blocks, np.int32)\n",
        "        if len(self.ref) != num_blocks:\n"
        "            type(self).ref = np.zeros(num_blocks, np.int32)\n"
        "            type(self)._free = list(range(num_blocks - 1, -1, -1))\n",
        f"        {LIST}\n",
        "",
    ),
    mistake(
        "used counts the free blocks",
        "pool-not-empty",
        "must be empty",
        "return self.num_blocks - len(self._free)",
        "return len(self._free)",
    ),
    mistake(
        "used without @property",
        "method-in-place-of-value",
        "@property",
        "    @property\n    def used(self):",
        "    def used(self):",
        "max(self.peak, self.used)",
        "max(self.peak, self.used())",
    ),
    mistake(
        "a count is never set",
        "allocate-does-not-count",
        "its count is 1",
        "        self.ref[block] = 1\n",
        "",
    ),
    mistake(
        "allocate forgets to return",
        "allocate-returns-none",
        "return the id",
        "        return block\n\n    def release",
        "\n    def release",
    ),
    mistake(
        "ids from 1",
        "block-id-outside-pool",
        "ids 0 to 5",
        LIST,
        "self._free = list(range(num_blocks, 0, -1))",
        "self.ref = np.zeros(num_blocks, np.int32)",
        "self.ref = np.zeros(num_blocks + 1, np.int32)[:num_blocks + 1]",
        "        self.peak = 0\n",
        "        self.peak = 0\n        self.ref = self.ref[:num_blocks]\n"
        "        self._all = np.zeros(num_blocks + 1, np.int32)\n",
        "        self.ref[block] = 1\n",
        "        self._all[block] = 1\n",
    ),
    mistake(
        "looks at the free list and takes nothing off",
        "block-handed-out-twice",
        "already in use",
        "self._free.pop()",
        "self._free[-1]",
    ),
    mistake(
        "peak counts allocations",
        "peak-wrong",
        "peak",
        "self.peak = max(self.peak, self.used)",
        "self.peak += 2",
    ),
    mistake(
        "an empty pool returns None",
        "exhaustion-returns-none",
        "returned None",
        'raise MemoryError("no free block")',
        "return None",
    ),
    mistake(
        "an empty pool gives the last block again",
        "exhaustion-hands-out-live-block",
        "The pool is empty",
        ALLOCATE,
        "        block = self._free.pop() if self._free else self.num_blocks - 1\n",
    ),
    mistake(
        "an empty pool fails by accident",
        "exhaustion-wrong-exception",
        "OutOfBlocks",
        ALLOCATE,
        "        block = self._free.pop()\n",
    ),
    mistake(
        "counts before it looks",
        "failed-allocate-changes-pool",
        "before anything is counted",
        ALLOCATE,
        "        self._used += 1\n" + ALLOCATE,
        "return self.num_blocks - len(self._free)",
        "return self._used",
        "        self.peak = 0\n",
        "        self.peak = self._used = 0\n",
        GIVE_BACK,
        "        if self.ref[block] == 0:\n"
        "            self._used -= 1\n            self._free.append(block)\n",
    ),
    mistake(
        "release does not lower the count",
        "release-does-not-decrement",
        "from 1 to 0",
        "        self.ref[block] -= 1\n",
        "",
    ),
    mistake(
        "a released block never returns",
        "release-does-not-return",
        "did not return to the pool",
        GIVE_BACK,
        "",
    ),
    mistake(
        "a released block is counted but not listed",
        "released-block-lost",
        "free list",
        GIVE_BACK,
        "",
        "return self.num_blocks - len(self._free)",
        "return int((self.ref > 0).sum())",
        "return len(self._free)",
        "return int((self.ref == 0).sum())",
    ),
    mistake(
        "release returns the block at any count",
        "returned-while-referenced",
        "two holders",
        GIVE_BACK,
        "        self._free.append(block)\n",
    ),
    mistake(
        "release sets the count to 0",
        "returned-while-referenced",
        "two holders",
        "self.ref[block] -= 1",
        "self.ref[block] = 0",
    ),
    mistake(
        "ref is a copy",
        "ref-not-writable",
        "copy",
        "self.ref",
        "self._counts",
        "    @property\n    def free(self):",
        "    @property\n    def ref(self):\n        return self._counts.copy()\n\n"
        "    @property\n    def free(self):",
    ),
    mistake(
        "double release enters the free list twice",
        "double-release-corrupts",
        "twice",
        DOUBLE,
        "",
        "self.ref[block] -= 1",
        "self.ref[block] = max(self.ref[block] - 1, 0)",
    ),
    mistake(
        "double release is ignored",
        "double-release-silent",
        "DoubleFree",
        'raise ValueError(f"block {block} is already free")',
        "return",
    ),
    mistake(
        "allocate searches ref",
        "allocation-scans-pool",
        "looks through all blocks",
        ALLOCATE,
        "        free = np.flatnonzero(self.ref == 0)\n"
        '        if not len(free):\n            raise MemoryError("no free block")\n'
        "        block = int(free[0])\n        self._free.pop()\n",
    ),
    mistake(
        "allocate searches with a loop",
        "allocation-scans-pool",
        "looks through all blocks",
        "        block = self._free.pop()\n",
        "        self._free.pop()\n        block = 0\n"
        "        while self.ref[block]:\n            block += 1\n",
    ),
    mistake(
        "the smallest of a set",
        "allocation-scans-pool",
        "min()",
        LIST,
        "self._free = set(range(num_blocks))",
        "block = self._free.pop()",
        "block = min(self._free)\n        self._free.remove(block)",
        "self._free.append(block)",
        "self._free.add(block)",
    ),
    mistake(
        "pop(0) of a list",
        "allocation-scans-pool",
        "pop(0)",
        "self._free.pop()",
        "self._free.pop(0)",
    ),
    mistake(
        "used counts the whole pool, and allocate asks it",
        "allocation-scans-pool",
        "such as used",
        "return self.num_blocks - len(self._free)",
        "return int((self.ref > 0).sum())",
    ),
    # The sequence: state and growth.
    mistake(
        "block_table in the body of the class",
        "sequence-state-shared",
        "one object for all sequences",
        "class Sequence:\n",
        "class Sequence:\n    block_table = []\n\n",
        INIT_SEQUENCE,
        "        self.length = 0\n\n    def __len__",
        "        self.block_table = []\n        self.length = 0\n",
        "        self.block_table.clear()\n        self.length = 0\n",
    ),
    mistake(
        "block_table as a default argument",
        "sequence-state-shared",
        "default argument",
        "def __init__(self, pool, seq_id):",
        "def __init__(self, pool, seq_id, table=[]):",
        INIT_SEQUENCE,
        INIT_SEQUENCE.replace("= []", "= table"),
    ),
    mistake(
        "a first block is taken at once",
        "sequence-not-empty",
        "first append takes one",
        INIT_SEQUENCE,
        INIT_SEQUENCE.replace("= []", "= [pool.allocate()]"),
        "if slot == 0:",
        "if slot == 0 and self.length:",
    ),
    mistake(
        "length is never counted",
        "length-differs",
        "number of tokens",
        "        self.length += 1\n",
        "",
    ),
    mistake(
        "a block for every token",
        "block-per-token",
        "for every token",
        TAKE,
        "        self.block_table.append(pool.allocate())\n",
    ),
    mistake(
        "a block at len % 16 == 1",
        "block-at-remainder-one",
        "== 1",
        "if slot == 0:",
        "if slot == 1 or not self.block_table:",
    ),
    mistake(
        "a block at len % 16 == 1 and none for the first token",
        "no-first-block",
        "remainder 0",
        "if slot == 0:",
        "if slot == 1:",
        state="raised",
    ),
    mistake(
        "the next block as soon as the last is full",
        "block-taken-early",
        "as soon as",
        "if slot == 0:",
        "if not self.block_table:",
        "        self.length += 1\n",
        "        self.length += 1\n"
        "        if self.length % pool.block_size == 0:\n"
        "            self.block_table.append(pool.allocate())\n",
    ),
    mistake(
        "one block for all tokens",
        "single-block",
        "Only the first token",
        "if slot == 0:",
        "if not self.block_table:",
    ),
    mistake(
        "16 in place of block_size",
        "block-size-hard-coded",
        "pool.block_size",
        "if slot == 0:",
        "if self.length % 16 == 0:",
    ),
    mistake(
        "two blocks at a time",
        "table-wrong-length",
        "ceil(L / block_size)",
        "if slot == 0:",
        "if self.length % (2 * pool.block_size) == 0:\n"
        "            self.block_table.append(pool.allocate())",
        "block = self.block_table[-1]",
        "block = self.block_table[self.length // pool.block_size]",
    ),
    # The sequence: ids.
    mistake(
        "the table holds logical numbers",
        "table-holds-logical-blocks",
        "logical number",
        "self.block_table.append(pool.allocate())",
        "pool.allocate()\n            self.block_table.append(len(self.block_table))",
    ),
    mistake(
        "append returns the logical number",
        "append-returns-logical-block",
        "logical number",
        "        return block\n\n    def free",
        "        return len(self.block_table) - 1\n\n    def free",
    ),
    mistake(
        "append returns nothing",
        "append-returns-none",
        "physical block",
        "        return block\n\n    def free",
        "\n    def free",
    ),
    mistake(
        "append returns the slot",
        "append-returns-wrong-value",
        "physical block",
        "        return block\n\n    def free",
        "        return slot + 100\n\n    def free",
    ),
    # The sequence: writing.
    mistake(
        "K and V swapped",
        "k-and-v-swapped",
        "pool.v",
        "pool.k[:, block, slot] = k\n        pool.v[:, block, slot] = v",
        "pool.k[:, block, slot] = v\n        pool.v[:, block, slot] = k",
    ),
    mistake(
        "K written twice",
        "v-is-k",
        "V is lost",
        "slot] = v",
        "slot] = k",
    ),
    mistake("V not written", "v-not-written", "V was not", WRITE, WRITE[:35]),
    mistake("K not written", "k-not-written", "K was not", WRITE, WRITE[35:]),
    mistake(
        "only layer 0 written",
        "only-layer-0-written",
        "Only layer 0",
        "pool.k[:, block, slot] = k\n        pool.v[:, block, slot] = v",
        "pool.k[0, block, slot] = k[0]\n        pool.v[0, block, slot] = v[0]",
    ),
    mistake(
        "layer 0 written to all layers",
        "layer-0-everywhere",
        "every layer",
        "slot] = k",
        "slot] = k[0]",
        "slot] = v",
        "slot] = v[0]",
    ),
    mistake(
        "one slot too far",
        "wrong-slot",
        "modulo the block size",
        WRITE,
        WRITE.replace("slot]", "(slot + 1) % pool.block_size]"),
    ),
    mistake(
        "every token in slot 0",
        "wrong-slot",
        "modulo the block size",
        WRITE,
        WRITE.replace("slot]", "0]"),
    ),
    mistake(
        "the whole block is overwritten",
        "whole-block-written",
        "every slot",
        WRITE,
        "        pool.k[:, block] = k[:, None]\n"
        "        pool.v[:, block] = v[:, None]\n",
    ),
    mistake(
        "written to the logical block",
        "logical-block-written",
        "logical number",
        WRITE,
        WRITE.replace("block,", "self.length // pool.block_size,"),
    ),
    mistake(
        "written to the first block of the table",
        "wrong-block",
        "belongs to",
        WRITE,
        WRITE.replace("block,", "self.block_table[0],"),
    ),
    mistake(
        "written nowhere",
        "token-lost",
        "nowhere",
        WRITE,
        "        pool.k.copy()[:, block, slot] = k\n",
    ),
    mistake(
        "the block is cleared when it is full",
        "token-overwritten",
        "earlier",
        WRITE,
        "        if slot == pool.block_size - 1:\n"
        "            pool.k[:, block] = pool.v[:, block] = 0\n" + WRITE,
    ),
    mistake(
        "the input is scaled in place",
        "input-modified",
        "copy",
        WRITE,
        "        k *= 1.0001\n" + WRITE,
    ),
    # The sequence: free and failures.
    mistake(
        "free releases nothing",
        "blocks-not-returned",
        "did not give the blocks back",
        FREE,
        FREE[FREE.index("        self.block") :],
    ),
    mistake(
        "free forgets the last block",
        "last-block-not-returned",
        "but the last",
        "reversed(self.block_table)",
        "self.block_table[:-1]",
    ),
    mistake(
        "free forgets the first block",
        "first-block-not-returned",
        "but the first",
        "reversed(self.block_table)",
        "self.block_table[1:]",
    ),
    mistake(
        "free removes while it loops",
        "every-other-block-returned",
        "every other",
        FREE,
        "        for block in self.block_table:\n"
        "            self.pool.release(block)\n"
        "            self.block_table.remove(block)\n",
    ),
    mistake(
        "a stale table",
        "stale-table",
        "still lists",
        FREE,
        FREE.replace("        self.block_table = []\n", ""),
    ),
    mistake(
        "a stale length",
        "stale-length",
        "still has a length",
        FREE,
        FREE.replace("        self.length = 0\n", ""),
    ),
    mistake(
        "free goes around the count",
        "free-ignores-count",
        "another holder",
        "            self.pool.release(block)\n",
        "            self.pool.ref[block] = 0\n"
        "            self.pool._free.append(block)\n",
    ),
    mistake(
        "the token is counted before there is a block",
        "failed-append-changes-sequence",
        "Take the block first",
        "        slot = self.length % pool.block_size\n",
        "        slot = self.length % pool.block_size\n        self.length += 1\n",
        WRITE + "        self.length += 1\n",
        WRITE,
    ),
    mistake(
        "a full pool is ignored",
        "append-without-block",
        "did not raise",
        TAKE,
        "        if slot == 0 and not pool.free:\n            return None\n" + TAKE,
    ),
    mistake(
        "the shape is not looked at",
        "wrong-shape-accepted",
        "into every layer",
        "if k.shape != shape or v.shape != shape:",
        "if False:",
    ),
    mistake(
        "the shape is looked at after the block was taken",
        "refused-append-changes-state",
        "Validate first",
        SHAPE,
        "",
        "        block = self.block_table[-1]\n",
        "        if k.shape != shape or v.shape != shape:\n"
        '            raise ValueError("wrong shape")\n'
        "        block = self.block_table[-1]\n",
    ),
]
