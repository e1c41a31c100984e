"""The model runs on a student's own classes: those of the exercises' solutions."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import paged_kv
from paged_kv.audit import PoolCorrupted
from paged_kv.model import Engine, generate
from paged_kv.prefix_cache import PrefixCache
from tests.model.interrupts import interrupting

SOLUTIONS = Path(__file__).parents[2] / "solutions" / "en"


def solution(notebook: str) -> dict:
    """Run the cells that a student fills in, and return what they define."""
    text = (SOLUTIONS / notebook).read_text(encoding="utf-8")
    names = {"np": np, **vars(paged_kv)}
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "### BEGIN SOLUTION" in source:
            exec(compile(source, notebook, "exec"), names)
    return names


@pytest.fixture(scope="module")
def pools():
    return solution("09.1_block_pool.ipynb")


@pytest.fixture(scope="module")
def attentions():
    return solution("09.2_paged_attention.ipynb")


@pytest.fixture(scope="module")
def forks():
    return solution("09.3_prefix_sharing.ipynb")


@pytest.mark.parametrize("own_attention", [False, True])
@pytest.mark.parametrize("num_blocks", [32, 7])
def test_engine_on_pool_and_sequence_of_the_first_exercise(
    tiny, dense, pools, attentions, own_attention, num_blocks
):
    calls = []

    def counted(*args):
        calls.append(args)
        return attentions["paged_attention"](*args)

    engine = Engine(
        tiny,
        num_blocks,
        4,
        pool_type=pools["BlockPool"],
        sequence_type=pools["Sequence"],
        max_batch=3,
        token_budget=8,
        **({"attention": counted} if own_attention else {}),
    )
    assert type(engine.pool) is pools["BlockPool"]
    requests = [engine.submit([i, 7, 3, i, 9], max_tokens=12) for i in range(4)]
    while engine.running or engine.waiting:
        engine.step()
        engine.check()
    for request in requests:
        assert request.answers[0].tokens == dense.answer(request.prompt, 12)
    assert bool(engine.preemptions) == (num_blocks == 7)
    assert engine.pool.used == 0
    assert bool(calls) == own_attention


def test_generate_on_the_first_two_exercises(tiny, dense, pools, attentions):
    c = tiny.config
    pool = pools["BlockPool"](16, c.n_layers, c.n_kv_heads, c.head_dim, 4)
    tokens = list(
        generate(
            tiny,
            [5, 4, 3, 2, 1],
            pool,
            max_tokens=10,
            sequence_type=pools["Sequence"],
            attention=attentions["paged_attention"],
        )
    )
    assert tokens == dense.answer([5, 4, 3, 2, 1], 10)
    assert pool.used == 0


def test_forks_of_the_third_exercise(tiny, dense, forks, attentions):
    engine = Engine(
        tiny,
        64,
        4,
        sequence_type=forks["Sequence"],
        attention=attentions["paged_attention"],
        max_batch=6,
    )
    prefix = list(range(10))
    engine.share(prefix)
    requests = [engine.submit([*prefix, 20 + i], max_tokens=6, n=2) for i in range(3)]
    while engine.running or engine.waiting:
        engine.step()
        engine.check()
    for request in requests:
        expected = dense.answer(request.prompt, 6)
        assert [a.tokens for a in request.answers] == [expected] * 2
    engine.close()
    assert engine.pool.used == 0


class WithoutCopy(paged_kv.Sequence):
    """Writes into a shared tail as if it were its own."""

    def _tail_is_shared(self):
        return False


class Trusting(paged_kv.BlockPool):
    """Writes wherever it is told to."""

    def write(self, layer, slots, K, V):
        for store, rows in ((self.k, K), (self.v, V)):
            store[layer].reshape(-1, self.n_kv_heads, self.head_dim)[slots] = rows


class TestWithoutCopyOnWrite:
    """One reader is answered what another one asked; and who would have noticed."""

    PREFIX = tuple(range(10))
    QUESTIONS = ([30, 31], [40, 41], [50, 51])

    def answers(self, tiny, **types):
        engine = Engine(tiny, 64, 4, token_budget=17, **types)
        engine.share(self.PREFIX)
        requests = [
            engine.submit([*self.PREFIX, *question], max_tokens=6)
            for question in self.QUESTIONS
        ]
        engine.run()
        return [request.answers[0].tokens for request in requests]

    def test_the_last_to_write_speaks_for_all(self, tiny, dense):
        expected = [dense.answer([*self.PREFIX, *q], 6) for q in self.QUESTIONS]
        assert self.answers(tiny) == expected
        broken = self.answers(tiny, sequence_type=WithoutCopy, pool_type=Trusting)
        assert broken[-1] == expected[-1]
        assert broken[0] != expected[0]
        assert broken[1] != expected[1]

    def test_the_pool_refuses_to_write_into_a_shared_block(self, tiny):
        with pytest.raises(ValueError, match="only a block with one owner"):
            self.answers(tiny, sequence_type=WithoutCopy)


class TestWhatDoesNotGoTogether:
    """Refused when the engine is made or the request submitted, not in the middle."""

    def test_our_sequence_over_another_pool(self, tiny, pools):
        with pytest.raises(ValueError, match="give sequence_type as well"):
            Engine(tiny, pool_type=pools["BlockPool"])

    def test_a_cache_over_another_sequence(self, tiny, forks):
        with pytest.raises(ValueError, match="own sequences"):
            Engine(tiny, sequence_type=forks["Sequence"], cache_type=PrefixCache)

    def test_several_answers_without_fork(self, tiny, pools):
        kinds = {"pool_type": pools["BlockPool"], "sequence_type": pools["Sequence"]}
        engine = Engine(tiny, 64, 4, **kinds)
        with pytest.raises(ValueError, match="`fork`"):
            engine.submit([1], n=2)
        with pytest.raises(ValueError, match="`fork`"):
            engine.share([1, 2])
        assert engine.pool.used == 0


class OneBlockEach:
    """The smallest pool and sequence that a model can run on."""

    class Pool:
        def __init__(self, num_blocks, n_layers, n_kv_heads, head_dim, block_size=16):
            shape = (n_layers, num_blocks, block_size, n_kv_heads, head_dim)
            self.k, self.v = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
            self.ref = np.zeros(num_blocks, np.int32)

        @property
        def free(self):
            return int((self.ref == 0).sum())

    class Sequence:
        def __init__(self, pool, seq_id):
            self.pool, self.block_table, self.length = pool, [], 0

        def __len__(self):
            return self.length

        def append(self, k, v):
            if self.length % self.pool.k.shape[2] == 0:
                self.take()
            self.length += 1

        def take(self):
            block = int(np.flatnonzero(self.pool.ref == 0)[0])
            self.pool.ref[block] += 1
            self.block_table.append(block)

        def free(self):
            np.subtract.at(self.pool.ref, self.block_table, 1)
            self.block_table = []


class ForksAsWell(OneBlockEach.Sequence):
    """With `fork`, and a name to be told by."""

    def __init__(self, pool, name):
        super().__init__(pool, name)
        self.name = name

    def append(self, k, v):
        if self.length % 4 and self.pool.ref[self.block_table[-1]] > 1:
            self.take()
            *_, shared, own = self.block_table
            for store in (self.pool.k, self.pool.v):
                store[:, own] = store[:, shared]
            del self.block_table[-2]
            self.pool.ref[shared] -= 1
        super().append(k, v)

    def fork(self, name):
        child = ForksAsWell(self.pool, name)
        child.block_table, child.length = list(self.block_table), self.length
        np.add.at(self.pool.ref, self.block_table, 1)
        return child


class TestMistakes:
    """A student's class with a bug: the message or the audit points at it."""

    def engine(self, tiny, sequence, pool=OneBlockEach.Pool):
        kinds = {"pool_type": pool, "sequence_type": sequence}
        return Engine(tiny, 16, 4, **kinds)

    def test_without_a_bug(self, tiny, dense):
        engine = self.engine(tiny, OneBlockEach.Sequence)
        request = engine.submit([1, 2, 3, 4, 5], max_tokens=9)
        engine.run()
        engine.check()
        assert request.answers[0].tokens == dense.answer([1, 2, 3, 4, 5], 9)

    def test_blocks_that_are_never_given_back(self, tiny):
        class Hoards(OneBlockEach.Sequence):
            def free(self):
                self.block_table = []

        engine = self.engine(tiny, Hoards)
        engine.submit([1, 2, 3], max_tokens=3)
        engine.run()
        with pytest.raises(PoolCorrupted, match="block 0: count 1, listed 0 times"):
            engine.check()

    def test_a_block_in_two_tables(self, tiny):
        class TakesTheFirst(OneBlockEach.Sequence):
            def take(self):
                self.block_table.append(0)
                self.pool.ref[0] = 1

        engine = self.engine(tiny, TakesTheFirst)
        for _ in range(2):
            engine.submit([1, 2], max_tokens=3)
        engine.step()
        with pytest.raises(PoolCorrupted, match="block 0: count 1, listed 2 times"):
            engine.check()

    def test_free_blocks_that_are_miscounted(self, tiny):
        class Optimist(OneBlockEach.Pool):
            @property
            def free(self):
                return len(self.ref)

        engine = self.engine(tiny, OneBlockEach.Sequence, Optimist)
        engine.submit([1, 2], max_tokens=3)
        engine.step()
        with pytest.raises(PoolCorrupted, match="15 blocks have no references, free"):
            engine.check()

    def test_a_block_that_the_pool_does_not_have(self, tiny):
        engine = self.engine(tiny, OneBlockEach.Sequence)
        request = engine.submit([1, 2], max_tokens=3)
        engine.step()
        request.answers[0].seq.block_table[0] = 99
        with pytest.raises(PoolCorrupted, match=r"blocks outside 0…15: \[99\]"):
            engine.check()

    def test_a_length_that_stands_still(self, tiny):
        class Forgets(OneBlockEach.Sequence):
            def append(self, k, v):
                if not self.block_table:
                    self.take()

        engine = self.engine(tiny, Forgets)
        engine.submit([1, 2, 3], max_tokens=2)
        with pytest.raises(ValueError, match=r"Forgets.append .* from 0 to 0"):
            engine.run()

    def test_a_table_that_is_too_short(self, tiny):
        class Overfills(OneBlockEach.Sequence):
            def append(self, k, v):
                if not self.block_table:
                    self.take()
                self.length += 1

        engine = self.engine(tiny, Overfills)
        engine.submit([1, 2, 3, 4, 5], max_tokens=2)
        with pytest.raises(ValueError, match=r"5 tokens need 2 blocks, .* lists 1"):
            engine.run()

    @pytest.mark.parametrize(
        ("pool", "sequence", "message"),
        [
            (OneBlockEach.Pool, object, "append, free, __len__ of object"),
            (lambda *_: object(), OneBlockEach.Sequence, "k, v, ref, free of object"),
        ],
    )
    def test_what_is_missing_is_named_before_anything_runs(
        self, tiny, pool, sequence, message
    ):
        with pytest.raises(TypeError, match=message):
            self.engine(tiny, sequence, pool)


