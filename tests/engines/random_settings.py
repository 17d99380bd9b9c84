"""Draw random attention settings, and compare the streaming engine with the reference.

    python -P tests/engines/random_settings.py INSTRUCTIONS COUNT [SEED]

INSTRUCTIONS is a name of `HIDDEN` or `TILES`, or "all" for what the processor at hand has. Features
of the processor are hidden before the kernels are written for it. The script needs nothing but the
package, so that `make fuzz-arm64` runs it on an emulated processor.
"""

import random
import sys
from typing import Any

import torch

from glasshead.engines.streaming.kernels import processor

_AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
# What each set of instructions has not, of a processor that has all of them.
HIDDEN = {
    "AMX": (),
    "AVX512-BF16": processor.MATRIX_TILES,
    "AVX-512": (*processor.MATRIX_TILES, "avx512bf16"),
    "AVX2": (*processor.MATRIX_TILES, "avx512bf16", *_AVX512),
}
# Register tiles of processors that this one is not, with its own instructions.
TILES = {
    "a tile of arm64": processor.RegisterTile(4, 4, 16),
    "a tile of SSE": processor.RegisterTile(4, 2, 16),
}
_DTYPES = {"float32": 3e-5, "float64": 1e-11, "bfloat16": 2.0**-7, "float16": 2.0**-10}
# Around the rows of tiles, the keys of panels, the queries of blocks and the parts of keys.
_LENGTHS = (1, 2, 7, 15, 16, 17, 31, 32, 33, 61, 64, 67, 131, 211)
_DIMS = (1, 3, 8, 13, 16, 31, 32, 33, 48, 64, 80, 96, 128)


def choose(instructions: str) -> None:
    """Make the kernels those of some instructions; call it before they are imported."""
    if instructions in TILES:
        own = processor.at_hand()._replace(
            name="own",
            triple="",
            tile=TILES[instructions],
            half_products=False,
            matrix_tiles=False,
        )
        processor.at_hand = lambda: own
        return
    features = processor.binding.get_host_cpu_features()
    features.update(dict.fromkeys(HIDDEN.get(instructions, ()), False))
    processor.binding.get_host_cpu_features = lambda: features


def settings(draw: random.Random) -> dict[str, Any]:
    """Draw sizes and settings, as names and numbers that show what was drawn."""
    kv_heads, group = draw.choice((1, 2, 3)), draw.choice((1, 1, 2, 3))
    drawn: dict[str, Any] = {
        "dtype": draw.choice(list(_DTYPES)),
        "batch": draw.choice((1, 2, 3)),
        "heads": kv_heads * group,
        "kv_heads": kv_heads,
        "queries": draw.choice(_LENGTHS),
        "keys": draw.choice((*_LENGTHS, 601)),
        "dim": draw.choice(_DIMS),
        "value_dim": draw.choice(_DIMS),
        "masks": draw.sample(_MASKS, draw.choice((0, 1, 1, 1, 2))),
        "beta": draw.choice((None, None, 0.3, -0.2)),
        "softcap": draw.choice((None, None, 2.0)),
        "sink": draw.choice((None, None, "one", "learned")),
        "biases": draw.sample(("ALiBi", "pairs"), draw.choice((0, 0, 1, 1, 2))),
        "offset": draw.choice((None, None, None, 0, 5)),
        "statistics": draw.sample(range(_STATISTICS), draw.choice((0, 1, 3, _STATISTICS))),
        "threads": draw.choice((1, 2)),
        "seed": draw.randrange(10**6),
    }
    if draw.random() < 0.5:
        drawn["keys"] = drawn["queries"]
    return drawn


_MASKS = ("causal", "window", "padding", "documents", "dense", "holes")
_STATISTICS = 9


