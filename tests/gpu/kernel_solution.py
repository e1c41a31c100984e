"""A right solution of exercise 09.6, as a notebook's cells."""

SOURCE = """
import torch
from paged_kv.gpu.practice import launch, triton_for_exercise

triton, tl = triton_for_exercise()


@triton.jit
def paged_decode(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lens_ptr,
    out_ptr,
    scale,
    width,
    N_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    seq, kv_head = tl.program_id(0), tl.program_id(1)
    g, t, d = tl.arange(0, GROUP), tl.arange(0, BLOCK_SIZE), tl.arange(0, HEAD_DIM)
    rows = (seq * N_KV_HEADS + kv_head) * GROUP + g
    q = tl.load(q_ptr + rows[:, None] * HEAD_DIM + d[None, :])
    length = tl.load(lens_ptr + seq)
    m = tl.full([GROUP], float("-inf"), tl.float32)
    l = tl.zeros([GROUP], tl.float32)
    acc = tl.zeros([GROUP, HEAD_DIM], tl.float32)
    for i in range(tl.cdiv(length, BLOCK_SIZE)):
        block = tl.load(table_ptr + seq * width + i).to(tl.int64)
        valid = i * BLOCK_SIZE + t < length
        kv_rows = (block * BLOCK_SIZE + t) * N_KV_HEADS + kv_head
        offsets = kv_rows[:, None] * HEAD_DIM + d[None, :]
        k = tl.load(k_ptr + offsets, mask=valid[:, None], other=0)
        S = tl.dot(q, tl.trans(k)) * scale
        S = tl.where(valid[None, :], S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        alpha = tl.exp(m - m_new)
        P = tl.exp(S - m_new[:, None])
        l = l * alpha + tl.sum(P, 1)
        v = tl.load(v_ptr + offsets, mask=valid[:, None], other=0)
        acc = acc * alpha[:, None] + tl.dot(P, v)
        m = m_new
    tl.store(out_ptr + rows[:, None] * HEAD_DIM + d[None, :], acc / l[:, None])
"""
