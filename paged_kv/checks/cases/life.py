"""A random life of several sequences, compared with a plain model after each step."""

from __future__ import annotations

from collections import Counter

import numpy as np

from paged_kv.checks.cases.tokens import (
    append,
    block_table,
    expect_contents,
    new_pool,
)
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr

SEEDS, STEPS = range(5), 24


def live(s: Script, with_forks: bool) -> None:
    """Append, fork and free at random; the books and the contents must hold."""
    for seed in SEEDS:
        s.restart()
        new_pool(s, num_blocks=14)
        dice = np.random.default_rng(seed)
        for step in range(STEPS):
            _step(s, dice, f"s{step}", with_forks)
            expect_books(s)
            expect_contents(s, *s.tokens)
        for name in list(s.tokens):
            _free(s, name)
            expect_books(s)


def _step(s: Script, dice: np.random.Generator, new: str, with_forks: bool) -> None:
    names = list(s.tokens)
    action = dice.integers(10)
    if not names or (len(names) < 3 and action < 2):
        s.do(f'{new} = Sequence(pool, "{new}")')
        s.tokens[new] = []
        return
    name = names[dice.integers(len(names))]
    if action == 2:
        _free(s, name)
    elif action < 5 and with_forks and len(names) < 3:
        s.do(f'{new} = {name}.fork("{new}")')
        s.tokens[new] = list(s.tokens[name])
    elif len(s.tokens[name]) < 10:
        append(s, name, int(dice.integers(1, 4)))


def _free(s: Script, name: str) -> None:
    s.do(f"{name}.free()")
    del s.tokens[name]


def expect_books(s: Script) -> None:
    """Raise Wrong unless counts, tables and lengths agree."""
    listed = Counter(int(block) for block in s.ask("held"))
    for name, tokens in s.tokens.items():
        table = block_table(s, name)
        needed = -(-len(tokens) // 4)
        if len(table) != needed or s.ask(f"len({name})") != len(tokens):
            raise Wrong(
                "table-wrong-length",
                tr(
                    "A sequence of {n} tokens has {needed} blocks of 4.",
                    n=len(tokens),
                    needed=needed,
                ),
                f"len({name}) == {len(tokens)}, {needed}",
                f"{show(s.ask(f'len({name})'))}, {table}",
            )
        listed.update(table)
    ref = [int(n) for n in s.ask("pool.ref")]
    for block, count in enumerate(ref):
        if count != listed[block]:
            holders = [n for n in s.tokens if block in block_table(s, n)]
            holders += ["held"] * (block in s.ask("held"))
            raise Wrong(
                "count-differs",
                tr(
                    "The count of a block is not the number of those who hold it: "
                    "{holders}.",
                    holders=holders,
                ),
                f"pool.ref[{block}] == {listed[block]}",
                str(count),
                tr("block {block}", block=block),
            )
    s.expect(
        "pool.used",
        sum(n > 0 for n in ref),
        "used-wrong",
        tr("used is not the number of blocks that somebody holds."),
    )
