"""Cases of exercise 09.4: the chained keys of a prompt's blocks."""

from __future__ import annotations

from typing import Any

from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr

SIZE = 4


def lesson_key() -> str:
    """Return the place of the chain."""
    return tr("09.4, “A key stands for the whole beginning”")


def one_for_each_full_block(s: Script) -> None:
    """Check how many keys there are, at lengths around a boundary."""
    for length in (8, 9, 11, 7, 4, 3, 0):
        s.restart()
        s.do(f"keys = block_keys(list(range({length})), {SIZE}, hash)")
        _expect_number(s.names["keys"], length)


def made_by_the_hash(s: Script) -> None:
    """Check that keys are what hash_fn returns."""
    s.do(f'keys = block_keys(list(range(8)), {SIZE}, lambda data: "same")')
    _expect_number(keys := s.names["keys"], 8)
    if list(keys) != ["same", "same"]:
        raise Wrong(
            "hash-fn-ignored",
            tr(
                "A key is what `hash_fn` returns. Call the function that is passed in, "
                "not another one, and give back its result as it is."
            ),
            'keys == ["same", "same"]',
            show(keys),
        )


def repeatable(s: Script) -> None:
    """Check that equal prompts have equal keys, in any list object."""
    s.do("first, second = [7, 1, 7, 2, 5, 5, 0, 3], [7, 1, 7, 2, 5, 5, 0, 3]")
    _compare(
        s,
        "first",
        "second",
        [True, True],
        "keys-not-repeatable",
        tr("Two equal prompts got different keys: nothing could ever be found again."),
    )


def depends_on_every_token(s: Script) -> None:
    """Check that each token of a block, and their order, changes its key."""
    s.do("prompt = [7, 1, 6, 2]")
    for i in range(SIZE):
        s.do(f"other = list(prompt); other[{i}] = 9")
        _compare(
            s,
            "prompt",
            "other",
            [False],
            "key-misses-tokens",
            tr(
                "Token {i} of the block was changed, and the key stayed the same: all "
                "tokens of the block belong into it.",
                i=i,
            ),
        )
    s.do("other = [1, 7, 6, 2]")
    _compare(
        s,
        "prompt",
        "other",
        [False],
        "key-ignores-order",
        tr("The same tokens in another order are another block."),
    )


def depends_on_what_precedes(s: Script) -> None:
    """Check the chain: a change at the beginning changes every key after it."""
    for n_blocks in (2, 3):
        s.do(f"prompt = list(range({n_blocks * SIZE}))")
        s.do("other = [99, *prompt[1:]]")
        _compare(
            s,
            "prompt",
            "other",
            [False] * n_blocks,
            "key-ignores-what-precedes",
            tr(
                "The first block differs, and a later one has the same key. K and V of "
                "a token depend on all tokens before it: the key of the block before "
                "belongs into the key."
            ),
        )
    s.do("twice = [5, 6, 7, 8, 5, 6, 7, 8]")
    s.do(f"keys = block_keys(twice, {SIZE}, hash)")
    first, second = s.names["keys"]
    if first == second:
        raise Wrong(
            "key-ignores-what-precedes",
            tr(
                "The same four tokens at the beginning and after other ones have one "
                "key. The key of the block before belongs into the key."
            ),
            "keys[0] != keys[1]",
            "keys[0] == keys[1]",
        )


def independent_of_what_follows(s: Script) -> None:
    """Check that a longer prompt begins with the keys of the shorter one."""
    s.do("short = [7, 1, 6, 2, 5, 5, 0, 3]")
    for more in ([], [4], [4, 4, 4, 4, 4]):
        s.do(f"long = [*short[:4], 9, 9, 9, 9, *{more}]")
        _compare(
            s,
            "short",
            "long",
            [True, False],
            "key-depends-on-what-follows",
            tr(
                "Both prompts begin with the same block, and its keys differ: a key "
                "may depend on what precedes its block, not on what follows."
            ),
        )


def _compare(
    s: Script, one: str, other: str, same: list[bool], code: str, cause: str
) -> None:
    """Compare the keys of two prompts, block by block."""
    s.do(f"a = block_keys({one}, {SIZE}, hash)")
    s.do(f"b = block_keys({other}, {SIZE}, hash)")
    _expect_number(s.names["a"], len(s.names[one]))
    _expect_number(s.names["b"], len(s.names[other]))
    for i, expected in enumerate(same):
        if (s.names["a"][i] == s.names["b"][i]) != expected:
            signs = "==", "!="
            raise Wrong(
                code,
                cause,
                f"a[{i}] {signs[not expected]} b[{i}]",
                f"a[{i}] {signs[expected]} b[{i}]",
                tr("block {block}", block=i),
            )


def _expect_number(keys: Any, length: int) -> None:
    wanted = length // SIZE
    if keys is None:
        cause = tr("`block_keys` returned nothing: add `return`.")
        raise Wrong("keys-returns-none", cause, "list", "None")
    if not isinstance(keys, list | tuple):
        cause = tr("`block_keys` must return a list of keys, one for each full block.")
        raise Wrong("keys-not-a-list", cause, "list", show(keys))
    if (got := len(keys)) == wanted:
        return
    code, cause = (
        "wrong-number-of-keys",
        tr("There is one key for each full block, `len(tokens) // block_size`."),
    )
    if got == -(-length // SIZE):
        code, cause = (
            "key-for-partial-block",
            tr(
                "The last block is not full and got a key. Only full blocks do: a "
                "partial one is still going to change."
            ),
        )
    elif got == wanted - 1:
        code, cause = (
            "last-full-block-without-key",
            tr(
                "The last full block got no key. That the last token is computed anew "
                "matters when looking up, in `match`, not here."
            ),
        )
    raise Wrong(code, cause, f"len(keys) == {wanted}", str(got))


KEY_CASES = (
    Case(
        lambda: tr("there is a key for each full block, and no other"),
        lesson_key,
        one_for_each_full_block,
    ),
    Case(lambda: tr("equal prompts have equal keys"), lesson_key, repeatable),
    Case(
        lambda: tr("every token of a block counts, and their order"),
        lesson_key,
        depends_on_every_token,
    ),
    Case(
        lambda: tr("a key depends on all that precedes its block"),
        lesson_key,
        depends_on_what_precedes,
    ),
    Case(
        lambda: tr("a key does not depend on what follows"),
        lesson_key,
        independent_of_what_follows,
    ),
    Case(lambda: tr("keys are made by `hash_fn`"), lesson_key, made_by_the_hash),
)
