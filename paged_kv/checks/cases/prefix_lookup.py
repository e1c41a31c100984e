"""Cases of exercise 09.4: publish, match and forget."""

from __future__ import annotations

import random

from paged_kv.checks.cases.prefix_keys import lesson_key
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr

INDEX = "index = PrefixIndex(block_size=4)"
PROMPT = "prompt = [7, 1, 6, 2, 5, 5, 0, 3, 8, 8, 4, 9]"
# Table entries are physical blocks, in no order.
PUBLISH = "index.publish(prompt, [6, 2, 9])"


def lesson_found() -> str:
    """Return the place of the last token and of what a hit covers."""
    return tr("09.4, “How much is found”")


def lesson_queue() -> str:
    """Return the place of freed, found and reused blocks."""
    return tr("09.4, “Ten blocks: hit, touch, evict”")


def published_is_found(s: Script) -> None:
    """Check a longer prompt that begins with a published one."""
    s.do(INDEX)
    s.do(PROMPT)
    _expect_match(
        s,
        "prompt",
        [],
        "found-before-published",
        tr("Nothing has been published, so nothing can be found."),
    )
    _do(s, PUBLISH)
    got = _match(s, "[*prompt, 1]")
    if got == [6, 2, 9]:
        return
    code, cause = (
        "wrong-blocks",
        tr("`match` must return the physical blocks, in the order of the prompt."),
    )
    if got == []:
        code, cause = (
            "nothing-found",
            tr(
                "A published prompt is not found. Do `publish` and `match` make the "
                "keys in the same way, and does `publish` keep them?"
            ),
        )
    elif got == [0, 1, 2]:
        code, cause = (
            "logical-for-physical",
            tr(
                "These are the positions in the block table; what is asked for stands "
                "there: `block_table[i]`."
            ),
        )
    elif got == [9, 2, 6]:
        code, cause = (
            "blocks-reversed",
            tr("The right blocks in the wrong order: the beginning comes first."),
        )
    elif sorted(got) == [2, 6]:
        code, cause = (
            "one-block-too-few",
            tr(
                "One block is missing. The last token must be left to compute, and "
                "here it is token 13: all three blocks before it may be found."
            ),
        )
    raise Wrong(code, cause, "[6, 2, 9]", show(got))


def last_token_is_left(s: Script) -> None:
    """Check prompts that are cached as a whole."""
    s.do(INDEX)
    s.do(PROMPT)
    _do(s, PUBLISH)
    for n, expected in ((12, [6, 2]), (8, [6]), (4, []), (1, []), (0, []), (9, [6, 2])):
        got = _match(s, f"prompt[:{n}]")
        if got == expected:
            continue
        code, cause = (
            "wrong-blocks",
            tr("`match` must return the physical blocks, in the order of the prompt."),
        )
        if n and len(got) * 4 == n:
            code, cause = (
                "last-token-not-left",
                tr(
                    "The whole prompt was found. Its last token must be computed all "
                    "the same, to know what comes next: a hit covers at most L − 1 "
                    "tokens."
                ),
            )
        elif len(got) < len(expected):
            code, cause = (
                "one-block-too-few",
                tr(
                    "Too little was found: only the last token must be left, not the "
                    "last block."
                ),
            )
        raise Wrong(code, cause, str(expected), show(got))


def longest_prefix(s: Script) -> None:
    """Check prompts that part from a published one."""
    s.do(INDEX)
    s.do(PROMPT)
    _do(s, PUBLISH)
    for line, expected in (
        ("[*prompt[:8], 0, 0, 0, 0, 1]", [6, 2]),
        ("[*prompt[:7], 9, *prompt[8:], 1]", [6]),
        ("[9, *prompt[1:], 1]", []),
        ("[*prompt[4:], 1]", []),
        ("[*prompt[:6], *prompt[4:], 1]", [6]),
    ):
        _expect_match(
            s,
            line,
            expected,
            "wrong-prefix",
            tr(
                "What is found is the longest common beginning, in whole blocks: where "
                "a token differs, its block and all that follow do not count."
            ),
        )
    _do(s, "index.publish([*prompt[:4], 3, 3, 3, 3], [6, 5])")
    for line, expected in (
        ("[*prompt[:4], 3, 3, 3, 3, 1]", [6, 5]),
        ("[*prompt, 1]", [6, 2, 9]),
    ):
        _expect_match(
            s,
            line,
            expected,
            "second-prompt-lost",
            tr("Two prompts with one beginning are published; both must be found."),
        )