class TestInterrupts:
    """Wherever a step is interrupted, the next ones give the answers all the same."""

    @pytest.mark.parametrize("num_blocks", [64, 9])
    @pytest.mark.parametrize(
        ("where", "when"),
        [
            ("forward", "before"),
            ("forward", "after"),
            ("logits", "before"),
            ("logits", "after"),
            ("attention", "before"),
            ("attention", "after"),
            ("append", "before"),
            ("append", "after"),
            ("take", "before"),
            ("take", "after"),  # in the middle of an append
            ("fork", "before"),
            ("free", "after"),
        ],
    )
    def test_of_a_step(self, tiny, dense, monkeypatch, where, when, num_blocks):
        for at in itertools.count(1, 1 if where in {"fork", "free"} else 3):
            with monkeypatch.context() as patch:
                engine, seen = self.engine(tiny, num_blocks)
                owner = {
                    "forward": tiny,
                    "logits": tiny,
                    "attention": engine,
                }.get(where, ForksAsWell)
                name = "_attention" if where == "attention" else where
                hook = interrupting(getattr(owner, name), at, when)
                patch.setattr(owner, name, hook)
                requests = [
                    engine.submit([i, 7, 3, 5, 9], max_tokens=most, n=n)
                    for i, (n, most) in enumerate([(1, 7), (3, 7), (2, 1), (1, 7)])
                ]
                try:
                    engine.run()
                except KeyboardInterrupt:
                    engine.check()
                else:
                    break
                self.run_checked(engine)
            for request in requests:
                expected = dense.answer(request.prompt, request.max_tokens)
                assert [a.tokens for a in request.answers] == [expected] * request.n
                fed_back = range(6, 5 + request.max_tokens)
                # The student's attention saw each token that was fed back; those of
                # a preempted answer are computed anew as a prompt.
                for answer in request.answers:
                    expected = itertools.product([answer.name], fed_back, range(2))
                    assert answer.preemptions or seen.issuperset(expected)
            assert engine.pool.free == num_blocks
        assert at > 1

    def engine(self, tiny, num_blocks):
        seen = set()

        def attention(pool, seq, layer, q, scale):
            seen.add((seq.name, len(seq), layer))
            K, V = (
                store[layer, seq.block_table].reshape(-1, *store.shape[3:])[: len(seq)]
                for store in (pool.k, pool.v)
            )
            return paged_kv.reference_attention(K, V, q, scale)

        engine = Engine(
            tiny,
            num_blocks,
            4,
            pool_type=OneBlockEach.Pool,
            sequence_type=ForksAsWell,
            attention=attention,
            max_batch=4,
            token_budget=7,
        )
        return engine, seen

    def run_checked(self, engine):
        while engine.running or engine.waiting:
            engine.step()
            engine.check()
