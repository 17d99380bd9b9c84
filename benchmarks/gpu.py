"""Exact statistics on a GPU, against the fused kernels of PyTorch, FlexAttention and plain torch.

`python benchmarks/gpu.py` wants a CUDA device, some minutes, and Triton. In bfloat16, causal, 32
heads of 128 over 8 key heads:

- six statistics with the context, at 4096 to 65536 tokens, against the fastest of the fused
  kernels (flash, cuDNN) alone; the goal at 16384 is at most 1.5 ×. Beside them FlexAttention, with
  the logsumexp and the largest score that it can return, blocks of rows in plain torch, and the
  whole matrix in plain torch where it fits;
- what observing adds to the peak of memory, and how far the statistics are from float64;
- `watch` on a model of a billion random parameters: a pass over a text, and 32 generated tokens.

Times are medians of pairs, as in the other benchmarks; a call ends when the device has finished.
"""

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pairs import Figure, Pair, figure, judged, paired, report, seconds_of
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import glasshead as gh
from glasshead.engines.reference import by_rows
from glasshead.private_names import private

RESULTS = Path("build/benchmarks/gpu.json")
SIX = [
    gh.LogSumExp(),
    gh.MaxWeight(),
    gh.Entropy(),
    gh.Received(),
    gh.MeanDistance(),
    gh.MassOn([0]),
]
KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


