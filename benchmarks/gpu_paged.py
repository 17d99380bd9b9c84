"""Statistics of requests from a paged cache on a GPU: in place by Triton's kernel, or from copies.

`python benchmarks/gpu_paged.py` wants a CUDA device, a minute, and Triton. In bfloat16, 4 layers of
32 heads of 128 over 8 key heads, with blocks of 16 tokens in random order. Three statistics,
entropy, received and the mass on the first key:

- of 64 requests with 64 generated tokens each, after texts of 1024 to 8192: what a watch of vLLM
  computes together;
- of prompts;
- how far they are from float64, and what they take of the GPU's memory at the peak.

The copies are those that a watch makes without the kernel: the keys of each request, then the
engine of problems in memory.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pairs import Figure, Pair, figure, judged, paired, report
from torch import Tensor

import glasshead as gh
from glasshead.engines import reduce_by_fastest
from glasshead.engines.streaming.paged import PagedCache, PagedRequest
from glasshead.engines.triton.paged import reduce_paged, refusal
from glasshead.recipe.problem import Problem
from glasshead.statistics.reductions import StatisticRequest
from glasshead.watching.captured_call import problem_from_inputs

RESULTS = Path("build/benchmarks/gpu_paged.json")
STATISTICS = {"entropy": gh.Entropy(), "received": gh.Received(), "mass": gh.MassOn([0])}


@dataclass(frozen=True)
class Sizes:
    """What is measured: on the GPU the defaults, in a test something that ends soon."""

    device: torch.device
    dtype: torch.dtype = torch.bfloat16
    layers: int = 4
    heads: int = 32
    kv_heads: int = 8
    width: int = 128
    size: int = 16
    pairs: int = 7
    # Requests, queries of each, and keys.
    works: tuple[tuple[int, int, int], ...] = (
        (64, 64, 1024),
        (64, 64, 2048),
        (64, 64, 4096),
        (64, 64, 8192),
        (16, 1024, 1024),
        (1, 8192, 8192),
    )

    def problem(self, query: Tensor, key: Tensor) -> Problem:
        """The problem of the last queries of a text."""
        position = key.shape[-2] - query.shape[-2]
        scale = self.width**-0.5
        return problem_from_inputs(query, key, key, scale=scale, offset=position, mask=gh.causal())


class Engine:
    """Paged keys, and queries of some requests, of random numbers."""

    def __init__(self, sizes: Sizes, requests: int, queries: int, keys: int) -> None:
        self.sizes, self.lengths = sizes, (queries, keys)
        each = -(-keys // sizes.size)
        shape = 2, requests * each, sizes.size, sizes.kv_heads, sizes.width
        made: dict[str, Any] = {"device": sizes.device, "dtype": sizes.dtype}
        self.caches = [torch.randn(shape, **made) for _ in range(sizes.layers)]
        numbers = torch.arange(sizes.size * sizes.kv_heads * sizes.width)
        order = numbers.view(shape[2:]).transpose(0, 1)
        layers = [one.movedim(1, 0) for one in self.caches]
        rule = {"softcap": 0.0, "before": None, "sinks": None, "slopes": None}
        self.cache = PagedCache(layers, order, sizes.heads, sizes.width**-0.5, **rule)
        blocks = torch.randperm(requests * each).view(requests, each)
        steps = torch.randn(sizes.layers, requests * queries, sizes.heads * sizes.width, **made)
        places = [(steps, n * queries, (n + 1) * queries) for n in range(requests)]
        self.requests = [
            PagedRequest([place], table, keys - queries)
            for place, table in zip(places, blocks, strict=True)
        ]
        nothing = torch.empty(1)
        query = nothing.expand(sizes.layers, 1, sizes.heads, queries, sizes.width)
        key = nothing.expand(sizes.layers, 1, sizes.kv_heads, keys, sizes.width)
        self.wanted = StatisticRequest(sizes.problem(query, key), STATISTICS)
        refused = refusal(self.cache, self.wanted.reductions)
        if refused is not None:
            raise RuntimeError(f"The kernel takes no such cache: {refused}.")

    def in_place(self) -> list[dict[str, Any]]:
        """The statistics of each request by the paged kernel."""
        wanted = self.wanted
        reduced = reduce_paged(self.cache, self.requests, wanted.problem, wanted.reductions)
        return [wanted.finished(one) for one in reduced]

    def inputs(self, request: PagedRequest) -> tuple[Tensor, Tensor]:
        """Queries and keys of a request, copied."""
        (steps, first, last), keys = request.rows[0], self.lengths[1]
        query = steps[:, first:last].unflatten(-1, (self.sizes.heads, -1)).transpose(1, 2)
        blocks = request.blocks.to(self.sizes.device)
        copies = [one[0][blocks].flatten(0, 1)[:keys].transpose(0, 1) for one in self.caches]
        return query.unsqueeze(1), torch.stack(copies).unsqueeze(1)

    def from_copies(self) -> list[dict[str, Any]]:
        """The statistics of each request from copies of its keys."""
        found = []
        for request in self.requests:
            problem = self.sizes.problem(*self.inputs(request))
            wanted = StatisticRequest(problem, STATISTICS)
            reduced = reduce_by_fastest(problem, wanted.reductions)
            found.append({name: x.cpu() for name, x in wanted.finished(reduced).items()})
        return found

    def error(self) -> float:
        """The largest error of the last request against float64, in one head of the first layer.

        Relative to the larger of 1 and the number itself.
        """
        query, key = (x[0, :, :1].double() for x in self.inputs(self.requests[-1]))
        trace = gh.Attention(mask=gh.causal()).trace(query, key, key, budget=2**40)
        found, worst = self.in_place()[-1], 0.0
        for name, statistic in STATISTICS.items():
            expected = statistic.of(trace).cpu()[0, 0]
            difference = (found[name][0, 0, 0].double() - expected).abs()
            worst = max(worst, float((difference / expected.abs().clamp(min=1.0)).max()))
        return worst


def peak(sizes: Sizes, call: Callable[[], object]) -> float:
    """The MiB of the GPU that a call takes more at its peak; 0 where that is not counted."""
    if sizes.device.type != "cuda":
        return 0.0
    torch.cuda.reset_peak_memory_stats(sizes.device)
    before = torch.cuda.memory_allocated(sizes.device)
    call()
    return (torch.cuda.max_memory_allocated(sizes.device) - before) / 2**20


@torch.no_grad()
def measured(sizes: Sizes) -> list[Pair | Figure]:
    """Everything, in the order of the docstring."""
    torch.manual_seed(0)
    rows: list[Pair | Figure] = []
    for requests, queries, keys in sizes.works:
        engine = Engine(sizes, requests, queries, keys)
        name = f"{requests} × {queries} queries, {keys} keys"
        # Each call ends with copies on the CPU.
        times = paired(engine.in_place, engine.from_copies, pairs=sizes.pairs)
        rows.append(judged(f"{name}: in place against copies", times))
        for way in (engine.in_place, engine.from_copies):
            about = f"at the peak, {way.__name__.replace('_', ' ')}"
            rows.append(figure(name, peak(sizes, way), "MiB", about=about))
        about = "the largest error against float64"
        rows.append(figure(name, engine.error(), "", about=about, at_most=1e-4))
        del engine
        if sizes.device.type == "cuda":
            torch.cuda.empty_cache()
    return rows


def main() -> None:
    """Measure on the GPU, and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    out = parser.parse_args().out
    if not torch.cuda.is_available():
        sys.exit(
            "benchmarks/gpu_paged.py takes a CUDA device, and PyTorch finds none here: run it "
            "there."
        )
    device = torch.device("cuda")
    title = f"{torch.cuda.get_device_name(device)}, PyTorch {torch.__version__}"
    report(title, measured(Sizes(device)), out)


if __name__ == "__main__":
    main()
