"""Cases of exercise 09.4: reused blocks, colliding hashes, many prompts."""

from __future__ import annotations

import random

from paged_kv.checks.cases.prefix_keys import lesson_key
from paged_kv.checks.cases.prefix_lookup import (
    INDEX,
    PROMPT,
    PUBLISH,
    expect_match,
    match,
    run,
)
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr


def lesson_queue() -> str:
    """Return the place of freed, found and reused blocks."""
    return tr("09.4, “Ten blocks: hit, touch, evict”")


def forgetting(s: Script) -> None:
    """Check that a reused block is not found, nor anything behind it."""
    s.do(INDEX)
    s.do(PROMPT)
    run(s, PUBLISH)
    s.do("index.forget(9)")
    expect_match(
        s,
        "[*prompt, 1]",
        [6, 2],
        "forgotten-block-found",
        tr(
            "Block 9 was handed out again, and its old tokens are still found in it: "
            "`forget` must remove it from the index."
        ),
    )
    _, error = s.attempt("index.forget(77)", tr("was never published"))
    if error is not None:
        raise Wrong(
            "forget-unknown-fails",
            tr(
                "`forget` is called for every block that is handed out, also for one "
                "that was never published: then there is nothing to do."
            ),
            tr("no exception"),
            type(error).__name__,
        )
    s.do("index.forget(6)", tr("the head of the chain"))
    got = match(s, "[*prompt, 1]")
    if got:
        raise Wrong(
            "goes-on-after-miss",
            tr(
                "The first block is gone, and matching went on behind the gap. K and V "
                "of the first tokens are needed by all that follow: stop at the first "
                "miss."
            ),
            "[]",
            show(got),
        )


def reuse(s: Script) -> None:
    """Check a block that is forgotten and published for another prompt."""
    s.do(INDEX)
    s.do(PROMPT)
    run(s, PUBLISH)
    s.do("index.forget(2)")
    s.do("other = [1, 1, 1, 1]")
    run(s, "index.publish(other, [2])")
    expect_match(
        s,
        "[*other, 0]",
        [2],
        "reused-block-not-found",
        tr("Block 2 was published again, for another prompt, and is not found."),
    )
    expect_match(
        s,
        "[*prompt, 1]",
        [6],
        "stale-entry",
        tr(
            "Block 2 now holds another prompt, and the old prompt still finds it: its "
            "old key was not removed."
        ),
    )


def colliding_hash(s: Script) -> None:
    """Check that tokens are compared when a hash says the same of everything."""
    s.do("index = PrefixIndex(block_size=4, hash_fn=lambda data: 1)")
    s.do("prompt = [7, 1, 6, 2, 5, 5, 0, 3]")
    run(s, "index.publish(prompt, [6, 2])")
    got = match(s, "[9, 9, 9, 9, 8, 8, 8, 8, 1]")
    if got:
        raise Wrong(
            "trusts-the-hash",
            tr(
                "A prompt without a token in common found blocks, because all hashes "
                "are equal here. Keep the tokens beside the block, and compare them."
            ),
            "[]",
            show(got),
        )
    for line in ("[5, 5, 0, 3, 1]", "[9, 9, 9, 9, 5, 5, 0, 3, 1]"):
        if got := match(s, line):
            raise Wrong(
                "compares-one-block-only",
                tr(
                    "The four tokens are those of block 2, but other ones preceded "
                    "them there, so its K and V are others. Compare the whole "
                    "beginning, not the last block alone."
                ),
                "[]",
                show(got),
            )


def random_prompts(s: Script) -> None:
    """Compare with whole prompts kept in a list, over many small prompts."""
    rng = random.Random(3)
    for size in (1, 2, 3):
        s.restart()
        s.do(f"index = PrefixIndex(block_size={size})")
        holds: dict[int, tuple[int, ...]] = {}
        for _ in range(60):
            prompt = [rng.randrange(2) for _ in range(rng.randrange(1, 9))]
            s.names["prompt"] = prompt
            found = _found(holds, prompt, size)
            got = match(s, str(prompt))
            if got != found:
                raise Wrong(
                    "wrong-match",
                    tr(
                        "After many prompts of zeros and ones a lookup is wrong. Run "
                        "the lines and look at your index."
                    ),
                    str(found),
                    show(got),
                )
            # A prefix that is held needs no second block: keeping one is enough.
            table = list(got)
            for end in range(len(got) * size, len(prompt), size):
                beginning = tuple(prompt[: end + size])
                held = [b for b, has in holds.items() if has == beginning]
                free = [b for b in range(40) if b not in table]
                table.append(held[0] if held else rng.choice(free))
                if not held:
                    s.do(f"index.forget({table[-1]})")
                    holds.pop(table[-1], None)
            run(s, f"index.publish({prompt}, {table})")
            for i in range(len(prompt) // size):
                holds[table[i]] = tuple(prompt[: (i + 1) * size])


def _found(
    holds: dict[int, tuple[int, ...]], prompt: list[int], size: int
) -> list[int]:
    """Return the blocks of the longest prefix that is held."""
    by_prefix = {held: block for block, held in holds.items()}
    found = []
    for end in range(size, len(prompt), size):
        block = by_prefix.get(tuple(prompt[:end]))
        if block is None:
            break
        found.append(block)
    return found


REUSE_CASES = (
    Case(
        lambda: tr("a block that was handed out again is not found"),
        lesson_queue,
        forgetting,
    ),
    Case(lambda: tr("a reused block serves its new prompt only"), lesson_queue, reuse),
    Case(
        lambda: tr("a colliding hash never returns another prompt's blocks"),
        lesson_key,
        colliding_hash,
    ),
    Case(
        lambda: tr("many random prompts, block sizes 1 to 3"),
        lesson_queue,
        random_prompts,
    ),
)
