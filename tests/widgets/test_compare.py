"""Target beside yours: right classes agree, each mistake is shown where it begins."""

import pytest

from paged_kv import BlockPool, Sequence
from paged_kv.messages import use_language
from paged_kv.widgets import compare
from paged_kv.widgets.compare import RUNS
from tests.widgets.markup import parse
from tests.widgets.students import (
    RIGHT,
    BoastfulPool,
    EagerSequence,
    EmptyCopySequence,
    EndlessSequence,
    ForgetfulPool,
    HalfFailedSequence,
    LeakingSequence,
    ListPool,
    NoCopySequence,
    NoCountSequence,
    NonePool,
    PlainSequence,
    SharedListSequence,
    SilentPool,
    StubSequence,
)


@pytest.fixture(autouse=True)
def english():
    use_language("en")
    yield
    use_language("en")


class BackwardsPool(ListPool):
    """Right: hands out the last free block first."""

    def allocate(self):
        self.available.reverse()
        try:
            return super().allocate()
        finally:
            self.available.reverse()


@pytest.mark.parametrize("exercise", RUNS)
@pytest.mark.parametrize(
    "classes",
    [
        (BlockPool, Sequence),
        (Sequence,),
        *((ListPool, sequence) for sequence in RIGHT),
        (BackwardsPool, PlainSequence),
    ],
    ids=lambda classes: "-".join(c.__name__ for c in classes),
)
def test_right_classes_agree(exercise, classes):
    text = repr(compare(exercise, *classes))
    assert (
        text == f"In {sum(map(len, RUNS[exercise]))} steps yours does what ours does."
    )


@pytest.mark.parametrize(
    ("exercise", "classes", "found", "step"),
    [
        ("09.1", (ForgetfulPool, PlainSequence), "pool.used == 1", "pool.release(a)"),
        ("09.1", (SilentPool, PlainSequence), "raised nothing", "pool.release(a)"),
        ("09.1", (NonePool, PlainSequence), "not return the id", "a = pool.allocate()"),
        ("09.1", (BoastfulPool, PlainSequence), "yours is 99", "a = pool.allocate()"),
        ("09.1", (ListPool, EagerSequence), "2 entries", "x.append(k, v)"),
        (
            "09.1",
            (ListPool, LeakingSequence),
            "in use, yours are 5",
            "x.free()",
        ),
        ("09.1", (ListPool, HalfFailedSequence), "length 12 of z", "z.append(k, v)"),
        ("09.3", (ListPool, NoCountSequence), "count 2 for block 0", "base.fork"),
        ("09.3", (ListPool, NoCopySequence), "block of its own", "req0.append"),
        ("09.3", (ListPool, SharedListSequence), "block of its own", "req0.append"),
        ("09.3", (ListPool, EmptyCopySequence), "does not hold", "req0.append"),
        ("09.3", (LeakingSequence,), "count 1 for block 0", "base.free()"),
    ],
    ids=lambda value: value[-1].__name__ if isinstance(value, tuple) else None,
)
def test_a_mistake_is_shown_at_the_step_where_it_begins(exercise, classes, found, step):
    picture = compare(exercise, *classes)
    page = parse(picture._repr_html_())
    assert found in page.one("p", "found").words
    assert step in page.one("ol", "lines").all("li")[-1].words
    panels = page.one("div", "two").children
    assert [panel.attributes["aria-label"] for panel in panels] == ["Expected", "Yours"]
    assert all(panel.one("div", "pool") for panel in panels)
    text = repr(picture)
    assert found in text
    assert "\nExpected\n" in text
    assert "\nYours\n" in text


def test_the_blocks_in_question_are_marked_on_both_sides():
    page = parse(compare("09.3", ListPool, NoCopySequence)._repr_html_())
    marked = [
        {e.attributes["data-b"] for e in panel.all(cls="df")}
        for panel in page.one("div", "two").children
    ]
    assert marked == [{"2"}, {"1"}]


def test_a_stub_is_not_a_mistake():
    text = repr(compare("09.3", ListPool, StubSequence))
    assert text == "Not started: there is a stub on the way."


def test_an_endless_loop_is_stopped(monkeypatch):
    monkeypatch.setattr("paged_kv.checks.runner.SECONDS", 0.2)
    assert "did not finish" in repr(compare("09.3", ListPool, EndlessSequence))


@pytest.mark.parametrize("thing", [int, dict, Exception])
def test_something_else_altogether_is_said(thing):
    assert "Yours raised" in repr(compare("09.1", thing, PlainSequence))
    assert "Yours raised" in repr(compare("09.1", ListPool, thing))


def test_printing_is_kept_out(capsys):
    class Chatty(PlainSequence):
        def append(self, k, v):
            print("hello")
            return super().append(k, v)

    compare("09.1", ListPool, Chatty)
    assert capsys.readouterr().out == ""


def test_operations_of_ones_own():
    run = [("new", "a"), ("append", "a", 5), ("fork", "a", "b"), ("append", "b", 1)]
    assert "4 steps" in repr(compare(run, ListPool, PlainSequence))
    assert "of its own" in repr(compare(run, ListPool, NoCopySequence))


def test_wrong_calls_are_refused():
    with pytest.raises(ValueError, match=r"there are runs for 09\.1, 09\.3"):
        compare("09.2", PlainSequence)
    with pytest.raises(ValueError, match="BlockPool and Sequence"):
        compare("09.1")


def test_russian():
    use_language("ru")
    text = repr(compare("09.1", ListPool, LeakingSequence))
    assert "Занятых блоков должно быть 3, у вас 5." in text
    assert "Ожидалось" in text
