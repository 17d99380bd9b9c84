"""Where the time of a causal call goes: its two products, the softmax, and what is around them.

    python benchmarks/where.py [LENGTH ...]

One thread, by its own processor time, medians; the peak is that of `benchmarks/peak.py`. A pass
without values computes no context. The product of queries and keys is taken to run as fast as that
of weights and values, which is the difference; the softmax is the rest of the kernel.
"""

import statistics
import sys
import time

import torch
from pairs import seconds_of
from peak import peak

import glasshead as gh
from glasshead.engines import STREAMING

HEADS, DIM = 4, 64


def shares(length: int, most: float) -> None:
    """Print how the time of one length divides."""
    query, key, value = torch.randn(3, 1, HEADS, length, DIM)
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    problem = attention.problem(query, key, value)

    def kernel_only() -> object:
        return STREAMING.observe(problem, (), context=False)

    whole, without = [], []
    for _ in range(9):
        whole.append(seconds_of(lambda: attention(query, key, value), clock=time.process_time))
        without.append(seconds_of(kernel_only, clock=time.process_time))
    taken, rest = statistics.median(whole), statistics.median(without)
    tiny = torch.randn(3, 1, HEADS, 8, DIM)
    around = min(
        seconds_of(lambda: attention(*tiny), 20, clock=time.process_time) for _ in range(9)
    )
    least = 2 * HEADS * DIM * (length * (length + 1) // 2) / most
    product = taken - rest
    softmax = rest - product - around
    print(f"T={length}: {taken * 1e3:.1f} ms, {200 * least / taken:.0f} % of the peak")
    for name, part in {
        "two products at the peak": 2 * least,
        "their distance from it": 2 * (product - least),
        "softmax": softmax,
        "Python around the kernels": around,
    }.items():
        print(f"  {name:<28}{part * 1e3:8.1f} ms {100 * part / taken:5.0f} %")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    found = peak()
    print(f"peak {found / 1e9:.0f} GFLOP/s of one thread")
    for given in map(int, sys.argv[1:] or ["1024", "4096"]):
        shares(given, found)