@dataclass(frozen=True)
class Sizes:
    """What is measured: on the GPU the defaults, in a test something that ends soon.

    Attributes:
        device, dtype: Of all tensors.
        lengths: Tokens.
        judged_at: The length at which the goal is stated.
        heads, kv_heads, width: Of the attention.
        kernels: The fused kernels that are tried, by name.
        most: The bytes that a matrix in plain torch may take.
        pairs: How many pairs.
        exact_at: The length at which the statistics are held against float64.
        model: The config of the model, as of transformers' Llama.
        text, told, steps: Tokens of a pass, before and while generating.
        compile: Whether FlexAttention is compiled, as it is meant to be.
    """

    device: torch.device
    dtype: torch.dtype = torch.bfloat16
    lengths: tuple[int, ...] = (4096, 8192, 16384, 32768, 65536)
    judged_at: int = 16384
    heads: int = 32
    kv_heads: int = 8
    width: int = 128
    kernels: tuple[str, ...] = ("flash", "cuDNN")
    most: int = 40 * 10**9
    pairs: int = 9
    exact_at: int = 4096
    model: tuple[tuple[str, int], ...] = (
        ("vocab_size", 32000),
        ("hidden_size", 2048),
        ("intermediate_size", 5632),
        ("num_hidden_layers", 22),
        ("num_attention_heads", 32),
        ("num_key_value_heads", 4),
        ("max_position_embeddings", 4096),
    )
    text: int = 4096
    told: int = 64
    steps: int = 32
    compile: bool = True

    def inputs(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of random numbers."""
        generator = torch.Generator(self.device).manual_seed(0)

        def made(heads: int) -> Tensor:
            shape = (1, heads, length, self.width)
            numbers = torch.randn(shape, generator=generator, device=self.device)
            return numbers.to(self.dtype)

        return made(self.heads), made(self.kv_heads), made(self.kv_heads)

    def finished(self, function: Callable[[], object]) -> Callable[[], object]:
        """A call that ends when the device has finished."""

        def run() -> object:
            with torch.no_grad():
                result = function()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            return result

        return run


def sdpa(query: Tensor, key: Tensor, value: Tensor, kernel: str) -> Tensor:
    """The context alone, by one of the fused kernels."""
    with sdpa_kernel(KERNELS[kernel]):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def fastest(sizes: Sizes, inputs: tuple[Tensor, Tensor, Tensor]) -> tuple[str, list[Figure]]:
    """The name of the fastest fused kernel that takes these inputs, and the time of each."""
    figures, times = [], {}
    length = inputs[0].shape[-2]
    for kernel in sizes.kernels:
        call = sizes.finished(partial(sdpa, *inputs, kernel))
        try:
            call()
        except RuntimeError as error:
            about = str(error).splitlines()[0]
            figures.append(figure(f"{kernel} alone, T={length}", None, "s", about=about))
            continue
        times[kernel] = min(seconds_of(call) for _ in range(sizes.pairs))
        figures.append(figure(f"{kernel} alone, T={length}", times[kernel], "s", about="best"))
    if not times:
        raise RuntimeError(f"none of {', '.join(sizes.kernels)} takes these inputs.")
    return min(times, key=times.__getitem__), figures


def observed(sizes: Sizes, length: int) -> list[Pair | Figure]:
    """Six statistics of one length, against the fastest fused kernel alone."""
    inputs = sizes.inputs(length)
    kernel, figures = fastest(sizes, inputs)
    attention = gh.Attention(mask=gh.causal(), engine="fused")
    alone = sizes.finished(partial(sdpa, *inputs, kernel))

    def six() -> object:
        with sdpa_kernel(KERNELS[kernel]):
            return attention.observe(*inputs, SIX, budget=2**40)

    def of_rows() -> object:
        problem = attention.problem(*inputs)
        return by_rows(problem, [one for each in SIX for one in each.reductions(problem)])

    ours = sizes.finished(six)
    peak = _peak(sizes, alone, ours)
    limit = 1.5 if length == sizes.judged_at else None
    rows: list[Pair | Figure] = [*figures]
    name = f"six statistics against {kernel} alone, T={length}"
    rows.append(judged(name, paired(ours, alone, pairs=sizes.pairs), ratio=limit))
    if peak is not None:
        about = "more at the peak than the context alone"
        rows.append(figure(f"six statistics, T={length}", peak / 2**20, "MiB", about=about))
    rows += _peers(sizes, inputs, ours, length)
    if length <= sizes.judged_at:
        times = paired(ours, sizes.finished(of_rows), pairs=1)
        rows.append(judged(f"six statistics against blocks of rows, T={length}", times))
    return rows


def _peak(sizes: Sizes, alone: Callable[[], object], ours: Callable[[], object]) -> int | None:
    """What observing adds to the peak of memory; None where that is not counted."""
    if sizes.device.type != "cuda":
        return None
    peaks = []
    for call in (alone, ours):
        call()
        torch.cuda.reset_peak_memory_stats(sizes.device)
        call()
        peaks.append(torch.cuda.max_memory_allocated(sizes.device))
    return peaks[1] - peaks[0]


def _peers(
    sizes: Sizes, inputs: tuple[Tensor, Tensor, Tensor], ours: Callable[[], object], length: int
) -> list[Pair | Figure]:
    """Ours against FlexAttention and against the whole matrix, where they can be had."""
    rows: list[Pair | Figure] = []
    name = f"six statistics against FlexAttention with its logsumexp, T={length}"
    flex = flex_with_aux(sizes, inputs)
    if flex is None:
        about = f"PyTorch {torch.__version__} has no return_aux"
        rows.append(figure(name, None, "s", about=about))
    else:
        times = paired(ours, sizes.finished(flex), pairs=sizes.pairs)
        rows.append(judged(name, times))
    name = f"six statistics against the matrix in plain torch, T={length}"
    needed = 3 * 4 * sizes.heads * length**2
    if needed > sizes.most:
        about = f"its matrices would take {needed / 1e9:.0f} GB"
        rows.append(figure(name, None, "s", about=about))
    else:
        plain = sizes.finished(partial(in_plain_torch, *inputs))
        rows.append(judged(name, paired(ours, plain, pairs=min(3, sizes.pairs))))
    return rows


def flex_with_aux(
    sizes: Sizes, inputs: tuple[Tensor, Tensor, Tensor]
) -> Callable[[], object] | None:
    """FlexAttention with all that it returns beside the context; None where it is older."""
    place = "torch.nn.attention.flex_attention"
    request = private(f"{place}.AuxRequest")
    if request is None:
        return None
    flex, masks = private(f"{place}.flex_attention"), private(f"{place}.create_block_mask")
    length = inputs[0].shape[-2]

    def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        del batch, head
        return query >= key

    mask = masks(causal, None, None, length, length, device=sizes.device.type)
    run: Any = torch.compile(flex) if sizes.compile else flex
    # On the CPU, where this is tested, it returns no largest scores.
    aux = request(lse=True, max_scores=sizes.device.type == "cuda")
    return partial(run, *inputs, block_mask=mask, enable_gqa=True, return_aux=aux)


def in_plain_torch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """The context and the six statistics from the matrix, each by the function that is for it."""
    group, length = query.shape[1] // key.shape[1], query.shape[-2]
    key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    places = torch.arange(length, device=query.device)
    distance = places[:, None] - places
    scores = (query @ key.mT).float() / math.sqrt(query.shape[-1])
    scores.masked_fill_(distance < 0, -torch.inf)
    weights = scores.softmax(-1)
    return (
        weights.to(value.dtype) @ value,
        scores.logsumexp(-1),
        weights.amax(-1),
        torch.special.entr(weights).sum(-1),
        weights.sum(-2),
        (weights * distance).sum(-1),
        weights[..., 0],
    )


def exactness(sizes: Sizes) -> list[Figure]:
    """How far each statistic is from that of the same numbers in float64, in one head."""
    inputs = sizes.inputs(sizes.exact_at)
    one = [x[:, :1] for x in inputs]
    with torch.no_grad():
        attention = gh.Attention(mask=gh.causal(), engine="fused")
        seen = attention.observe(*inputs, SIX, budget=2**40)
        trace = gh.Attention(mask=gh.causal()).trace(*(x.double() for x in one), budget=2**40)
    figures = []
    for name, statistic in seen.statistics.items():
        expected, found = statistic.of(trace), seen[name][:, :1].double()
        error = ((found - expected).abs() / expected.abs().clamp(min=1.0)).max().item()
        about = f"the largest error against float64, T={sizes.exact_at}"
        figures.append(figure(name, error, "", about=about, at_most=1e-4))
    return figures


def watched(sizes: Sizes) -> list[Pair]:
    """A model of random parameters, watched against not: a pass, and generated tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.manual_seed(0)
    values: dict[str, Any] = dict(sizes.model)
    config = LlamaConfig(**values)
    with sizes.device:
        model: Any = LlamaForCausalLM(config).eval()
    model.to(sizes.dtype)
    count = sum(parameter.numel() for parameter in model.parameters())
    tokens = torch.randint(config.vocab_size, (1, sizes.text), device=sizes.device)
    told = tokens[:, : sizes.told]
    statistics = [gh.Entropy(), gh.Received(), gh.MassOn([0])]

    def one_pass() -> object:
        return model(tokens, use_cache=False).logits

    def writing() -> object:
        return model.generate(
            told,
            max_new_tokens=sizes.steps,
            min_new_tokens=sizes.steps,
            do_sample=False,
            pad_token_id=0,
        )

    def seen(run: Callable[[], object]) -> Callable[[], object]:
        def watch() -> object:
            with gh.watch(model, statistics) as result:
                run()
            return result

        return sizes.finished(watch)

    name = f"{count / 1e9:.2g} billion parameters"
    return [
        judged(
            f"{name}, T={sizes.text}, watched against not",
            paired(seen(one_pass), sizes.finished(one_pass), pairs=sizes.pairs),
        ),
        judged(
            f"{name}, {sizes.steps} tokens after {sizes.told}, watched against not",
            paired(seen(writing), sizes.finished(writing), pairs=min(5, sizes.pairs)),
        ),
    ]


def measured(sizes: Sizes) -> list[Pair | Figure]:
    """Everything, in the order of the docstring."""
    rows: list[Pair | Figure] = []
    for length in sizes.lengths:
        rows += observed(sizes, length)
        if sizes.device.type == "cuda":
            torch.cuda.empty_cache()
    return [*rows, *exactness(sizes), *watched(sizes)]


def main() -> None:
    """Measure, print, and write JSON; without a CUDA device, say so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the JSON file")
    out = parser.parse_args().out
    if not torch.cuda.is_available():
        sys.exit(
            "benchmarks/gpu.py takes a CUDA device, and PyTorch finds none here: run it there."
        )
    sizes = Sizes(torch.device("cuda", torch.cuda.current_device()))
    x = sizes.inputs(sizes.judged_at)
    plan = gh.Attention(mask=gh.causal(), engine="fused").plan(*x, statistics=SIX)
    print(f"statistics by {plan.statistics}")
    name = torch.cuda.get_device_name(sizes.device)
    report(f"{name}, torch {torch.__version__}, bfloat16, causal", measured(sizes), out)


if __name__ == "__main__":
    main()
