"""Exercise 09.4: the keys of a hash chain, and the lookup along it."""

from __future__ import annotations

from paged_kv.checks.cases.prefix_keys import KEY_CASES
from paged_kv.checks.cases.prefix_lookup import LOOKUP_CASES
from paged_kv.checks.cases.prefix_reuse import REUSE_CASES
from paged_kv.checks.exercise import Asked, Exercise
from paged_kv.messages import tr


def _hints() -> tuple[str, str, str]:
    return (
        tr(
            "For the keys: walk over the prompt block by block and carry the last key "
            "along. What is the key before the first block?\n\n"
            "For the index: what has to be kept beside a block, so that you can be "
            "sure later that it holds this beginning and no other?"
        ),
        tr(
            "`block_keys`: in each step `hash_fn` gets the key before and the tokens "
            "of the block, together in one tuple.\n\n"
            "`publish`: a dict from key to block and to the whole beginning that ends "
            "there. `match`: the keys of all tokens but the last; for each, in order, "
            "look up and compare; the first miss ends it. `forget`: remove what "
            "points at the block."
        ),
        tr(
            "The skeleton, with the middle left for you:\n\n"
            "    key = None\n"
            "    for end in range(block_size, len(tokens) + 1, block_size):\n"
            "        block = tuple(tokens[end - block_size : end])\n"
            "        key = hash_fn(...)\n\n"
            "    # match\n"
            "    for i, key in enumerate(block_keys(tokens[:-1], ...)):\n"
            "        beginning = tuple(tokens[: (i + 1) * self.block_size])\n"
            "        # known, and the same beginning? else break"
        ),
    )


PREFIX_INDEX = Exercise(
    id="09.4",
    title=lambda: tr("lookup along a hash chain"),
    asked=(
        Asked("block_keys"),
        Asked("PrefixIndex", ("__init__", "publish", "match", "forget")),
    ),
    cases=(*KEY_CASES, *LOOKUP_CASES, *REUSE_CASES),
    hints=_hints,
    not_verified=lambda: (
        tr("reference counts and the queue of free blocks: `PrefixCache` has them"),
        tr("LoRA and salt in the keys"),
    ),
    optional=True,
)
