"""Workloads with shared prefixes, the reader of traces, and the replay of both."""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from paged_kv import BlockPool, OutOfBlocks
from paged_kv.caching import NeverFits
from paged_kv.prefix_cache import PrefixCache
from paged_kv.radix_cache import RadixCache
from paged_kv.serving import TraceError
from paged_kv.serving.prefix_workload import (
    PREFIX_WORKLOADS,
    PrefixRequest,
    chat,
    few_shot,
    read_prefix_trace,
    replay,
    system_prompts,
    tree_of_thought,
)

CACHES = [PrefixCache, RadixCache]
TRACE = Path(__file__).parents[3] / "shared/traces/mooncake_synthetic.jsonl"


def pool_of(num_blocks, block_size):
    return BlockPool(num_blocks, 1, 1, 1, block_size, np.float16)


def cached_tokens(*arguments, **options):
    return [served.n_cached for served in replay(*arguments, **options)]


def begins_with(longer, shorter):
    return np.array_equal(longer[: len(shorter)], shorter)


@pytest.mark.parametrize("name", PREFIX_WORKLOADS)
def test_seed_decides_and_n_is_kept(name):
    make = PREFIX_WORKLOADS[name]
    first, again, other = list(make(40)), list(make(40)), list(make(40, seed=1))
    assert len(first) == len(other) == 40
    assert all(
        begins_with(a.prompt, b.prompt) for a, b in zip(first, again, strict=True)
    )
    assert not begins_with(first[0].prompt, other[0].prompt)
    for request in first:
        assert request.prompt.dtype == request.answer.dtype == np.int64
        assert len(request.prompt)
        assert request.name
    with pytest.raises(ValueError, match="n must be"):
        next(make(0))


def test_system_prompts_share_only_the_instruction():
    requests = list(system_prompts(60, kinds=2, system=100, question=10))
    heads = {request.name: [] for request in requests}
    for request in requests:
        heads[request.name].append(request.prompt)
    assert len(heads) == 2
    for prompts in heads.values():
        together = np.stack([prompt[:70] for prompt in prompts])
        assert (together == together[0]).all()
        assert len({prompt.tobytes() for prompt in prompts}) == len(prompts)
    assert len(heads["instruction 0"]) > len(heads["instruction 1"])


def test_few_shot_prompts_are_nested():
    for a in (requests := list(few_shot(30, question=5))):
        for b in requests:
            if a.name.split(",")[0] == b.name.split(",")[0] and len(a.prompt) < len(
                b.prompt
            ):
                shared = len(a.prompt) - 20  # but for the question
                assert begins_with(b.prompt, a.prompt[:shared])


def test_turn_of_a_chat_begins_with_the_one_before_and_its_answer():
    said = {}
    for request in chat(200, active=5):
        name, turn = request.name.split(", turn ")
        if turn != "1":
            assert begins_with(request.prompt, said[name])
        said[name] = np.concatenate([request.prompt, request.answer])
    assert len(said) > 5


def test_thoughts_branch_and_every_level_is_complete():
    requests = list(tree_of_thought(39, branching=3, depth=3))
    assert len({request.prompt.tobytes() for request in requests}) == 1 + 3 + 9
    for parent, child in ((0, 3), (1, 6), (2, 9), (3, 12)):
        path = [requests[parent].prompt, requests[parent].answer]
        assert np.array_equal(requests[child].prompt, np.concatenate(path))


