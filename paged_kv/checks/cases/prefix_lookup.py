"""Cases of exercise 09.4: what is published, and what a lookup finds of it."""

from __future__ import annotations

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


def published_is_found(s: Script) -> None:
    """Check a longer prompt that begins with a published one."""
    s.do(INDEX)
    s.do(PROMPT)
    expect_match(
        s,
        "prompt",
        [],
        "found-before-published",
        tr("Nothing has been published, so nothing can be found."),
    )
    run(s, PUBLISH)
    got = match(s, "[*prompt, 1]")
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
    run(s, PUBLISH)
    for n, expected in ((12, [6, 2]), (8, [6]), (4, []), (1, []), (0, []), (9, [6, 2])):
        got = match(s, f"prompt[:{n}]")
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
    run(s, PUBLISH)
    for line, expected in (
        ("[*prompt[:8], 0, 0, 0, 0, 1]", [6, 2]),
        ("[*prompt[:7], 9, *prompt[8:], 1]", [6]),
        ("[9, *prompt[1:], 1]", []),
        ("[*prompt[4:], 1]", []),
        ("[*prompt[:6], *prompt[4:], 1]", [6]),
    ):
        expect_match(
            s,
            line,
            expected,
            "wrong-prefix",
            tr(
                "What is found is the longest common beginning, in whole blocks: where "
                "a token differs, its block and all that follow do not count."
            ),
        )
    run(s, "index.publish([*prompt[:4], 3, 3, 3, 3], [6, 5])")
    for line, expected in (
        ("[*prompt[:4], 3, 3, 3, 3, 1]", [6, 5]),
        ("[*prompt, 1]", [6, 2, 9]),
    ):
        expect_match(
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
    run(s, "index.publish(prompt, table)")
    for _ in range(2):
        expect_match(
            s,
            "asked",
            [6, 2, 9],
            "match-changes-index",
            tr("The same lookup twice, and the answers differ: `match` only looks."),
        )
    s.do("prompt[0] = 100; table[0] = 100", tr("the engine reuses its lists"))
    expect_match(
        s,
        "asked",
        [6, 2, 9],
        "keeps-callers-list",
        tr(
            "The caller changed its lists after `publish`, and the index changed with "
            "them. Keep copies: `tuple(…)` of the tokens, the number of the block."
        ),
    )


def run(s: Script, line: str) -> object:
    """Run a line, and make sure that the caller's lists are what they were."""
    lists = {n: list(v) for n, v in s.names.items() if isinstance(v, list)}
    result = s.do(line)
    for name, before in lists.items():
        if (after := s.names[name]) != before:
            cause = tr("Your code changes a list of the caller's. Work on a copy.")
            raise Wrong("input-modified", cause, f"{name} == {before}", show(after))
    return result


def match(s: Script, prompt: str) -> list[int]:
    """Look a prompt up; return blocks, or raise Wrong for anything else."""
    got = run(s, f"index.match({prompt})")
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


def expect_match(
    s: Script, prompt: str, expected: list[int], code: str, cause: str
) -> None:
    """Raise Wrong when something else is found."""
    got = match(s, prompt)
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
)
