"""The likely cause of an exception that came out of a student's code."""

from __future__ import annotations

from paged_kv.checks.blame import replaced_builtins, student_code
from paged_kv.checks.runner import OutputLimit, TimeLimit, run_guarded
from paged_kv.checks.script import Wrong
from paged_kv.checks.show import clean
from paged_kv.messages import tr


def explain_exception(error: BaseException) -> Wrong:
    """Return a diagnosis that holds in any exercise."""
    if isinstance(error, TimeLimit):
        return Wrong(
            "time-limit",
            tr(
                "The code did not finish in time and was stopped. Look for a loop "
                "whose condition never becomes false, or for far more work than the "
                "task needs."
            ),
        )
    if isinstance(error, OutputLimit):
        return Wrong(
            "endless-printing",
            tr("The code printed so much that it was stopped: a print in a loop?"),
        )
    if isinstance(error, RecursionError):
        return Wrong(
            "endless-recursion",
            tr(
                "A function calls itself without end. A property that reads its own "
                "name does so too: `self.used` inside used."
            ),
        )
    if isinstance(error, SystemExit):
        return Wrong(
            "sys-exit",
            tr(
                "The code called `exit()`. Raise an exception or return a value "
                "instead."
            ),
        )
    if isinstance(error, KeyboardInterrupt):
        return Wrong("interrupted", tr("The check was interrupted. Run it again."))
    if isinstance(error, TypeError) and (names := replaced_builtins(error)):
        return Wrong(
            "builtin-replaced",
            tr(
                "Your code raised {error}. A cell has given another meaning to "
                "`{names}`: use another name there, and restart the kernel.",
                error=_text(error),
                names=", ".join(names),
            ),
        )
    if student_code(error) is None:
        if isinstance(error, AttributeError) and error.name:
            return Wrong(
                "missing-attribute",
                tr(
                    "`{kind}` has no attribute `{name}`: the interface of the exercise "
                    "asks for it.",
                    kind=type(error.obj).__name__,
                    name=error.name,
                ),
            )
        if isinstance(error, TypeError):
            return Wrong(
                "call-not-accepted",
                tr(
                    "The last line shown below could not be executed: {error}. Compare "
                    "it with the interface of the exercise.",
                    error=_text(error),
                ),
            )
    return Wrong("exception", tr("Your code raised {error}.", error=_text(error)))


def _text(error: BaseException) -> str:
    kind = type(error).__name__
    # An exception class of hers may have a __str__ that fails or never ends.
    text = run_guarded(lambda: clean(str(error))).value
    return f"{kind}: {text}" if text else kind