class TestTrace:
    ROW = '{"timestamp": %d, "input_length": %d, "output_length": 3, "hash_ids": %s}'

    def test_ids_become_tokens_and_equal_ids_equal_prefixes(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        rows = [self.ROW % (0, 700, [0, 1]), "", self.ROW % (5, 1024, [0, 7])]
        path.write_text("\n".join(rows))
        first, second = read_prefix_trace(path)
        assert (len(first.prompt), len(second.prompt)) == (700, 1024)
        assert np.array_equal(first.prompt[:512], second.prompt[:512])
        assert first.prompt[512] != second.prompt[512]
        assert len(set(second.prompt.tolist())) == 1024
        answers = set(first.answer.tolist()) | set(second.answer.tolist())
        assert len(answers) == 6
        assert not answers & set(second.prompt.tolist())
        assert first.name == "trace.jsonl line 1"

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{", "line 2: not JSON: .* at character 2"),
            ("[" * 100_000, "line 2: not JSON"),
            (ROW % (1, 5, f"[{'9' * 5000}]"), "line 2: not JSON"),
            ("\udcff", "line 2: not UTF-8"),
            (ROW.replace("3", str(10**12)) % (1, 5, [1]), "output_length .* < 1677"),
            ("[1]", r"line 2: must be an object \{…\}, got '\[1\]'"),
            ("{}", "line 2: timestamp must be a whole number >= 0 .* got None"),
            (ROW % (-1, 5, [1]), "timestamp must be"),
            (ROW % (1, 0, []), "input_length must be a whole number >= 1 .* got 0"),
            (ROW.replace("3", "true") % (1, 5, [1]), "output_length .* got True"),
            (ROW % (1, 5, '["a"]'), "hash_ids must be a list"),
            (ROW % (1, 5, "[-1]"), "hash_ids must be a list"),
            (ROW % (1, 5, 9), "hash_ids must be a list"),
            (ROW % (1, 5, 1 << 60), "hash_ids"),
            (ROW % (1, 513, [1]), "513 tokens need 2 hash_ids .* got 1"),
            (ROW % (1, 512, [1, 2]), "512 tokens need 1 hash_ids .* got 2"),
        ],
    )
    def test_bad_line_is_named(self, tmp_path, line, message):
        path = tmp_path / "trace.jsonl"
        text = self.ROW % (0, 5, [0]) + "\n" + line + "\n"
        path.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(TraceError, match=message):
            list(read_prefix_trace(path))

    def test_time_never_goes_back(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        path.write_text(self.ROW % (9, 5, [0]) + "\n" + self.ROW % (8, 5, [0]))
        with pytest.raises(TraceError, match="line 2: timestamp 8 after 9"):
            list(read_prefix_trace(path))

    def test_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            list(read_prefix_trace(tmp_path / "none.jsonl"))

    @pytest.mark.skipif(not TRACE.exists(), reason="the public trace is not here")
    @pytest.mark.parametrize("make", CACHES)
    def test_unlimited_cache_finds_what_the_ids_promise(self, make):
        rows = [json.loads(line) for line in TRACE.read_text().splitlines()][:400]
        seen, hits = set(), 0
        for row in rows:
            ids = row["hash_ids"]
            full = (row["input_length"] - 1) // 512
            while full and ids[full - 1] not in seen:
                full -= 1
            hits += full
            seen.update(ids[: row["input_length"] // 512])
        cache = make(pool_of(60_000, 512))
        found = cached_tokens(cache, islice(read_prefix_trace(TRACE), 400))
        assert sum(found) == hits * 512
        cache.pool.check(holders=[cache])


class TestReplay:
    def requests(self, *prompts, answer=()):
        return [
            PrefixRequest(np.array(p), np.array(answer, np.int64), str(i))
            for i, p in enumerate(prompts)
        ]

    @pytest.mark.parametrize("make", CACHES)
    @pytest.mark.parametrize("name", PREFIX_WORKLOADS)
    @pytest.mark.parametrize("num_blocks", [110, 800])
    def test_books_are_sound_and_hits_add_up(self, make, name, num_blocks):
        cache = make(pool_of(num_blocks, 16))
        requests = list(PREFIX_WORKLOADS[name](60))
        found = cached_tokens(cache, requests, running=4)
        cache.pool.check(holders=[cache])
        cache.check()
        assert sum(found) == cache.stats.hit_tokens
        assert cache.stats.lookups == len(found) == 60
        assert cache.stats.lookup_tokens == sum(len(r.prompt) for r in requests)

    @pytest.mark.parametrize("make", CACHES)
    def test_answers_are_cached_too(self, make):
        cache = make(pool_of(16, 2))
        requests = self.requests([1, 2], [1, 2, 3, 4, 9], answer=[3, 4])
        assert cached_tokens(cache, requests) == [0, 4]

    @pytest.mark.parametrize("make", CACHES)
    def test_longest_prefix_goes_first_ties_to_the_oldest(self, make):
        cache = make(pool_of(64, 1))
        prompts = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [4, 5, 0], [1, 2, 0]]
        found = replay(
            cache, self.requests(*prompts), waiting=4, longest_prefix_first=True
        )
        assert found == [(0, 0), (4, 2), (1, 0), (3, 2), (2, 0)]
        cache = make(pool_of(64, 1))
        assert cached_tokens(cache, self.requests(*prompts), waiting=4) == [
            0,
            0,
            0,
            2,
            2,
        ]

    @pytest.mark.parametrize("make", CACHES)
    def test_running_requests_finish_early_for_want_of_room(self, make):
        cache = make(pool_of(8, 1))
        prompts = [[i, i + 1, i + 2] for i in range(0, 60, 3)]
        found = cached_tokens(cache, self.requests(*prompts, answer=[99]), running=5)
        assert found == [0] * 20
        cache.pool.check(holders=[cache])

    @pytest.mark.parametrize("make", CACHES)
    def test_what_never_fits_is_an_error(self, make):
        cache = make(pool_of(4, 1))
        with pytest.raises(NeverFits):
            replay(cache, self.requests([1], [1, 2, 3, 4, 5]), running=2)
        cache = make(pool_of(4, 1))
        with pytest.raises(OutOfBlocks):
            replay(cache, self.requests([1, 2, 3, 4], answer=[5]))

    @pytest.mark.parametrize("bad", [{"running": 0}, {"waiting": 0}])
    def test_numbers_are_checked(self, bad):
        with pytest.raises(ValueError, match=next(iter(bad))):
            replay(PrefixCache(pool_of(4, 1)), [], **bad)
