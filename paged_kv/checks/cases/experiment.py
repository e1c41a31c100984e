"""The experiment of 09.3: ten forks of one prompt."""

from __future__ import annotations

from typing import Any

import numpy as np

from paged_kv.checks import lessons
from paged_kv.checks.exercise import Case
from paged_kv.checks.script import Script, Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr
from paged_kv.pool import BlockPool
from paged_kv.sequence import Sequence
from paged_kv.spec import KVCacheSpec, MiB

PROMPT, FORKS, NEW_TOKENS = 500, 10, 3


Numbers = dict[str, float]


class EagerFork(Sequence):
    """A Sequence whose fork copies the last two blocks at once.

    Right, but with other numbers: an experiment that really uses the class it is given
    shows them.
    """

    def fork(self, new_id: object) -> EagerFork:
        """Return a fork that shares all but the last two blocks."""
        child = EagerFork(self.pool, new_id)
        self.pool.retain(self.block_table)
        child.block_table, child.length = list(self.block_table), self.length
        shared = child.block_table[-2:]
        own = self.pool.allocate_many(len(shared))
        for old, new in zip(shared, own, strict=True):
            self.pool.copy_block(old, new)
        self.pool.release_many(shared)
        child.block_table[-2:] = own
        return child


def run_experiment(
    sequence: type[Sequence],
    prompt: int = PROMPT,
    forks: int = FORKS,
    answer: int = NEW_TOKENS,
) -> Numbers:
    """Run the experiment of the exercise with a Sequence class of ours."""
    pool = BlockPool(512, 1, 1, 1)
    token = np.ones((1, 1, 1), np.float32)
    base = sequence(pool, "base")
    for _ in range(prompt):
        base.append(token, token)
    requests = [base.fork(i) for i in range(forks)]
    for request in requests:
        for _ in range(answer):
            request.append(token, token)
    tables = [set(request.block_table) for request in requests]
    used = pool.used
    spec = KVCacheSpec.preset("llama-3-8b")
    unshared = forks * spec.blocks_for(prompt + answer)
    base.free()
    used_after_base_free = pool.used
    for request in requests:
        request.free()
    saved = unshared - used
    return {
        "shared": len(set.intersection(*tables)),
        "used": used,
        "unshared": unshared,
        "saved_blocks": saved,
        "saved_mib": saved * spec.bytes_per_block() / MiB,
        "used_after_base_free": used_after_base_free,
        "used_after_all_free": pool.used,
    }


def experiment(s: Script) -> None:
    """Check the seven numbers of prefix_sharing."""
    s.do("numbers = prefix_sharing(Sequence)")
    numbers = _numbers(s.names["numbers"])
    right = run_experiment(Sequence)
    for name, value in right.items():
        if not _near(numbers[name], value):
            code, cause = _number_mistake(name, numbers[name], right)
            raise Wrong(
                code, cause, f'numbers["{name}"] == {value:g}', show(numbers[name])
            )


def _numbers(given: Any) -> dict[str, Any]:
    names = list(run_experiment(Sequence))
    if given is None:
        raise Wrong(
            "returns-none",
            tr("`prefix_sharing` returned nothing: add return."),
            "dict",
            "None",
        )
    if not isinstance(given, dict):
        raise Wrong(
            "not-a-dict",
            tr("`prefix_sharing` must return a dict."),
            "dict",
            type(given).__name__,
        )
    if missing := [name for name in names if name not in given]:
        raise Wrong(
            "missing-numbers",
            tr("The dict lacks `{missing}`.", missing=", ".join(missing)),
            ", ".join(names),
            ", ".join(map(str, given)),
        )
    return given


def _near(given: Any, value: float) -> bool:
    if isinstance(given, str):
        return False
    try:
        return abs(float(given) - value) < 0.5
    except (TypeError, ValueError):
        return False


