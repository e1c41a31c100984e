"""Whether what was passed to `check` is what the exercise asks for."""

from __future__ import annotations

from paged_kv.checks.exercise import Asked
from paged_kv.checks.script import Wrong
from paged_kv.checks.show import show
from paged_kv.messages import tr


def expect_usable(asked: tuple[Asked, ...], objects: tuple[object, ...]) -> None:
    """Raise Wrong when an object is not of the kind that was asked for."""
    names = [a.name for a in asked]
    theirs = [getattr(o, "__name__", "") for o in objects]
    if theirs != names and sorted(map(str, theirs)) == sorted(names):
        raise Wrong(
            "objects-swapped",
            tr("The objects are in the wrong order."),
            ", ".join(names),
            ", ".join(theirs),
        )
    for want, given in zip(asked, objects, strict=True):
        if want.is_class:
            _expect_class(want, given)
        elif isinstance(given, type) or not callable(given):
            raise Wrong(
                "not-a-function",
                tr(
                    "`{name}` must be the function itself, without brackets.",
                    name=want.name,
                ),
                f"def {want.name}(…)",
                show(given),
            )


def _expect_class(want: Asked, given: object) -> None:
    if not isinstance(given, type):
        raise Wrong(
            "not-a-class",
            tr("`{name}` must be the class itself, without brackets.", name=want.name),
            f"class {want.name}",
            show(given),
        )
    for method in want.methods:
        if not callable(getattr(given, method, None)):
            raise Wrong(
                "missing-method",
                tr(
                    "The class `{name}` has no method `{method}`.",
                    name=want.name,
                    method=method,
                ),
                f"def {method}(self, …)",
                tr("nothing"),
            )
