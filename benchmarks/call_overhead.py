"""What `attention(q, k, v)` costs over `F.scaled_dot_product_attention`: pairs in one run."""

from pathlib import Path

import torch
from pairs import Pair, judged, paired, report
from torch.nn import functional as F

import glasshead as gh

RESULTS = Path("build/benchmarks/call_overhead.json")


def pair(length: int, *, heads: int, dim: int, pairs: int, calls: int) -> Pair:
    """Causal attention of one batch row, with and without us around it."""
    query, key, value = (torch.randn(1, heads, length, dim) for _ in range(3))
    attention = gh.Attention(mask=gh.causal())
    times = paired(
        lambda: attention(query, key, value),
        lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True),
        pairs=pairs,
        calls=calls,
    )
    name = f"causal B1 H{heads} T{length} D{dim}"
    if length < 512:
        return judged(name, times, difference=10e-6)
    return judged(name, times, ratio=1.03)


def main() -> None:
    """Time tiny inputs, where the call is all there is, and long ones, where it must vanish."""
    torch.manual_seed(0)
    with torch.no_grad():
        rows = [
            pair(3, heads=1, dim=4, pairs=101, calls=200),
            pair(16, heads=8, dim=64, pairs=101, calls=100),
            pair(512, heads=8, dim=64, pairs=201, calls=5),
            pair(1024, heads=8, dim=64, pairs=101, calls=3),
            pair(2048, heads=8, dim=64, pairs=61, calls=1),
            pair(4096, heads=8, dim=64, pairs=21, calls=1),
        ]
    report(
        f"attention(q, k, v) against F.scaled_dot_product_attention, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads",
        rows,
        RESULTS,
    )


if __name__ == "__main__":
    main()
