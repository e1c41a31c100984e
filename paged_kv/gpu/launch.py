"""How the Triton kernels are started: grid, tile, splits. Imports Triton."""

from __future__ import annotations

import torch

from paged_kv.gpu.interpreter import import_triton, is_interpreted

triton = import_triton()  # before the kernels are defined: see `interpreter`

from paged_kv.gpu.kernels import decode_kernel, merge_kernel  # noqa: E402

#: Tokens per step of the loop, on a device and in the interpreter, where a step costs
#: the same whatever its size.
TILE, TILE_INTERPRETED = 64, 256
#: A split shorter than this costs more to merge than it saves.
SHORTEST_SPLIT = 256
#: Program instances per multiprocessor that hide each other's waiting for memory.
PROGRAMS_PER_PROCESSOR = 4
#: The least rows of a matrix product on tensor cores.
LEAST_ROWS = 16


def choose_splits(programs: int, longest: int, device: torch.device) -> int:
    """Return into how many parts each sequence is split.

    One unless `programs` (sequences · KV heads) leave the device idle: a single long
    sequence would otherwise keep only n_kv_heads of its multiprocessors busy.
    """
    if device.type != "cuda":
        return 1
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = -(-PROGRAMS_PER_PROCESSOR * processors // max(programs, 1))
    return max(1, min(wanted, longest // SHORTEST_SPLIT))


def decode_triton(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    longest: int,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch the kernels on checked inputs; see `paged_attention_decode`.

    Parameters
    ----------
    longest : int
        The largest of `seq_lens`, known to the host from its check.

    Raises
    ------
    ValueError
        When the caches differ in strides or heads are not contiguous.
    RuntimeError
        When the kernels were defined for a device and the tensors are elsewhere.
    """
    interpreted = is_interpreted(decode_kernel)
    if not (interpreted or q.is_cuda):
        raise RuntimeError(
            "Triton compiles for CUDA here, and the tensors are on the CPU: move them, "
            "or set TRITON_INTERPRET=1 before the first import of triton"
        )
    if k_cache.stride() != v_cache.stride() or k_cache.stride(-1) != 1:
        raise ValueError(
            "the caches must have equal strides, 1 for head_dim, got "
            f"{k_cache.stride()} and {v_cache.stride()}"
        )
    q, block_tables, seq_lens = (
        t if t.stride(-1) == 1 else t.contiguous() for t in (q, block_tables, seq_lens)
    )
    num_seqs, n_heads, head_dim = q.shape
    _, block_size, n_kv_heads, _ = k_cache.shape
    tile = TILE_INTERPRETED if interpreted else TILE
    if num_splits is None:
        num_splits = choose_splits(num_seqs * n_kv_heads, longest, q.device)
    if num_splits < 1:
        raise ValueError(f"num_splits must be at least 1, got {num_splits}")
    # Whole tiles per split, so that only the last tile of a sequence is masked.
    split_tokens = max(1, -(-longest // (num_splits * tile))) * tile
    narrow = torch.float32 not in (q.dtype, k_cache.dtype)
    out = q.new_empty((num_seqs, n_heads, num_splits, head_dim), dtype=torch.float32)
    lse = out.new_empty((num_seqs, n_heads, num_splits))
    if not num_seqs:
        return out[:, :, 0], lse[:, :, 0]
    head_dim_pad = max(LEAST_ROWS, triton.next_power_of_2(head_dim))
    decode_kernel[(num_seqs, n_kv_heads, num_splits)](
        q,
        k_cache,
        v_cache,
        lse if k_scale is None else k_scale.contiguous(),  # not read unless int8
        lse if v_scale is None else v_scale.contiguous(),
        block_tables,
        seq_lens,
        out,
        lse,
        float(scale),
        split_tokens,
        q.stride(0),
        q.stride(1),
        *k_cache.stride()[:3],
        block_tables.stride(0),
        N_KV_HEADS=n_kv_heads,
        GROUP=n_heads // n_kv_heads,
        GROUP_PAD=max(LEAST_ROWS, triton.next_power_of_2(n_heads // n_kv_heads)),
        HEAD_DIM=head_dim,
        HEAD_DIM_PAD=head_dim_pad,
        BLOCK_SIZE=block_size,
        TILE=tile,
        IS_INT8=k_scale is not None,
        # tf32 holds float16, bfloat16 and int8 exactly; float32 would lose 13 bits.
        PRECISION="tf32" if narrow else "ieee",
    )
    if num_splits == 1:
        return out[:, :, 0], lse[:, :, 0]
    merged = out.new_empty((num_seqs, n_heads, head_dim))
    merged_lse = lse.new_empty((num_seqs, n_heads))
    merge_kernel[(num_seqs * n_heads,)](
        out,
        lse,
        merged,
        merged_lse,
        num_splits,
        HEAD_DIM=head_dim,
        HEAD_DIM_PAD=head_dim_pad,
    )
    return merged, merged_lse
