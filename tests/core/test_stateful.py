"""Random operations on pool and sequences, against a model that only keeps tokens.

The model of a sequence is the list of the tokens it was given; blocks and counts are
derived from the real tables by `check`. K and V of a token are made from its number,
so any wrong read shows.
"""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from paged_kv import BlockPool, OutOfBlocks, Sequence, gather_kv

N_LAYERS, N_KV_HEADS, HEAD_DIM = 2, 3, 2
COUNT = st.integers(0, 9)


def kv_of(tokens):
    """Return K and V, (n_layers, T, n_kv_heads, head_dim), a value for each place."""
    places = np.arange(N_LAYERS * N_KV_HEADS * HEAD_DIM, dtype=np.float32)
    grid = places.reshape(N_LAYERS, 1, N_KV_HEADS, HEAD_DIM)
    K = np.asarray(tokens, np.float32)[None, :, None, None] * 100 + grid
    return K, -K - 0.5


class PoolMachine(RuleBasedStateMachine):
    live = Bundle("live")

    @initialize(bs=st.sampled_from([1, 2, 3, 4]), num_blocks=st.integers(1, 12))
    def start(self, bs, num_blocks):
        self.pool = BlockPool(num_blocks, N_LAYERS, N_KV_HEADS, HEAD_DIM, bs)
        self.pool.k[:] = np.nan
        self.pool.v[:] = np.nan
        self.tokens = {}  # sequence → the tokens it should hold
        self.next_token = 0
        self.highest = 0

    def new_tokens(self, n):
        self.next_token += n
        return list(range(self.next_token - n, self.next_token))

    def room(self, seq, n):
        """Return whether n more tokens fit, from the tables of everybody."""
        bs, length = self.pool.block_size, len(self.tokens[seq])
        held = {b for s in self.tokens for b in s.block_table}
        needed = -(-(length + n) // bs) - -(-length // bs)
        if n and length % bs:
            tail = seq.block_table[-1]
            needed += sum(tail in s.block_table for s in self.tokens) > 1
        assert seq.blocks_needed(n) == needed
        return needed <= self.pool.num_blocks - len(held)

    def attempt(self, seq, tokens, write):
        if self.room(seq, len(tokens)):
            write()
            self.tokens[seq] = self.tokens[seq] + tokens
            return
        try:
            write()
        except OutOfBlocks:
            return
        raise AssertionError("wrote without room")

    @rule(target=live)
    def new(self):
        seq = Sequence(self.pool, f"s{len(self.tokens)}")
        self.tokens[seq] = []
        return seq

    @rule(seq=live)
    def append(self, seq):
        tokens = self.new_tokens(1)
        K, V = kv_of(tokens)

        def write():
            block = seq.append(K[:, 0], V[:, 0])
            assert block == seq.block_table[-1]

        self.attempt(seq, tokens, write)

    @rule(seq=live, n=COUNT)
    def extend(self, seq, n):
        tokens = self.new_tokens(n)
        self.attempt(seq, tokens, lambda: seq.extend(*kv_of(tokens)))

    @rule(seq=live, n=COUNT)
    def reserve_and_write(self, seq, n):
        tokens = self.new_tokens(n)
        K, V = kv_of(tokens)

        def write():
            slots = seq.reserve(n)
            for layer in range(N_LAYERS):
                self.pool.write(layer, slots, K[layer], V[layer])

        self.attempt(seq, tokens, write)

    @rule(seq=live, bad=st.sampled_from(["shape", "nan"]))
    def rejected_write(self, seq, bad):
        K, V = kv_of([0])
        V = V[..., :1] if bad == "shape" else V * np.nan
        for call in (
            lambda: seq.extend(K, V),
            lambda: seq.append(K[:, 0], V[:, 0]),
        ):
            try:
                call()
            except ValueError:
                continue
            raise AssertionError("took a bad value")

    @rule(target=live, seq=live)
    def fork(self, seq):
        child = seq.fork(f"s{len(self.tokens)}")
        self.tokens[child] = list(self.tokens[seq])
        return child

    @rule(seq=live, keep=st.floats(0, 1))
    def truncate(self, seq, keep):
        n = round(keep * len(seq))
        seq.truncate(n)
        self.tokens[seq] = self.tokens[seq][:n]

    @rule(seq=consumes(live))
    def free(self, seq):
        seq.free()
        del self.tokens[seq]

    @invariant()
    def books_are_sound(self):
        if not hasattr(self, "pool"):
            return
        self.pool.check(self.tokens)
        self.highest = max(self.highest, self.pool.used)
        assert self.pool.peak >= self.highest
        assert self.pool.used == len({b for s in self.tokens for b in s.block_table})

    @invariant()
    def everybody_reads_her_own_tokens(self):
        if not hasattr(self, "pool"):
            return
        for seq, tokens in self.tokens.items():
            assert len(seq) == len(tokens)
            K, V = kv_of(tokens)
            for layer in range(N_LAYERS):
                got_k, got_v = gather_kv(self.pool, seq, layer)
                assert np.array_equal(got_k, K[layer])
                assert np.array_equal(got_v, V[layer])


PoolMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None
)
TestPoolMachine = PoolMachine.TestCase