def _number_mistake(name: str, given: Any, right: Numbers) -> tuple[str, str]:
    mib = right["saved_mib"]
    if name == "saved_mib" and _near(given, mib * MiB / 1e6):
        return "mb-for-mib", tr("These are MB (`10**6` bytes); MiB are `2**20` bytes.")
    if name == "saved_mib" and _near(given, mib * 1024):
        return "kib-for-mib", tr("These are KiB; MiB are `2**20` bytes.")
    if name == "saved_mib" and _near(given, 0):
        return "bytes-of-another-model", tr(
            "The pool of the experiment has other dimensions than the reference model, "
            "and its blocks are tiny. The bytes come from the model: "
            "`spec.bytes_per_block()`."
        )
    if name == "saved_blocks":
        return "wrong-saved-blocks", tr("Saved is what is not used: unshared − used.")
    if name == "unshared" and _near(given, right["unshared"] + 32):
        return "unshared-counts-base", tr(
            "Without sharing there are ten requests and no base: count only the ten."
        )
    if name == "unshared":
        return "wrong-unshared", tr("Each request has `ceil(503 / 16)` blocks.")
    if name == "shared" and _near(given, right["shared"] + 1):
        return "shared-counts-tail", tr(
            "The last block of the prompt is not shared any more once the forks wrote."
        )
    if name == "shared" and _near(given, 0):
        return "nothing-shared", tr(
            "The requests have no block in common: fork them from base while it still "
            "holds the prompt."
        )
    if name == "shared" and _near(given, -(-(PROMPT + FORKS * NEW_TOKENS) // 16)):
        return "one-fork-for-all", tr(
            "All requests are one and the same sequence: `[base.fork(0)] * 10` forks "
            "once. Call fork for each request."
        )
    if name == "used_after_base_free" and _near(given, right["used"]):
        return "base-not-freed", tr(
            "As many blocks as before: base was not freed, or used was read too early."
        )
    if name == "used_after_all_free":
        return "forks-not-freed", tr("After all frees no block may be in use.")
    return f"wrong-{name.replace('_', '-')}", tr(
        "`{name}` is not what the experiment gives: prompt of {prompt} tokens, {forks} "
        "forks, {new} tokens each.",
        name=name,
        prompt=PROMPT,
        forks=FORKS,
        new=NEW_TOKENS,
    )


def honest_experiment(s: Script) -> None:
    """Check that the numbers come from the Sequence that was passed."""
    s.names["EagerFork"] = EagerFork
    s.lines.append("from paged_kv.checks.cases.experiment import EagerFork")
    given, error = s.attempt("prefix_sharing(EagerFork)")
    if error is not None:  # e.g. a pool just large enough for the right numbers
        return
    numbers, right = _numbers(given), run_experiment(EagerFork)
    typed = [
        name
        for name, usual in run_experiment(Sequence).items()
        if not _near(numbers[name], right[name]) and _near(numbers[name], usual)
    ]
    if typed:
        raise Wrong(
            "typed-numbers",
            tr(
                "EagerFork is a Sequence that shares less, and the numbers stayed the "
                "same: {typed}. Count them in the tables and in the pool, with the "
                "class that is passed in.",
                typed=", ".join(typed),
            ),
            ", ".join(f"{name} == {right[name]:g}" for name in typed),
            ", ".join(show(numbers[name]) for name in typed),
        )


def other_arguments(s: Script) -> None:
    """Check that prompt, forks and answer are used, right up to a block boundary."""
    for prompt, forks, answer in ((512, 10, 3), (509, 4, 3), (497, 2, 16)):
        s.restart()
        s.do(f"numbers = prefix_sharing(Sequence, {prompt}, {forks}, {answer})")
        numbers = _numbers(s.names["numbers"])
        right = run_experiment(Sequence, prompt, forks, answer)
        wrong = [name for name in right if not _near(numbers[name], right[name])]
        if wrong:
            raise Wrong(
                "arguments-ignored",
                tr(
                    "The numbers are right for a prompt of 500 tokens, 10 forks and 3 "
                    "tokens each, and wrong here: `prompt` tokens in base, `answer` in "
                    "each of `forks` requests, and not one more."
                ),
                ", ".join(f"{name} == {right[name]:g}" for name in wrong),
                ", ".join(show(numbers[name]) for name in wrong),
            )


EXPERIMENT_CASES = (
    Case(
        lambda: tr("the seven numbers of `prefix_sharing`"),
        lessons.boundary,
        experiment,
    ),
    Case(
        lambda: tr("`prefix_sharing` counts with the class that is passed in"),
        lessons.boundary,
        honest_experiment,
    ),
    Case(
        lambda: tr("`prefix_sharing` with another prompt, forks and answer"),
        lessons.boundary,
        other_arguments,
    ),
)
