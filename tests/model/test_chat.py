"""A conversation over one sequence, its widget, and the bar of long cells."""

from itertools import pairwise

import pytest

from paged_kv.messages import use_language
from paged_kv.model import Chat, Engine, Llama, Message
from paged_kv.pool import BlockPool, OutOfBlocks
from paged_kv.widgets.chat import ChatWidget
from paged_kv.widgets.progress import progress
from tests.model.conftest import TINY, random_weights
from tests.model.dense import Dense
from tests.model.interrupts import interrupting


class Words:
    """Stand in for the tokenizer of the tiny model: a letter is a token."""

    end = 60

    def encode(self, text: str) -> list[int]:
        return [ord(letter) % 60 for letter in text]

    def decode(self, ids) -> str:
        return "".join(chr(97 + i % 26) for i in ids)

    def chat(self, messages) -> list[int]:
        return [i for m in messages for i in self.encode(m.content)]

    def follow_up(self, question: str) -> list[int]:
        return [self.end, *self.encode(question)]


@pytest.fixture(autouse=True)
def _english():
    use_language("en")


@pytest.fixture(scope="module")
def tiny():
    """Return the tiny model, with an end token that it does not come to by chance."""
    weights = random_weights(TINY, seed=1)
    weights["lm_head"][Words.end] = 0
    return Llama(TINY, weights)


@pytest.fixture(scope="module")
def dense(tiny):
    return Dense(tiny)


@pytest.fixture
def pool(tiny):
    c = tiny.config
    return BlockPool(32, c.n_layers, c.n_kv_heads, c.head_dim, 4)


def said(chat, question) -> str:
    """Ask, and return the whole answer."""
    return list(chat.ask(question))[-1]


def test_turns_are_those_of_a_chat_computed_anew(tiny, dense, pool):
    words = Words()
    chat = Chat(tiny, words, pool, system="be", max_tokens=6)
    prompt = words.encode("behello")
    for turn, question in enumerate(("hello", "why", "more")):
        if turn:
            prompt += words.follow_up(question)
        expected = dense.answer(prompt, 6)
        assert words.end not in expected
        assert said(chat, question) == words.decode(expected)
        prompt += expected
        # K and V of the last token are computed with the next question.
        assert len(chat.seq) == len(prompt) - 1
        pool.check([chat.seq])
    assert [m.role for m in chat.messages] == ["user", "assistant"] * 3
    chat.close()
    assert pool.used == 0


@pytest.mark.parametrize("where", ["forward", "logits"])
@pytest.mark.parametrize("at", range(1, 7))
def test_an_interrupted_turn_goes_on_with_what_was_said(
    tiny, dense, pool, monkeypatch, where, at
):
    words = Words()
    chat = Chat(tiny, words, pool, max_tokens=6)
    heard = [""]
    with monkeypatch.context() as patch:
        patch.setattr(tiny, where, interrupting(getattr(tiny, where), at))
        with pytest.raises(KeyboardInterrupt):
            heard.extend(chat.ask("hello"))
    said_so_far = dense.answer(words.encode("hello"), 6)[: at - 1]
    assert heard[-1] == words.decode(said_so_far)
    prompt = [*words.encode("hello"), *said_so_far, *words.follow_up("why")]
    assert said(chat, "why") == words.decode(dense.answer(prompt, 6))
    assert len(chat.seq) == len(prompt) + 5
    pool.check([chat.seq])


def test_text_grows_token_by_token(tiny, pool):
    texts = list(Chat(tiny, Words(), pool, max_tokens=5).ask("hello"))
    assert [len(text) for text in texts] == [1, 2, 3, 4, 5]
    assert all(b.startswith(a) for a, b in pairwise(texts))


@pytest.mark.parametrize("closed", [True, False])
def test_an_answer_read_in_part_is_what_was_said(tiny, dense, pool, closed):
    words = Words()
    chat = Chat(tiny, words, pool, max_tokens=9)
    stream = chat.ask("hello")
    next(stream)
    second = next(stream)
    if closed:
        stream.close()
        assert chat.messages[-1] == Message("assistant", second)
    prompt = words.encode("hello")
    prompt += dense.answer(prompt, 2) + words.follow_up("why")
    assert said(chat, "why") == words.decode(dense.answer(prompt, 9))
    assert chat.messages[1] == Message("assistant", second)
    assert [message.role for message in chat.messages] == ["user", "assistant"] * 2


def test_a_stop_token_ends_the_answer_and_the_next_turn_adds_it(tiny, dense, pool):
    words = Words()
    prompt = words.encode("hello")
    expected = dense.answer(prompt, 8)
    words.end = expected[4]
    chat = Chat(tiny, words, pool, max_tokens=20)
    said(chat, "hello")
    n = expected.index(words.end)
    assert chat.messages[-1].content == words.decode(expected[:n])
    assert len(chat.seq) == len(prompt) + n
    follow = prompt + expected[:n] + words.follow_up("why")
    best, _ = dense.next_token(follow)
    first = next(iter(chat.ask("why")))
    assert first == words.decode([best])