def looking_changes_nothing(s: Script) -> None:
    """Check that match can be repeated, and that arguments are copied."""
    s.do(INDEX)
    s.do(PROMPT)
    s.do("table = [6, 2, 9]")
    s.do("asked = [*prompt, 1]")
    _do(s, "index.publish(prompt, table)")
    for _ in range(2):
        _expect_match(
            s,
            "asked",
            [6, 2, 9],
            "match-changes-index",
            tr("The same lookup twice, and the answers differ: `match` only looks."),
        )
    s.do("prompt[0] = 100; table[0] = 100", tr("the engine reuses its lists"))
    _expect_match(
        s,
        "asked",
        [6, 2, 9],
        "keeps-callers-list",
        tr(
            "The caller changed its lists after `publish`, and the index changed with "
            "them. Keep copies: `tuple(…)` of the tokens, the number of the block."
        ),
    )


def forgetting(s: Script) -> None:
    """Check that a reused block is not found, nor anything behind it."""
    s.do(INDEX)
    s.do(PROMPT)
    _do(s, PUBLISH)
    s.do("index.forget(9)")
    _expect_match(
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
    got = _match(s, "[*prompt, 1]")
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
    _do(s, PUBLISH)
    s.do("index.forget(2)")
    s.do("other = [1, 1, 1, 1]")
    _do(s, "index.publish(other, [2])")
    _expect_match(
        s,
        "[*other, 0]",
        [2],
        "reused-block-not-found",
        tr("Block 2 was published again, for another prompt, and is not found."),
    )
    _expect_match(
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
    _do(s, "index.publish(prompt, [6, 2])")
    got = _match(s, "[9, 9, 9, 9, 8, 8, 8, 8, 1]")
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
        if got := _match(s, line):
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
            got = _match(s, str(prompt))
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
            _do(s, f"index.publish({prompt}, {table})")
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


def _do(s: Script, line: str) -> object:
    """Run a line, and make sure that the caller's lists are what they were."""
    lists = {n: list(v) for n, v in s.names.items() if isinstance(v, list)}
    result = s.do(line)
    for name, before in lists.items():
        if (after := s.names[name]) != before:
            cause = tr("Your code changes a list of the caller's. Work on a copy.")
            raise Wrong("input-modified", cause, f"{name} == {before}", show(after))
    return result


def _match(s: Script, prompt: str) -> list[int]:
    got = _do(s, f"index.match({prompt})")
    if got is None:
        cause = tr("`match` returned nothing: add `return`, also of an empty list.")
        raise Wrong("match-returns-none", cause, "list", "None")
    if not isinstance(got, list | tuple) or not all(_is_block(b) for b in got):
        cause = tr(
            "`match` must return a list of physical blocks and nothing else: no keys, "
            "no number of tokens."
        )
        raise Wrong("match-not-blocks", cause, tr("a list of blocks"), show(got))
    return list(got)


def _is_block(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 100


def _expect_match(
    s: Script, prompt: str, expected: list[int], code: str, cause: str
) -> None:
    got = _match(s, prompt)
    if got != expected:
        raise Wrong(code, cause, str(expected), show(got))


LOOKUP_CASES = (
    Case(lambda: tr("what is published is found"), lesson_key, published_is_found),
    Case(
        lambda: tr("looking changes nothing, and lists of the caller stay its own"),
        lesson_key,
        looking_changes_nothing,
    ),
    Case(
        lambda: tr("the last token is always left to compute"),
        lesson_found,
        last_token_is_left,
    ),
    Case(
        lambda: tr("the longest common beginning is found, and no more"),
        lesson_key,
        longest_prefix,
    ),
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
