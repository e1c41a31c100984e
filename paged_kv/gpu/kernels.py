"""The Triton kernels. Import them only through `launch`: see `interpreter`.

A program instance of `decode_kernel` is (sequence, KV head, split). It takes the query
heads of one KV head together, walks its part of the block table and leaves an
attention state (out, lse); `merge_kernel` merges the splits of a sequence.
"""

import triton
import triton.language as tl


@triton.jit
def attend_tile(
    q,
    k_head,
    v_head,
    k_scale,
    v_scale,
    table,
    stride_block,
    stride_slot,
    start,
    end,
    scale,
    m,
    l,
    acc,
    N_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    IS_LAST: tl.constexpr,
    IS_INT8: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take the tokens start … start + TILE − 1 into the running m, l, acc.

    Only the last tile is masked: slots beyond the sequence are not loaded at all.
    """
    t = start + tl.arange(0, TILE)
    d = tl.arange(0, q.shape[1])
    mask = d[None, :] < HEAD_DIM
    if IS_LAST:
        mask = mask & (t[:, None] < end)
        block = tl.load(table + t // BLOCK_SIZE, mask=t < end, other=0)
    else:
        block = tl.load(table + t // BLOCK_SIZE)
    # int64: block 7768 times a stride of 276480 elements does not fit 32 bits.
    block = block.to(tl.int64)
    offsets = (block * stride_block + t % BLOCK_SIZE * stride_slot)[:, None] + d[
        None, :
    ]
    k = tl.load(k_head + offsets, mask=mask, other=0).to(tl.float32)
    S = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    if IS_INT8:
        S *= tl.load(k_scale + block * N_KV_HEADS, mask=t < end, other=0)[None, :]
    if IS_LAST:
        S = tl.where(t[None, :] < end, S, float("-inf"))
    m_new = tl.maximum(m, tl.max(S, 1))
    alpha = tl.exp(m - m_new)
    P = tl.exp(S - m_new[:, None])
    l = l * alpha + tl.sum(P, 1)
    if IS_INT8:
        P *= tl.load(v_scale + block * N_KV_HEADS, mask=t < end, other=0)[None, :]
    v = tl.load(v_head + offsets, mask=mask, other=0).to(tl.float32)
    acc = acc * alpha[:, None] + tl.dot(P, v, input_precision=PRECISION)
    return m_new, l, acc


@triton.jit
def decode_kernel(
    q_ptr,
    k_cache,
    v_cache,
    k_scale,
    v_scale,
    block_tables,
    seq_lens,
    out,
    lse,
    scale,
    split_tokens,
    stride_q_seq,
    stride_q_head,
    stride_block,
    stride_slot,
    stride_head,
    stride_table,
    N_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    IS_INT8: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Attend to one split of one sequence for the query heads of one KV head.

    out (num_seqs, n_heads, num_splits, HEAD_DIM) and lse (num_seqs, n_heads,
    num_splits) are float32 and contiguous.
    """
    seq = tl.program_id(0).to(tl.int64)
    kv_head, split = tl.program_id(1), tl.program_id(2)
    g, d = tl.arange(0, GROUP_PAD), tl.arange(0, HEAD_DIM_PAD)
    head = kv_head * GROUP + g
    mask = (g[:, None] < GROUP) & (d[None, :] < HEAD_DIM)
    q_rows = q_ptr + seq * stride_q_seq + head * stride_q_head
    q = tl.load(q_rows[:, None] + d[None, :], mask=mask, other=0).to(tl.float32)

    length = tl.load(seq_lens + seq)
    begin = split * split_tokens
    end = tl.minimum(begin + split_tokens, length)
    last = begin + tl.maximum(end - begin, 0) // TILE * TILE
    table = block_tables + seq * stride_table
    k_head, v_head = k_cache + kv_head * stride_head, v_cache + kv_head * stride_head
    k_scale, v_scale = k_scale + kv_head, v_scale + kv_head
    m = tl.full([GROUP_PAD], float("-inf"), tl.float32)
    l = tl.zeros([GROUP_PAD], tl.float32)
    acc = tl.zeros([GROUP_PAD, HEAD_DIM_PAD], tl.float32)
    # fmt: off
    for start in range(begin, last, TILE):
        m, l, acc = attend_tile(
            q, k_head, v_head, k_scale, v_scale, table, stride_block, stride_slot,
            start, end, scale, m, l, acc,
            N_KV_HEADS, HEAD_DIM, BLOCK_SIZE, TILE, False, IS_INT8, PRECISION,
        )
    if last < end:
        m, l, acc = attend_tile(
            q, k_head, v_head, k_scale, v_scale, table, stride_block, stride_slot,
            last, end, scale, m, l, acc,
            N_KV_HEADS, HEAD_DIM, BLOCK_SIZE, TILE, True, IS_INT8, PRECISION,
        )
    # fmt: on
    # Nothing seen (an empty sequence, or one that ends before this split): 0 and −inf.
    divisor = tl.where(l > 0, l, 1)
    state = (seq * (N_KV_HEADS * GROUP) + head) * tl.num_programs(2) + split
    tl.store(out + state[:, None] * HEAD_DIM + d[None, :], acc / divisor[:, None], mask)
    tl.store(lse + state, m + tl.log(divisor), g < GROUP)


@triton.jit
def merge_kernel(
    part_out,
    part_lse,
    out,
    lse,
    num_splits,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PAD: tl.constexpr,
):
    """Merge the splits of one query head: an online softmax over states."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, HEAD_DIM_PAD)
    m = tl.load(part_lse + row * num_splits)
    l = (m == m).to(tl.float32)  # 1, also for an empty state
    acc = tl.load(part_out + row * num_splits * HEAD_DIM + d, mask=d < HEAD_DIM)
    for split in range(1, num_splits):
        state = row * num_splits + split
        part = tl.load(part_lse + state)
        if part > float("-inf"):  # an empty split changes nothing
            m_new = tl.maximum(m, part)
            alpha, weight = tl.exp(m - m_new), tl.exp(part - m_new)
            l = l * alpha + weight
            values = tl.load(part_out + state * HEAD_DIM + d, mask=d < HEAD_DIM)
            acc = acc * alpha + values * weight
            m = m_new
    tl.store(out + row * HEAD_DIM + d, acc / l, mask=d < HEAD_DIM)
    tl.store(lse + row, m + tl.log(l))
