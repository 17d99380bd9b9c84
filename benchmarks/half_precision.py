"""Half precision against float32 on the streaming engine, and against SDPA, in pairs.

    python benchmarks/half_precision.py            two threads, or as many as there are
    python benchmarks/half_precision.py --busy     one thread, by its processor time

A causal call, 8 heads; the limit is 1.1 × the time of float32.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from pairs import Pair, judged, paired, report
from torch import Tensor
from torch.nn import functional as F

import glasshead as gh

HEADS, LIMIT = 8, 1.1


def call(inputs: list[Tensor], *, backward: bool, ours: bool) -> object:
    """One causal call, with its backward pass or without."""
    if ours:
        context = gh.Attention(mask=gh.causal(), engine="streaming")(*inputs)
    else:
        query, key, value = inputs
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return torch.autograd.grad(context, inputs, inputs[0].detach()) if backward else context


def rows(length: int, dim: int, *, backward: bool, clock: Callable[[], float]) -> list[Pair]:
    """Pairs of each half precision against float32 and against SDPA."""
    torch.manual_seed(0)
    exact = [torch.randn(1, HEADS, length, dim) for _ in range(3)]
    found, calls = [], {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        inputs = [x.to(dtype).requires_grad_(backward) for x in exact]
        for ours in (True, False):
            calls[dtype, ours] = partial(call, inputs, backward=backward, ours=ours)
    pairs = 5 if length > 1024 else 15
    single = calls[torch.float32, True]
    for dtype in (torch.bfloat16, torch.float16):
        name = f"{str(dtype).removeprefix('torch.')}, T={length}, head_dim {dim}"
        name += ", both passes" if backward else ""
        half = calls[dtype, True]
        times = paired(half, single, pairs=pairs, clock=clock)
        found.append(judged(f"{name}, to float32", times, ratio=LIMIT))
        times = paired(half, calls[dtype, False], pairs=pairs, clock=clock)
        found.append(judged(f"{name}, to SDPA", times))
        print(*(f"{row.name}: {row.ratio:.3f}" for row in found[-2:]), sep="\n", file=sys.stderr)
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--busy", action="store_true", help="one thread, by its processor time")
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 1024, 2048, 4096])
    parser.add_argument("--dims", nargs="+", type=int, default=[32, 64, 128])
    options = parser.parse_args()
    clock = time.perf_counter
    if options.busy:
        torch.set_num_threads(1)
        clock = time.process_time
    found = [
        row
        for backward in (False, True)
        for length in options.lengths
        for dim in options.dims
        for row in rows(length, dim, backward=backward, clock=clock)
    ]
    name = "half_precision-busy" if options.busy else "half_precision"
    report("Half precision", found, Path(f"build/benchmarks/{name}.json"))


if __name__ == "__main__":
    main()
