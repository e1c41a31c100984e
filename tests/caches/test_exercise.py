"""The check of exercise 09.4: each mistake has its own diagnosis, right code passes."""

import re
from pathlib import Path

import pytest

from paged_kv.checks import CheckFailed, check, hint
from paged_kv.messages import use_language
from tests.checks.student import run_cell

MASTER = Path(__file__).parents[2] / "course/exercises/09_4_prefix_cache.py"
NAMES = ("block_keys", "PrefixIndex")


def solution():
    """Return the solution as the master has it."""
    text = MASTER.read_text(encoding="utf-8")
    cells = re.findall(r'# %% key="(?:keys|index)"[^\n]*\n(.*?)(?=\n# %%)', text, re.S)
    return "\n".join(cells)


SOURCE = solution()
KEY = "key = hash_fn((key, tuple(tokens[end - block_size : end])))"
RANGE = "range(block_size, len(tokens) + 1, block_size)"
KEEP = "self.known[key] = (block_table[i], beginning)"
TAKE = "if beginning != tuple(tokens[: (i + 1) * self.block_size]):"
FORGET = SOURCE[
    SOURCE.index("        self.known = {\n") : SOURCE.rindex("        ### END")
]
BODY = SOURCE[SOURCE.index("    def __init__") :]


def checked(source, **options):
    names = run_cell(source)
    return check("09.4", *(names[name] for name in NAMES), **options)


BY_PREFIX = """
    # No hash at all: the beginning itself is the key.
    def __init__(self, block_size=16, hash_fn=hash):
        self.size, self.blocks = block_size, {}

    def _beginnings(self, tokens):
        for end in range(self.size, len(tokens) + 1, self.size):
            yield tuple(tokens[:end])

    def publish(self, tokens, block_table):
        self.blocks.update(zip(self._beginnings(tokens), block_table))

    def match(self, tokens):
        found = []
        for beginning in self._beginnings(tokens[:-1]):
            if beginning not in self.blocks:
                return found
            found.append(self.blocks[beginning])
        return found

    def forget(self, block):
        for beginning in [p for p, b in self.blocks.items() if b == block]:
            del self.blocks[beginning]
"""
TRIE = """
    # Nodes that know their children by the tokens of one block.
    def __init__(self, block_size=16, hash_fn=hash):
        self.size, self.root, self.nodes = block_size, {}, {}

    def _pieces(self, tokens):
        n = len(tokens) // self.size * self.size
        return [tuple(tokens[i : i + self.size]) for i in range(0, n, self.size)]

    def publish(self, tokens, block_table):
        children = self.root
        for piece, block in zip(self._pieces(tokens), block_table):
            node = children.setdefault(piece, {"block": None, "children": {}})
            node["block"] = block
            self.nodes.setdefault(block, []).append(node)
            children = node["children"]

    def match(self, tokens):
        found, children = [], self.root
        for piece in self._pieces(tokens[:-1]):
            node = children.get(piece)
            if node is None or node["block"] is None:
                break
            found.append(node["block"])
            children = node["children"]
        return tuple(found)

    def forget(self, block):
        for node in self.nodes.pop(block, ()):
            if node["block"] == block:
                node["block"] = None
"""
FIRST_STAYS = SOURCE.replace(
    KEEP, "self.known.setdefault(key, (block_table[i], beginning))"
)
OTHER_KEYS = """def block_keys(tokens, block_size, hash_fn):
    n = len(tokens) // block_size
    keys = [b"start"]
    for i in range(n):
        keys += [hash_fn((tuple(tokens[i * block_size :][:block_size]), keys[-1]))]
    return tuple(keys[1:])


"""
WHOLE_PREFIX = """def block_keys(tokens, block_size, hash_fn):
    ends = range(block_size, len(tokens) + 1, block_size)
    return [hash_fn(tuple(tokens[:end])) for end in ends]


"""