def _mask(name: str, sizes: dict[str, Any], draw: random.Random) -> Any:
    import glasshead as gh

    batch, queries, keys = sizes["batch"], sizes["queries"], sizes["keys"]
    if name == "causal":
        return gh.causal()
    if name == "window":
        return gh.window(before=draw.choice((2, 17, 90)), after=draw.choice((0, 3)))
    if name == "padding":
        return gh.padding([draw.choice((0, 1, keys, keys, keys // 2)) for _ in range(batch)])
    if name == "documents":
        return gh.documents(torch.arange(keys) // draw.choice((5, 40)))
    if name == "dense":
        return gh.dense(torch.rand(draw.choice((1, sizes["heads"])), queries, keys) < 0.7)
    return ~gh.window(before=draw.choice((0, 3)))


def _inputs(drawn: dict[str, Any]) -> list[torch.Tensor]:
    """Make query, key, value and a gradient of the context."""
    batch, kv_heads, dim = drawn["batch"], drawn["kv_heads"], drawn["dim"]
    left, right = (batch, drawn["heads"], drawn["queries"]), (batch, kv_heads, drawn["keys"])
    value_dim = drawn["value_dim"]
    shapes = ((*left, dim), (*right, dim), (*right, value_dim), (*left, value_dim))
    dtype = getattr(torch, drawn["dtype"])
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]


def _options(drawn: dict[str, Any]) -> dict[str, Any]:
    """Make the options of an `Attention`."""
    import glasshead as gh

    draw, mask = random.Random(drawn["seed"]), None
    for name in drawn["masks"]:
        one = _mask(name, drawn, draw)
        mask = one if mask is None else mask & one
    options: dict[str, Any] = {"mask": mask, "softcap": drawn["softcap"]}
    if drawn["beta"] is not None:
        options["score"] = gh.Dot(beta=drawn["beta"])
    if drawn["sink"] == "one":
        options["normalizer"] = gh.SoftmaxOne()
    if drawn["sink"] == "learned":
        options["normalizer"] = gh.SoftmaxOne(torch.nn.Parameter(torch.randn(drawn["heads"])))
    if "ALiBi" in drawn["biases"]:
        options["bias"] = gh.ALiBi(drawn["heads"])
    return options


def _statistics(drawn: dict[str, Any]) -> list[Any]:
    import glasshead as gh

    keys = drawn["keys"]
    every = [
        *(gh.LogSumExp(), gh.MaxWeight(), gh.MaxScore(), gh.Entropy(), gh.Received()),
        *(gh.MassOn(sorted({0, keys - 1})), gh.MeanDistance(), gh.PooledMap(1, min(3, keys))),
        gh.TopK(min(2, keys)),
    ]
    return [every[place] for place in drawn["statistics"]]


def compare(drawn: dict[str, Any]) -> None:
    """Compare values, statistics and gradients; equal calls have equal bits, observed or not."""
    import glasshead as gh

    torch.manual_seed(drawn["seed"])
    torch.set_num_threads(drawn["threads"])
    given, options, statistics = _inputs(drawn), _options(drawn), _statistics(drawn)
    pairs = torch.randn(drawn["heads"], drawn["queries"], drawn["keys"])

    def results(
        engine: str, dtype: torch.dtype, *, observed: bool
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the context and the gradients, and the statistics."""
        *inputs, upstream = (x.detach().to(dtype) for x in given)
        call: dict[str, Any] = {"offset": drawn["offset"]}
        if "pairs" in drawn["biases"]:
            call["bias"] = pairs.to(torch.promote_types(dtype, torch.float32)).clone()
            inputs.append(call["bias"])
        learned = [x.requires_grad_() for x in inputs]
        attention, found = gh.Attention(**options, engine=engine), []
        if observed:
            seen = attention.observe(*inputs[:3], statistics, **call)
            context = seen.context
            values = [getattr(seen, name) for name in seen.statistics]
            # Keys of nearly equal weights may swap.
            found = [one[0] if isinstance(one, tuple) else one for one in values]
        else:
            context = attention(*inputs[:3], **call)
        learned += attention.parameters()
        gradients = torch.autograd.grad(context, learned, upstream, allow_unused=True)
        return [context, *(torch.zeros(()) if x is None else x for x in gradients)], found

    dtype, tolerance = given[0].dtype, _DTYPES[drawn["dtype"]]
    ours, seen = results("streaming", dtype, observed=True)
    for one, other in zip(results("streaming", dtype, observed=False)[0], ours, strict=True):
        assert torch.equal(one, other), "a call that is not observed has other bits"
    expected, known = results("reference", torch.float64, observed=True)
    for one, other in zip(ours, expected, strict=True):
        size = max([1.0, *other.detach().abs().amax().reshape(-1).tolist()])
        _compare(one, other, tolerance, tolerance * size)
    for one, other in zip(seen, known, strict=True):
        # Statistics of half precision are those of float32.
        _compare(one, other, min(tolerance, 3e-5), min(tolerance, 3e-5))


def _compare(one: torch.Tensor, other: torch.Tensor, rtol: float, atol: float) -> None:
    one, other = one.detach().double(), other.detach().double()
    torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


def main() -> None:
    """Compare as many settings as are asked for, and show those that fail."""
    instructions, count, *seed = sys.argv[1:]
    choose(instructions)
    from glasshead.engines.streaming import matrix_tiles

    draw = random.Random(int(seed[0]) if seed else 0)
    for number in range(int(count)):
        drawn = settings(draw)
        try:
            compare(drawn)
        except Exception as error:
            error.add_note(f"of settings {number}: {drawn}")
            raise
    own = processor.at_hand()
    tiles = "without" if matrix_tiles.refusal() else "with"
    sys.stdout.write(f"{count} settings agree on {own.name}, {own.tile}, {tiles} matrix tiles.\n")


if __name__ == "__main__":
    main()