def test_a_turn_that_may_not_fit_says_nothing(tiny, pool):
    chat = Chat(tiny, Words(), pool, max_tokens=128)
    with pytest.raises(OutOfBlocks, match=r"may need 33 blocks, 32 are free: start"):
        chat.ask("hello")
    assert chat.messages == []
    assert pool.used == 0


def test_a_turn_beyond_the_context_is_refused(tiny):
    c = tiny.config
    pool = BlockPool(200, c.n_layers, c.n_kv_heads, c.head_dim, 4)
    chat = Chat(tiny, Words(), pool, max_tokens=250)
    with pytest.raises(ValueError, match="beyond 256 tokens"):
        chat.ask("hello you")


class TestWidget:
    """What the chat shows while it runs and when it is stored."""

    def widget(self, tiny, **options):
        return ChatWidget(tiny, Words(), **{"max_tokens": 20, **options})

    def test_question_answer_and_blocks_are_shown_and_stored(self, tiny):
        chat = self.widget(tiny)
        chat.ask("hello <b>")
        answer = chat._chat.messages[-1].content
        still = chat.picture()
        for text in (chat._said.value, still._repr_html_()):
            assert "hello &lt;b&gt;" in text
            assert answer in text
        assert f"you: hello <b>\nmodel: {answer}\n" in repr(still)
        assert "used 2 of 32" in repr(still)
        assert chat._repr_mimebundle_()["text/plain"] == repr(still)

    def test_the_answer_streams(self, tiny, monkeypatch):
        chat = self.widget(tiny)
        seen = []
        chat._said.observe(lambda change: seen.append(change["new"]), "value")
        chat.ask("hello")
        assert len(set(seen)) >= 20

    def test_a_typed_question_is_asked_once_and_the_line_emptied(self, tiny):
        chat = self.widget(tiny)
        chat._question.value = " hello "
        assert [m.content for m in chat._chat.messages][::2] == ["hello"]
        assert chat._question.value == ""
        chat._ask_button.click()
        assert len(chat._chat.messages) == 2
        assert not chat._ask_button.disabled

    def test_a_full_pool_says_so_and_a_new_chat_frees_it(self, tiny):
        chat = self.widget(tiny, num_blocks=3)
        chat.ask("hello")
        chat.ask("again, a longer question")
        assert "start a new chat" in chat._said.value
        assert len(chat._chat.messages) == 2
        chat.restart()
        assert chat._pool.used == 0
        assert "start a new chat" not in chat._said.value
        chat.ask("hello")
        assert "used 2 of 3" in repr(chat.picture())

    def test_the_explorer_follows_turn_by_turn(self, tiny):
        chat = self.widget(tiny)
        chat.ask("hello")
        chat.ask("why")
        kinds = [
            chat._recording.step(i).event.kind for i in range(len(chat._recording))
        ]
        assert kinds == ["start", "append", "append"]
        assert chat._explorer.slider.value == 2


class TestProgress:
    """A bar only where somebody watches."""

    def test_a_build_shows_none(self, monkeypatch):
        monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
        monkeypatch.setattr("paged_kv.widgets.progress.display", pytest.fail)
        assert list(progress("abc", 3)) == ["a", "b", "c"]

    def test_a_server_shows_how_far_it_is(self, monkeypatch):
        shown = []
        monkeypatch.setenv("JPY_SESSION_NAME", "lesson.ipynb")
        monkeypatch.setattr("paged_kv.widgets.progress.display", shown.append)
        values = [shown[0].value for _ in progress("abcd", 3)]
        assert values == [0, 1, 2, 3]
        assert shown[0].value == 3  # never beyond the whole
        assert shown[0].comm is None  # closed


def test_the_engine_and_the_chat_say_the_same(tiny, pool):
    words = Words()
    texts = list(Chat(tiny, words, pool, max_tokens=7).ask("hello"))
    engine = Engine(tiny, 32, 4)
    request = engine.submit(words.encode("hello"), max_tokens=7, stop=[words.end])
    engine.run()
    assert texts[-1] == words.decode(request.answers[0].tokens)


def test_draws_are_those_of_the_seed(tiny):
    def texts(seed):
        c = tiny.config
        pool = BlockPool(32, c.n_layers, c.n_kv_heads, c.head_dim, 4)
        chat = Chat(tiny, Words(), pool, temperature=2.0, seed=seed, max_tokens=12)
        return list(chat.ask("hello"))

    assert texts(1) == texts(1) != texts(2)