@pytest.mark.parametrize(
    "source",
    [
        SOURCE,
        SOURCE.replace(BODY, BY_PREFIX),
        SOURCE.replace(BODY, TRIE),
        FIRST_STAYS,
        OTHER_KEYS + SOURCE[SOURCE.index("class PrefixIndex") :],
        WHOLE_PREFIX + SOURCE[SOURCE.index("class PrefixIndex") :],
    ],
    ids=["ours", "by prefix", "trie", "first stays", "other keys", "whole prefix"],
)
def test_any_right_design_passes(source):
    report = checked(source, strict=True)
    assert report.passed, repr(report)


MISTAKES = {
    # The keys.
    "nothing returned": (
        "keys-returns-none",
        "add `return`",
        "    return keys\n",
        "",
    ),
    "a generator": (
        "keys-not-a-list",
        "list of keys",
        "    return keys\n",
        "    return (key for key in keys)\n",
    ),
    "key for the partial block": (
        "key-for-partial-block",
        "still going to change",
        RANGE,
        "range(block_size, len(tokens) + block_size, block_size)",
    ),
    "last full block without a key": (
        "last-full-block-without-key",
        "in `match`, not here",
        RANGE,
        "range(block_size, len(tokens), block_size)",
    ),
    "key for each token": (
        "wrong-number-of-keys",
        "one key for each full block",
        RANGE,
        "range(1, len(tokens) + 1)",
    ),
    "id of a list": (
        "keys-not-repeatable",
        "nothing could ever be found",
        KEY,
        "key = hash_fn((key, id(tokens), end))",
    ),
    "only the first token": (
        "key-misses-tokens",
        "all tokens",
        KEY,
        "key = hash_fn((key, tokens[end - block_size]))",
    ),
    "sum of the tokens": (
        "key-ignores-order",
        "another order",
        KEY,
        "key = hash_fn((key, sum(tokens[end - block_size : end])))",
    ),
    "no chain": (
        "key-ignores-what-precedes",
        "the key of the block before",
        KEY,
        "key = hash_fn(tuple(tokens[end - block_size : end]))",
    ),
    "position in place of the chain": (
        "key-ignores-what-precedes",
        "the key of the block before",
        KEY,
        "key = hash_fn((end, tuple(tokens[end - block_size : end])))",
    ),
    "all tokens in each key": (
        "key-depends-on-what-follows",
        "not on what follows",
        KEY,
        "key = hash_fn((key, end, tuple(tokens)))",
    ),
    "another hash": (
        "hash-fn-ignored",
        "that is passed in",
        KEY,
        KEY.replace("hash_fn", "hash"),
    ),
    # The lookup.
    "match returns nothing": (
        "match-returns-none",
        "also of an empty list",
        "        return blocks\n",
        "",
    ),
    "match returns a pair": (
        "match-not-blocks",
        "no number of tokens",
        "        return blocks\n",
        "        return blocks, len(blocks) * self.block_size\n",
    ),
    "publish keeps nothing": ("nothing-found", "not found", KEEP, "pass"),
    "logical blocks": (
        "logical-for-physical",
        "block_table[i]",
        KEEP,
        KEEP.replace("block_table[i]", "i"),
    ),
    "reversed": (
        "blocks-reversed",
        "wrong order",
        "        return blocks\n",
        "        return blocks[::-1]\n",
    ),
    "whole prompt found": (
        "last-token-not-left",
        "at most L − 1",
        "tokens[:-1]",
        "tokens",
    ),
    "a whole block left": (
        "one-block-too-few",
        "must be left",
        "block_keys(tokens[:-1],",
        "block_keys(tokens[: -self.block_size],",
    ),
    "one prompt only": (
        "second-prompt-lost",
        "both must be found",
        "        keys = block_keys(tokens, self.block_size, self.hash_fn)\n        for",
        "        self.known = {}\n"
        "        keys = block_keys(tokens, self.block_size, self.hash_fn)\n        for",
    ),
    "match removes what it found": (
        "match-changes-index",
        "only looks",
        "self.known.get(key, (None, None))",
        "self.known.pop(key, (None, None))",
    ),
    "match shortens the prompt": (
        "input-modified",
        "Work on a copy",
        "        blocks = []\n        keys = block_keys(tokens[:-1],",
        "        blocks = []\n        last = tokens.pop() if tokens else None\n"
        "        keys = block_keys(tokens,",
    ),
    "the caller's list is kept": (
        "keeps-callers-list",
        "Keep copies",
        KEEP,
        "self.known[key] = (block_table[i], tokens)",
        TAKE,
        "if beginning is None or tuple(beginning[: (i + 1) * self.block_size]) != "
        "tuple(tokens[: (i + 1) * self.block_size]):",
    ),
    "forget does nothing": (
        "forgotten-block-found",
        "must remove it",
        FORGET,
        "        self.last_forgotten = block\n",
    ),
    "forget of a stranger fails": (
        "forget-unknown-fails",
        "nothing to do",
        FORGET,
        "        [key] = [k for k, entry in self.known.items() if entry[0] == block]\n"
        "        del self.known[key]\n",
    ),
    "matching goes on": (
        "goes-on-after-miss",
        "stop at the first",
        "                break\n",
        "                continue\n",
    ),
    "forget only marks": (
        "stale-entry",
        "its old key was not removed",
        "        self.known = {}  # key → (block, beginning)\n",
        "        self.known, self.gone = {}, set()\n",
        KEEP,
        KEEP + "\n            self.gone.discard(block_table[i])",
        TAKE,
        "if block in self.gone or "
        "beginning != tuple(tokens[: (i + 1) * self.block_size]):",
        FORGET,
        "        self.gone.add(block)\n",
    ),
    "forgotten for good": (
        "reused-block-not-found",
        "published again",
        "        self.known = {}  # key → (block, beginning)\n",
        "        self.known, self.gone = {}, set()\n",
        TAKE,
        "if block in self.gone or "
        "beginning != tuple(tokens[: (i + 1) * self.block_size]):",
        FORGET,
        "        self.gone.add(block)\n",
    ),
    "tokens are not compared": (
        "trusts-the-hash",
        "compare them",
        TAKE,
        "if beginning is None:",
    ),
    "one block is compared": (
        "compares-one-block-only",
        "the whole beginning",
        TAKE,
        "if beginning is None or beginning[-self.block_size :] != "
        "tuple(tokens[: (i + 1) * self.block_size])[-self.block_size :]:",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_its_own_diagnosis(name):
    code, says, *changes = MISTAKES[name]
    source = SOURCE
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in source, old
        source = source.replace(old, new)
    report = checked(source)
    assert (report.state, report.code) == ("wrong", code), repr(report)
    assert says in report.message, report.message
    assert 'hint("09.4", 1)' in repr(report)
    assert not re.search(r"0x[0-9a-f]{4}|/\w+/\w+", repr(report))
    with pytest.raises(CheckFailed, match=code):
        checked(source, strict=True)

    use_language("ru")
    russian = checked(source)
    assert russian.code == code
    assert re.search("[а-я]", russian.message), russian.message


def test_untouched_exercise_is_not_started():
    stub = re.sub(
        r"( *)### BEGIN SOLUTION\n.*?\n *### END SOLUTION\n", "", SOURCE, flags=re.S
    )
    report = checked(stub.replace("# STUB: ", ""))
    assert report.state == "not started"


@pytest.mark.parametrize("lang", ["ru", "en"])
def test_hints(lang):
    use_language(lang)
    texts = [repr(hint("09.4", level)) for level in (1, 2, 3)]
    assert len(set(texts)) == 3
    for text in texts:
        assert bool(re.search("[а-я]", text)) == (lang == "ru")
