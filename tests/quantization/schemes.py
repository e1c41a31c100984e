"""Every quantiser that the course has, small enough for quick tests."""

from paged_kv.quantization import (
    Codebook,
    Fp8E4M3,
    GroupedInt,
    Hadamard,
    RandomRotation,
    SymmetricInt,
)

QUANTIZERS = [
    *(SymmetricInt(8, per) for per in ("head", "token", "block")),
    *(SymmetricInt(bits, "head") for bits in (4, 3, 2)),
    *(GroupedInt(bits, "channel", 4) for bits in (8, 4, 3, 2)),
    *(GroupedInt(bits, "token", 4) for bits in (4, 2)),
    GroupedInt(4, "channel", 3),  # the last group of an axis is shorter
    GroupedInt(4, "token", 5),
    Fp8E4M3(),
    Fp8E4M3(0.01, "fp8 fine"),
    Hadamard(SymmetricInt(4, "token")),
    Hadamard(GroupedInt(2, "token", 4)),
    RandomRotation(SymmetricInt(8, "head")),
    *(Codebook(bits) for bits in (4, 3, 2)),
    *(RandomRotation(Codebook(bits), seed=bits) for bits in (4, 3, 2)),
]
IDS = [q.name for q in QUANTIZERS]
