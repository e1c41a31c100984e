"""The tree to play with: what each button does, and the picture of it."""

import re

import pytest

from paged_kv.messages import use_language
from paged_kv.widgets.prefix_tree import PrefixTree

PROMPTS = ["you are a bot", "you are a cat", "tell a joke"]


@pytest.fixture
def tree():
    return PrefixTree(PROMPTS, asked=2, num_blocks=8)


def said(tree):
    """Return what the widget says, from the first line of its text picture."""
    return repr(tree.picture()).splitlines()[0]


def audit(tree):
    tree.cache.check()
    tree.cache.pool.check(tree._running, holders=[tree.cache])


def test_start_asks_some_of_the_prompts(tree):
    assert "3 of 4 words were found" in said(tree)
    assert "5 of 8 in use" in said(tree)
    audit(tree)


def test_asking_evicts_when_there_is_no_room(tree):
    tree.prompt.value = "one two three four"
    tree.ask()
    assert "0 of 4 words" in said(tree)
    assert "1 word was evicted to make room" in said(tree)
    audit(tree)


def test_running_requests_lock_their_path(tree):
    tree.prompt.value = "you are a cat"
    tree.ask_and_keep()
    assert "locked by 1 request" in repr(tree.picture())
    for _ in range(3):
        tree.evict()
    assert "Every leaf is locked, or there is none." in said(tree)
    tree.prompt.value = "one two three four five"
    tree.ask()
    assert "There is no room, even with" in said(tree)
    audit(tree)
    tree.finish_all()
    assert "1 request is finished." in said(tree)
    tree.ask()
    assert "0 of 5 words" in said(tree)
    audit(tree)


def test_empty_prompt_and_start_over(tree):
    tree.prompt.value = "  "
    tree.ask()
    assert "The prompt is empty." in said(tree)
    tree.restart()
    assert "The tree is empty. Pool: 0 of 8 in use." in said(tree)
    audit(tree)


def test_longer_than_the_pool_is_refused(tree):
    tree.prompt.value = " ".join("abcdefghi")
    tree.ask()
    assert "longer than the whole pool" in said(tree)
    audit(tree)


def test_what_is_typed_is_shown_as_text(tree):
    tree.prompt.value = "<b>bold</b> words"
    tree.ask()
    assert "<b>bold" not in tree._view.value
    assert "&lt;b&gt;bold" in tree.picture()._repr_html_()


def test_stored_notebook_has_the_picture(tree):
    bundle = tree._repr_mimebundle_()
    assert "you are a" in bundle["text/html"]
    assert bundle["text/plain"] == repr(tree.picture())


def test_russian():
    use_language("ru")
    tree = PrefixTree(PROMPTS, asked=1)
    assert "В дереве нашлось: 0 из 4 слов." in repr(tree.picture())
    assert "Префиксное дерево" in tree.picture()._repr_html_()
    assert not re.search("[a-z]{3,} [a-z]{3,} [a-z]{4,}", said(tree).split(".")[1])


def test_enter_asks_the_same_prompt_again(tree):
    tree.prompt.value = "tell a joke"
    for found in (0, 2):  # the last word is always computed
        # What the browser sends for the Enter key.
        tree.prompt._handle_custom_msg({"event": "submit"}, [])
        assert f"{found} of 3 words were found" in said(tree)
    before = said(tree)
    tree.prompt._handle_custom_msg({"event": "focus"}, [])
    assert said(tree) == before
    audit(tree)
