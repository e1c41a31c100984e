"""The widgets in Python: what they show, and what a stored notebook keeps of them."""

import numpy as np
import pytest

from paged_kv import BlockPool, Sequence
from paged_kv.messages import use_language
from paged_kv.widgets import BlockExplorer, Playground, draw, record
from tests.widgets.markup import parse
from tests.widgets.runs import shared_prompt, small_pool
from tests.widgets.students import (
    RIGHT,
    WRONG_POOLS,
    WRONG_SEQUENCES,
    ListPool,
    PlainSequence,
    StubSequence,
)

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def english():
    use_language("en")
    yield
    use_language("en")


def html_of(explorer):
    """Return all HTML that the widget shows now."""
    values = [getattr(child, "value", "") for child in explorer.children]
    return "".join(value for value in values if isinstance(value, str))


def now(explorer):
    return parse(html_of(explorer)).one("div", "now").words


def test_a_display_carries_the_still_picture():
    history = shared_prompt()
    explorer = BlockExplorer(history, step=16)
    bundle = explorer._repr_mimebundle_()
    still = draw(history, step=16)
    assert bundle["text/html"] == still._repr_html_()
    assert bundle["text/plain"] == repr(still)
    assert explorer._model_id not in bundle["text/html"] + bundle["text/plain"]
    assert bundle[WIDGET]["model_id"] == explorer._model_id
    explorer.slider.value = 3
    assert explorer._repr_mimebundle_()["text/html"] == draw(
        history, 3
    )._repr_html_() or (
        explorer._repr_mimebundle_()["text/html"] == draw(history, step=3)._repr_html_()
    )


def test_slider_and_buttons_move_the_picture():
    history = shared_prompt()
    explorer = BlockExplorer(history, step=0)
    assert explorer.previous.disabled
    explorer.slider.value = 5
    assert "Step 5 / 32 fork sys→req3" in now(explorer)
    explorer.next.click()
    assert explorer.slider.value == 6
    explorer.previous.click()
    explorer.previous.click()
    assert explorer.slider.value == 4
    explorer.next_copy.click()
    assert "copy-on-write 31→32" in now(explorer)
    explorer.slider.value = len(history) - 1
    assert explorer.next.disabled
    assert explorer.next_copy.disabled


def test_the_picture_of_a_widget_is_that_of_the_static_cell():
    history = shared_prompt()
    explorer = BlockExplorer(history, step=22)
    assert (
        now(explorer)
        == parse(draw(history, step=22)._repr_html_()).one("div", "now").words
    )


def test_the_model_can_be_changed():
    explorer = BlockExplorer(shared_prompt(), step=16)
    before = parse(html_of(explorer)).one("dl", "met").words
    explorer.model.value = dict(explorer.model.options)["Llama-2-7B"]
    after = parse(html_of(explorer)).one("dl", "met").words
    assert "= 630 MiB" in before
    assert "= 2520 MiB" in after


def test_steps_that_come_later_are_reached():
    pool = small_pool()
    seq = Sequence(pool, "a")
    history = record(pool, seq)
    explorer = BlockExplorer(history)
    seq.reserve(3)
    explorer.show(len(history) - 1)
    assert explorer.slider.max == explorer.play.max == 1
    assert "append ×3 a" in now(explorer)


def test_a_step_outside_is_refused():
    with pytest.raises(IndexError, match="step 99"):
        BlockExplorer(shared_prompt(), step=99)


def press(playground, *names):
    for name in names:
        getattr(playground, name)()


def events(playground):
    history = playground.history
    return [history.step(i).event for i in range(len(history))]


@pytest.mark.parametrize("sequence_class", [Sequence, *RIGHT])
def test_every_press_is_a_step(sequence_class):
    pool_class = BlockPool if sequence_class is Sequence else ListPool
    playground = Playground(pool_class, sequence_class)
    press(playground, "append", "append", "fork", "append", "free", "add", "append")
    assert [event.kind for event in events(playground)] == [
        "start",
        *("append", "append", "fork", "append", "free", "new", "append"),
    ]
    assert playground.history.names == ("a", "b", "c")
    assert playground.sequence.options == ("a", "c")
    assert playground.sequence.value == "c"
    assert "append c" in now(playground)


def test_several_tokens_are_one_step():
    playground = Playground()
    playground.tokens.value = 6
    press(playground, "append")
    assert events(playground)[-1].count == 6


def test_what_is_impossible_explains_itself_and_changes_nothing():
    playground = Playground(num_blocks=1, block_size=2)
    press(playground, "append", "append", "append")
    assert len(playground.history) == 4
    assert "append a refused" in now(playground)
    assert "the pool is full" in now(playground)
    moment = playground.history.at(-1)
    assert moment.before.same_as(moment.after)
    press(playground, "free", "add", "append")
    assert "append b" in now(playground)


def test_with_nothing_left_the_buttons_do_nothing():
    playground = Playground()
    press(playground, "free", "append", "fork", "free")
    assert len(playground.history) == 2
    assert playground.sequence.options == ()


def test_start_over_empties_the_pool():
    playground = Playground()
    press(playground, "append", "fork", "restart")
    assert len(playground.history) == 1
    assert playground.slider.value == playground.slider.max == 0
    assert playground.sequence.options == ("a",)
    press(playground, "append")
    assert "append a" in now(playground)


def test_a_missing_or_unwritten_method_is_a_step_that_says_so():
    class NoFork(PlainSequence):
        fork = None

    for sequence_class in (NoFork, StubSequence):
        playground = Playground(ListPool, sequence_class)
        press(playground, "append", "fork")
        assert events(playground)[-1].error
        assert "fork a failed" in now(playground)


@pytest.mark.parametrize("sequence_class", WRONG_SEQUENCES)
@pytest.mark.parametrize("pool_class", [ListPool, *WRONG_POOLS])
def test_wrong_classes_can_be_played_with(pool_class, sequence_class):
    playground = Playground(pool_class, sequence_class, num_blocks=4, block_size=2)
    rng = np.random.default_rng(1)
    for _ in range(25):
        press(playground, rng.choice(["append", "append", "fork", "free", "add"]))
    for index in range(len(playground.history)):
        playground.slider.value = index
        assert now(playground)
