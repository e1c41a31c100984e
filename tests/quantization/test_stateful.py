"""Random operations on a quantised pool, against a model that codes full blocks.

The model of a sequence is a list of blocks, each a plain array of the tokens as they
read back. A block that reaches `block_size` tokens is passed through the quantiser,
once. The model knows nothing of tables, counts or exact tails.
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

from paged_kv import OutOfBlocks, Sequence, gather_kv
from paged_kv.quantization import QuantizedBlockPool

from .schemes import QUANTIZERS

N_LAYERS, N_KV_HEADS, HEAD_DIM = 2, 2, 8
COUNT = st.integers(0, 9)


class QuantizedPoolMachine(RuleBasedStateMachine):
    live = Bundle("live")

    @initialize(
        bs=st.sampled_from([1, 2, 3, 4]),
        num_blocks=st.integers(2, 12),
        quantizers=st.tuples(*[st.sampled_from(QUANTIZERS)] * 2),
        seed=st.integers(0, 2**32 - 1),
    )
    def start(self, bs, num_blocks, quantizers, seed):
        self.quantizers = quantizers
        self.pool = QuantizedBlockPool(
            num_blocks,
            N_LAYERS,
            N_KV_HEADS,
            HEAD_DIM,
            bs,
            k_quantizer=quantizers[0],
            v_quantizer=quantizers[1],
        )
        self.rng = np.random.default_rng(seed)
        self.blocks = {}  # sequence → [(2, n_layers, tokens, n_kv_heads, head_dim)]

    def kv(self, n):
        shape = (2, N_LAYERS, n, N_KV_HEADS, HEAD_DIM)
        size = 10.0 ** self.rng.integers(-2, 3)
        return self.rng.normal(scale=size, size=shape).astype(np.float32)

    def coded(self, block):
        return np.stack(
            [
                np.stack([q.dequantize(*q.quantize(layer)) for layer in tensor])
                for q, tensor in zip(self.quantizers, block, strict=True)
            ]
        )

    def attempt(self, seq, kv, write):
        try:
            write()
        except OutOfBlocks:
            return
        bs = self.pool.block_size
        blocks = self.blocks[seq] = list(self.blocks[seq])
        for i in range(kv.shape[2]):
            token = kv[:, :, i : i + 1]
            if blocks and blocks[-1].shape[2] < bs:
                blocks[-1] = np.concatenate([blocks[-1], token], axis=2)
            else:
                blocks.append(token)
            if blocks[-1].shape[2] == bs:
                blocks[-1] = self.coded(blocks[-1])

    @rule(target=live)
    def new(self):
        seq = Sequence(self.pool, f"s{len(self.blocks)}")
        self.blocks[seq] = []
        return seq

    @rule(seq=live)
    def append(self, seq):
        kv = self.kv(1)
        self.attempt(seq, kv, lambda: seq.append(*kv[:, :, 0]))

    @rule(seq=live, n=COUNT)
    def extend(self, seq, n):
        kv = self.kv(n)
        self.attempt(seq, kv, lambda: seq.extend(*kv))

    @rule(seq=live, n=COUNT, cut=COUNT)
    def reserve_and_write(self, seq, n, cut):
        kv = self.kv(n)

        def write():
            slots = seq.reserve(n)
            for part in (slice(None, cut), slice(cut, None)):
                for layer in range(N_LAYERS):
                    k, v = kv[:, layer, part]
                    self.pool.write(layer, slots[part], k, v)

        self.attempt(seq, kv, write)

    @rule(target=live, seq=live)
    def fork(self, seq):
        child = seq.fork(f"s{len(self.blocks)}")
        self.blocks[child] = list(self.blocks[seq])
        return child

    @rule(seq=live, keep=st.floats(0, 1))
    def truncate(self, seq, keep):
        n = round(keep * len(seq))
        seq.truncate(n)
        bs = self.pool.block_size
        kept = self.blocks[seq][: -(-n // bs)]
        if n % bs:
            kept[-1] = kept[-1][:, :, : n % bs]
        self.blocks[seq] = kept

    @rule(seq=consumes(live))
    def free(self, seq):
        seq.free()
        del self.blocks[seq]

    @invariant()
    def books_and_memory_are_sound(self):
        if not hasattr(self, "pool"):
            return
        self.pool.check(self.blocks)
        tails = {s.block_table[-1] for s in self.blocks if len(s)}
        assert set(self.pool.open) <= tails

    @invariant()
    def everybody_reads_her_own_tokens(self):
        if not hasattr(self, "pool"):
            return
        for seq, blocks in self.blocks.items():
            assert len(seq) == sum(block.shape[2] for block in blocks)
            if not blocks:
                continue
            tokens = np.concatenate(blocks, axis=2)
            for layer in range(N_LAYERS):
                got = gather_kv(self.pool, seq, layer)
                assert np.array_equal(got, tokens[:, layer])


QuantizedPoolMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None
)
TestQuantizedPoolMachine = QuantizedPoolMachine.TestCase
