"""Calls for which streaming was measured to be faster than SDPA, by `benchmarks/grid.py`."""

from typing import NamedTuple

import torch

# With fewer scores, threads and blocks cost more than they save.
MANY = 2**20
# The share of the pairs that a mask is to hide at the ends of rows, for skipping them to pay in any
# dtype, and from how many scores; and the share that pays where `FASTER` tells.
HIDDEN, MANY_HIDDEN = 0.55, 2**22
HIDDEN_LESS = 0.25


class Faster(NamedTuple):
    """Calls for which streaming is faster than SDPA, with gradients and without.

    Attributes:
        scores: The fewest scores of a call, batch and heads together.
        dims: The head_dims of queries and values.
        tokens: The fewest and most queries and keys.
    """

    scores: int
    dims: range = range(32, 129)
    tokens: range = range(512, 2**63)

    def __str__(self) -> str:
        return f"2^{self.scores.bit_length() - 1} scores"


# By dtype, and by what the queries see: keys up to their own, all keys of their batch row, or what
# a mask leaves that hides a share at the ends of rows.
FASTER = {
    torch.float32: {
        "causal": Faster(2**24),
        "full": Faster(2**25),
        "masked": Faster(2**24),
    },
    torch.bfloat16: {
        "causal": Faster(2**24, range(32, 65), range(512, 4097)),
        "masked": Faster(2**24),
    },
    torch.float16: {
        "causal": Faster(2**24),
        "full": Faster(2**24),
    },
}
# In bfloat16 where the kernels take the processor's products of pairs, and no matrix tiles.
_FASTER_BY_PAIRS = {
    "causal": Faster(2**24),
    "full": Faster(2**24, range(32, 65)),
    "masked": Faster(2**24),
}
# In float32 without AVX-512: of wider heads full calls are slower with gradients.
_FASTER_ON_AVX2 = {**FASTER[torch.float32], "full": Faster(2**25, range(32, 33))}
# On Zen 5 plain calls are faster from so many queries and keys on, in any dtype that is measured.
IF_PLAIN = Faster(0, range(32, 129), range(128, 2**63))
# Kinds of processors on which streaming was measured.
PROCESSORS = {"x86_64-avx512bf16", "x86_64-avx512", "x86_64-avx2"}
# Features of processors that have products of a dtype, which SDPA takes. In bfloat16 the kernels
# take them, too, if the system permits it.
UNLESS = {
    torch.float32: (),
    torch.bfloat16: ("amx-bf16",),
    torch.float16: ("amx-fp16", "avx512fp16"),
}


def faster_in(dtype: torch.dtype) -> dict[str, Faster]:
    """Return where streaming is faster in a dtype on the processor at hand."""
    from glasshead.engines.streaming import matrix_tiles
    from glasshead.engines.streaming.kernels import processor

    by_pairs = processor.has("avx512bf16") and not matrix_tiles.are_there()
    if dtype == torch.bfloat16 and by_pairs:
        return _FASTER_BY_PAIRS
    on_avx2 = processor.at_hand().name == "x86_64-avx2"
    return _FASTER_ON_AVX2 if on_avx2 and dtype == torch.float32 else FASTER[dtype]
