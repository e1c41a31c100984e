"""Mistakes of students in exercise 09.3, each with the diagnosis it must get."""

from tests.checks.student import mistake

FORK_TABLE = "        child.block_table = list(self.block_table)\n"
COUNT = """        for block in self.block_table:
            self.pool.ref[block] += 1
"""
TAKE = """        if slot == 0:
            self.block_table.append(pool.allocate())
        elif pool.ref[self.block_table[-1]] > 1:
            self._copy_last_block()
"""
COPY_K = "        pool.k[:, new] = pool.k[:, old]\n"
COPY_V = "        pool.v[:, new] = pool.v[:, old]\n"
REPLACE = "        self.block_table[-1] = new\n"
RELEASE = "        pool.release(old)\n"
FREE = """        for block in reversed(self.block_table):
            self.pool.release(block)
        self.block_table = []
        self.length = 0
"""

MISTAKES = [
    # fork.
    mistake(
        "fork returns nothing",
        "fork-returns-none",
        "new sequence",
        "        return child\n",
        "",
    ),
    mistake(
        "fork returns itself",
        "fork-returns-itself",
        "itself",
        "        return child\n",
        "        return self\n",
    ),
    mistake(
        "fork shares one list",
        "fork-shares-table",
        "they share one table",
        FORK_TABLE,
        "        child.block_table = self.block_table\n",
    ),
    mistake(
        "fork shares one list behind a property",
        "fork-shares-table",
        "they share one table",
        "self.block_table = []\n        self.length = 0\n\n    def __len__(self):",
        "self._table = []\n        self.length = 0\n\n    @property\n"
        "    def block_table(self):\n        return list(self._table)\n\n"
        "    def __len__(self):",
        FORK_TABLE,
        "        child._table = self._table\n",
        "self.block_table.append",
        "self._table.append",
        REPLACE,
        "        self._table[-1] = new\n",
        "self.block_table = []\n        self.length = 0\n\n\ndef",
        "self._table = []\n        self.length = 0\n\n\ndef",
    ),
    mistake(
        "fork copies the blocks",
        "fork-copies-blocks",
        "not the memory",
        FORK_TABLE,
        "        child.block_table = [self.pool.allocate() for _ in self.block_table]\n"
        "        for a, b in zip(child.block_table, self.block_table):\n"
        "            self.pool.copy_block(b, a)\n",
        COUNT,
        "",
    ),
    mistake(
        "fork takes full blocks only",
        "fork-table-differs",
        "same physical blocks",
        FORK_TABLE,
        "        child.block_table = self.block_table[:-1]\n",
    ),
    mistake(
        "fork forgets the length",
        "fork-forgets-length",
        "as many tokens",
        "        child.length = self.length\n",
        "",
    ),
    mistake("fork does not count", "fork-does-not-count", "did not count", COUNT, ""),
    mistake(
        "fork counts the last block only",
        "fork-counts-last-block-only",
        "last block only",
        "for block in self.block_table:\n            self.pool.ref",
        "for block in self.block_table[-1:]:\n            self.pool.ref",
    ),
    mistake(
        "fork counts full blocks only",
        "fork-skips-last-block",
        "did not count the last",
        "for block in self.block_table:\n            self.pool.ref",
        "for block in self.block_table[:-1]:\n            self.pool.ref",
    ),
    mistake(
        "fork counts parent and child",
        "fork-counts-twice",
        "more than there is",
        "self.pool.ref[block] += 1",
        "self.pool.ref[block] += 2",
    ),
    mistake(
        "fork sets the count to 2",
        "fork-of-fork-not-counted",
        "three references",
        "self.pool.ref[block] += 1",
        "self.pool.ref[block] = 2",
    ),
    # Copy-on-write: when.
    mistake(
        "no copy at all",
        "no-copy-on-write",
        "must be copied",
        TAKE,
        TAKE[: TAKE.index("        elif")],
    ),
    mistake(
        "always copies",
        "always-copies",
        "Nobody shares",
        "elif pool.ref[self.block_table[-1]] > 1:",
        "else:",
    ),
    mistake(
        "copies from a count of 1",
        "always-copies",
        "Nobody shares",
        "elif pool.ref[self.block_table[-1]] > 1:",
        "elif pool.ref[self.block_table[-1]] >= 1:",
    ),
    mistake(
        "copies at a boundary too",
        "copies-full-block",
        "fresh block and no copy",
        TAKE,
        "        if self.block_table and pool.ref[self.block_table[-1]] > 1:\n"
        "            self._copy_last_block()\n"
        "        if slot == 0:\n"
        "            self.block_table.append(pool.allocate())\n",
    ),
    mistake(
        "a flag in place of the count",
        "last-holder-copies",
        "only holder",
        "        self.length = 0\n\n    def __len__",
        "        self.length = 0\n        self.shared = False\n\n    def __len__",
        "elif pool.ref[self.block_table[-1]] > 1:",
        "elif self.shared:",
        RELEASE,
        RELEASE + "        self.shared = False\n",
        "        return child\n",
        "        self.shared = child.shared = True\n        return child\n",
    ),
    mistake(
        "only children copy",
        "parent-does-not-copy",
        "Whoever writes first",
        "        self.length = 0\n\n    def __len__",
        "        self.length = 0\n        self.is_child = False\n\n    def __len__",
        "elif pool.ref[self.block_table[-1]] > 1:",
        "elif self.is_child and pool.ref[self.block_table[-1]] > 1:",
        "        return child\n",
        "        child.is_child = True\n        return child\n",
    ),
    mistake(
        "copies only at exactly two holders",
        "third-holder-not-copied",
        "three",
        "> 1:\n            self._copy",
        "== 2:\n            self._copy",
    ),
    # Copy-on-write: what.
    mistake(
        "copies nothing",
        "copies-nothing",
        "earlier tokens are lost",
        COPY_K + COPY_V,
        "",
    ),
    mistake("copies K only", "copies-k-only", "holds both", COPY_V, ""),
    mistake("copies V only", "copies-v-only", "holds both", COPY_K, ""),
    mistake(
        "copies layer 0 only",
        "copies-layer-0-only",
        "all layers",
        COPY_K + COPY_V,
        (COPY_K + COPY_V).replace("[:,", "[0,"),
    ),
    mistake(
        "copies one slot",
        "copies-too-few-slots",
        "Not all tokens",
        COPY_K + COPY_V,
        (COPY_K + COPY_V).replace("new]", "new, :1]").replace("old]", "old, :1]"),
    ),
    mistake(
        "copies from new to old",
        "copied-backwards",
        "wrong direction",
        COPY_K + COPY_V,
        (COPY_K + COPY_V)
        .replace("new", "x")
        .replace("old", "new")
        .replace("x]", "old]"),
    ),
    mistake(
        "writes into the old block",
        "written-to-old-block",
        "written to the old one",
        TAKE + "        block = self.block_table[-1]\n",
        "        block = self.block_table[-1] if self.block_table else None\n"
        + TAKE.replace("append(pool", "append(block := pool"),
    ),
    mistake(
        "copies every block",
        "copies-every-block",
        "stay shared",
        "    def _copy_last_block(self):\n        pool = self.pool\n"
        "        old = self.block_table[-1]\n",
        "    def _copy_last_block(self):\n        for i in range(len(self)):\n"
        "            if i < len(self.block_table):\n"
        "                self._copy_block(i)\n\n"
        "    def _copy_block(self, i):\n        pool = self.pool\n"
        "        old = self.block_table[i]\n",
        REPLACE,
        "        self.block_table[i] = new\n",
    ),
    # Copy-on-write: books.
    mistake(
        "the copy is added to the table",
        "copy-added-to-table",
        "takes the place",
        REPLACE,
        "        self.block_table.append(new)\n",
    ),
    mistake(
        "the copy is not in the table",
        "copy-not-in-table",
        "was not put into the table",
        REPLACE,
        "",
    ),
    mistake(
        "forgets to decrement",
        "copy-forgets-to-decrement",
        "still counted",
        RELEASE,
        "",
    ),
    mistake(
        "decrements twice",
        "copy-releases-twice",
        "not two",
        RELEASE,
        "        pool.ref[old] -= 1\n" + RELEASE,
    ),
    mistake(
        "counts the new block once more",
        "copy-counted-twice",
        "one holder",
        RELEASE,
        RELEASE + "        pool.ref[new] += 1\n",
    ),
    mistake(
        "releases before it allocates",
        "failed-copy-changes-state",
        "Allocate first",
        "        new = pool.allocate()\n",
        "        pool.release(old)\n        new = pool.allocate()\n",
        REPLACE + RELEASE,
        REPLACE,
    ),
    mistake(
        "without a free block it writes anyway",
        "copy-without-block",
        "did not raise",
        "        new = pool.allocate()\n",
        "        if not pool.free:\n            return\n"
        "        new = pool.allocate()\n",
    ),
    # free.
    mistake(
        "free does not release",
        "blocks-not-returned",
        "did not give the blocks back",
        FREE,
        FREE[FREE.index("        self.block") :],
    ),
    mistake(
        "free skips shared blocks",
        "free-does-not-decrement",
        "reference",
        "            self.pool.release(block)\n",
        "            if self.pool.ref[block] == 1:\n"
        "                self.pool.release(block)\n",
    ),
    mistake(
        "free releases until 0",
        "free-ignores-count",
        "another holder",
        "            self.pool.release(block)\n",
        "            while self.pool.ref[block]:\n"
        "                self.pool.release(block)\n",
    ),
    mistake(
        "a stale table",
        "stale-table",
        "still lists",
        FREE,
        FREE.replace("        self.block_table = []\n", ""),
    ),
    mistake(
        "retain and release mixed",
        "retain-then-release",
        "release_many",
        COUNT,
        "        self.pool.retain(self.block_table)\n",
        state="raised",
    ),
    # The experiment.
    mistake(
        "no return",
        "returns-none",
        "add return",
        '    return {\n        "shared"',
        '    numbers = {\n        "shared"',
    ),
    mistake(
        "a tuple",
        "not-a-dict",
        "must return a dict",
        "    return {",
        "    return shared, used, unshared\n    {",
    ),
    mistake(
        "a number is missing",
        "missing-numbers",
        "saved_mib",
        '"saved_mib"',
        '"saved_mb"',
    ),
    mistake(
        "MB in place of MiB",
        "mb-for-mib",
        "2**20",
        "/ 2**20",
        "/ 10**6",
    ),
    mistake(
        "the base counted among the requests",
        "unshared-counts-base",
        "no base",
        "forks * spec.blocks_for(prompt + answer)",
        "forks * spec.blocks_for(prompt + answer) + spec.blocks_for(prompt)",
    ),
    mistake(
        "shared counted before the writes",
        "shared-counts-tail",
        "once the forks wrote",
        "    for request in requests:\n        for _ in",
        "    first, second, *_ = requests\n"
        "    early = len(set(first.block_table) & set(second.block_table))\n"
        "    for request in requests:\n        for _ in",
        "    used = pool.used\n",
        "    used, shared = pool.used, early\n",
    ),
    mistake(
        "used read before base.free()",
        "base-not-freed",
        "too early",
        "    base.free()\n    used_after_base_free = pool.used\n",
        "    used_after_base_free = pool.used\n    base.free()\n",
    ),
    mistake(
        "the forks are not freed",
        "forks-not-freed",
        "After all frees",
        "    for request in requests:\n        request.free()\n",
        "",
    ),
    mistake(
        "nine forks",
        "wrong-used",
        "10 forks",
        "range(forks)",
        "range(forks - 1)",
    ),
    mistake(
        "typed numbers",
        "typed-numbers",
        "stayed the same",
        "    spec = KVCacheSpec",
        "    return dict(shared=31, used=42, unshared=320, saved_blocks=278, "
        "saved_mib=556,\n        used_after_base_free=41, used_after_all_free=0)\n"
        "    spec = KVCacheSpec",
    ),
    mistake(
        "one typed number",
        "typed-numbers",
        "shared",
        '"shared": shared',
        '"shared": 31',
    ),
    # Found by a sceptical reader: a diagnosis must be true, not only a refusal.
    mistake(
        "fork counts every used block",
        "fork-counts-other-blocks",
        "not in the table",
        COUNT,
        "        self.pool.ref[self.pool.ref > 0] += 1\n",
    ),
    mistake(
        "free frees the forks too",
        "table-too-short",
        "another sequence was freed",
        "        self.length = 0\n\n    def __len__",
        "        self.length = 0\n        self.children = []\n\n    def __len__",
        "        return child\n",
        "        self.children.append(child)\n        return child\n",
        "    def free(self):\n",
        "    def free(self):\n        for child in self.children:\n"
        "            child.free()\n",
    ),
    mistake(
        "fork keeps the old id",
        "fork-ignores-id",
        "the parent keeps its own",
        "Sequence(self.pool, new_id)",
        "Sequence(self.pool, self.seq_id)",
    ),
    mistake(
        "fork copies the pool as well",
        "child-in-another-pool",
        "deepcopy",
        "        child = Sequence(self.pool, new_id)\n" + FORK_TABLE,
        "        child = copy.deepcopy(self)\n        child.seq_id = new_id\n",
        "import numpy as np\n",
        "import copy\n\nimport numpy as np\n",
    ),
    mistake(
        "the copy replaces the first block",
        "copy-replaces-wrong-entry",
        "the last one",
        REPLACE,
        "        self.block_table[0] = new\n",
    ),
    mistake(
        "the first block is copied and released",
        "copy-releases-wrong-block",
        "the last one",
        "        old = self.block_table[-1]\n",
        "        old = self.block_table[0]\n",
    ),
    mistake(
        "the copy is released",
        "copy-released-again",
        "not the copy",
        RELEASE,
        "        pool.release(new)\n",
    ),
    mistake(
        "K is copied into V",
        "copies-k-into-v",
        "V is lost",
        COPY_V,
        COPY_V.replace("pool.v[:, old]", "pool.k[:, old]"),
    ),
    mistake(
        "one head is copied",
        "copies-too-few-slots",
        "heads",
        COPY_K,
        "        pool.k[:, new, :, 0] = pool.k[:, old, :, 0]\n",
        COPY_V,
        "        pool.v[:, new, :, 0] = pool.v[:, old, :, 0]\n",
    ),
    mistake(
        "the arguments are not used",
        "arguments-ignored",
        "wrong here",
        "    spec = KVCacheSpec",
        "    prompt, forks, answer = 500, 10, 3\n    spec = KVCacheSpec",
    ),
    mistake(
        "a token too many in each request",
        "arguments-ignored",
        "not one more",
        "range(answer)",
        "range(answer + 1)",
    ),
    mistake(
        "numbers as text",
        "wrong-used",
        "`used`",
        '"used": used,',
        '"used": str(used),',
    ),
    # A second round of invented mistakes, most of which were accepted, blamed on
    # something else or not explained at first.
    mistake(
        "fork allocates to raise the counts",
        "fork-copies-blocks",
        "took blocks from the pool",
        "            self.pool.ref[block] += 1\n",
        "            self.pool.allocate()\n",
    ),
    mistake(
        "fork copies the last block at once",
        "fork-copies-blocks",
        "not the memory",
        "        return child\n",
        "        if len(self) % self.pool.block_size:\n"
        "            child._copy_last_block()\n        return child\n",
    ),
    mistake(
        "fork takes the tokens from the parent",
        "fork-changes-parent",
        "keeps its table",
        "        return child\n",
        "        self.length = 0\n        return child\n",
    ),
    mistake(
        "an empty sequence has no last block",
        "fork-of-empty",
        "without tokens",
        FORK_TABLE,
        FORK_TABLE + "        last = self.block_table[-1]\n",
        state="raised",
    ),
    mistake(
        "the sequence is passed for the pool",
        "pool-forgotten",
        "`Sequence(self, …)`",
        "Sequence(self.pool, new_id)",
        "Sequence(self, new_id)",
        state="raised",
    ),
    mistake(
        "copies only above two holders",
        "no-copy-on-write",
        "above 1",
        "pool.ref[self.block_table[-1]] > 1",
        "pool.ref[self.block_table[-1]] > 2",
    ),
    mistake(
        "asks the count of the first block",
        "last-holder-copies",
        "of the last block",
        "pool.ref[self.block_table[-1]] > 1",
        "pool.ref[self.block_table[0]] > 1",
    ),
    mistake(
        "writes first and copies then",
        "written-before-copy",
        "copy first",
        TAKE,
        TAKE[: TAKE.index("        elif")],
        "        self.length += 1\n        return block",
        "        if slot and pool.ref[block] > 1:\n"
        "            self._copy_last_block()\n"
        "        self.length += 1\n        return self.block_table[-1]",
    ),
    mistake(
        "append returns the block before the copy",
        "append-returns-old-block",
        "the new one",
        TAKE,
        "        before = self.block_table[-1:]\n" + TAKE,
        "        self.length += 1\n        return block",
        "        self.length += 1\n        return before[0] if slot else block",
    ),
    mistake(
        "a view is taken in place of a copy",
        "copies-nothing",
        "was not copied",
        COPY_K + COPY_V,
        "        k, v = pool.k[:, old], pool.v[:, old]\n",
    ),
    mistake(
        "one slot too few is copied",
        "copies-too-few-slots",
        "Not all tokens",
        COPY_K + COPY_V,
        "        n = self.length % pool.block_size - 1\n"
        "        pool.k[:, new, :n] = pool.k[:, old, :n]\n"
        "        pool.v[:, new, :n] = pool.v[:, old, :n]\n",
    ),
    mistake(
        "logical blocks are counted",
        "fork-counts-other-blocks",
        "not in the table",
        COUNT,
        "        self.pool.ref[: len(self.block_table)] += 1\n",
    ),
    mistake(
        "one fork ten times",
        "one-fork-for-all",
        "forks once",
        '[base.fork(f"req{i}") for i in range(forks)]',
        '[base.fork("req")] * forks',
    ),
    mistake(
        "base is freed before the forks",
        "nothing-shared",
        "while it still",
        "    requests = [base",
        "    base.free()\n    requests = [base",
        "    base.free()\n    used_after",
        "    used_after",
    ),
    mistake(
        "bytes of the small pool",
        "bytes-of-another-model",
        "spec.bytes_per_block()",
        "spec.bytes_per_block() / 2**20",
        "pool.bytes_per_block() / 2**20",
    ),
    mistake("KiB in place of MiB", "kib-for-mib", "KiB", "/ 2**20", "/ 2**10"),
    mistake(
        "saved is unshared less shared",
        "wrong-saved-blocks",
        "unshared − used",
        '"saved_blocks": unshared - used',
        '"saved_blocks": unshared - shared',
    ),
    mistake(
        "one request without sharing",
        "wrong-unshared",
        "Each request",
        "forks * spec.blocks_for(prompt + answer)",
        "spec.blocks_for(prompt + answer)",
    ),
    mistake(
        "without sharing, the answers are forgotten",
        "arguments-ignored",
        "wrong here",
        "spec.blocks_for(prompt + answer)",
        "spec.blocks_for(prompt)",
    ),
]
