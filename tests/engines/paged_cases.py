"""Requests with keys in a paged cache, the same as plain tensors, and what is asked of them."""

import torch

import glasshead as gh
from glasshead.engines.reference import by_rows
from glasshead.engines.streaming.paged import PagedCache, PagedRequest
from glasshead.recipe.biases import Bias
from glasshead.statistics.reductions import StatisticRequest
from glasshead.watching.captured_call import problem_from_inputs

LAYERS, KV_HEADS, GROUP, DIM, SIZE = 2, 3, 2, 7, 13
HEADS = KV_HEADS * GROUP
STATISTICS = {
    "entropy": gh.Entropy(),
    "lse": gh.LogSumExp(),
    "received": gh.Received(),
    "top": gh.TopK(5),
    "mass": gh.MassOn([0, 3]),
    "first": gh.MassOn([17]),
    "weight": gh.MaxWeight(),
    "arg_max": gh.ArgMax(),
    "distance": gh.MeanDistance(),
}


class Distance(Bias):
    by_distance, hides = True, False

    def __init__(self, slopes):
        super().__init__()
        self.slopes = slopes

    def forward(self, tile):
        return -self.slopes.to(tile.dtype)[:, None, None] * tile.distance().abs()


def cache_of(dtype, order, device="cpu", **more):
    """Return the keys of blocks, `[layers, blocks, kv_heads, tokens, dim]`, and a cache of them."""
    blocks = 31
    keys = torch.randn(LAYERS, blocks, *order.shape).to(device, dtype)
    caches = []
    for layer in keys:
        cache = torch.full((blocks, 2 * order.numel()), torch.nan, device=device).to(dtype)
        cache[:, order.flatten()] = layer.flatten(1)
        caches.append(cache)
    rule = {"scale": 0.4, "softcap": 0.0, "before": None, "sinks": None, "slopes": None}
    return keys, PagedCache(caches, order, HEADS, **{**rule, **more})


def shuffled() -> torch.Tensor:
    """Return an order of a key head that is no sum of steps, the same for each head."""
    one = torch.randperm(2 * SIZE * DIM)[: SIZE * DIM].view(SIZE, DIM)
    return one + torch.arange(KV_HEADS)[:, None, None] * 2 * SIZE * DIM


def transposed(size, step) -> torch.Tensor:
    """Return an order feature by feature, in which tokens are a step apart.

    vLLM's blocks have it in float32, with a step of 1, and in bfloat16, in pairs, with one of 2.
    """
    token, feature = torch.arange(size)[:, None], torch.arange(DIM)
    head = torch.arange(KV_HEADS)[:, None, None]
    return head * 2 * size * DIM + (feature * size + token) * step


def requests_of(keys, dtype, sizes):
    """Return queries of requests, some in one step and some in several, and the same as tensors."""
    free, found, plain = torch.randperm(keys.shape[1]), [], []
    size, device = keys.shape[3], keys.device
    for queries, length in sizes:
        count = -(-length // size)
        blocks, free = free[:count], free[count:]
        # Other tokens of the steps are of other requests.
        counts = [1, queries - 3, 2] if queries > 3 else [1] * queries
        steps = [torch.randn(LAYERS, n + 4, HEADS * DIM).to(device, dtype) for n in counts]
        rows = [(step, 3, 3 + n) for step, n in zip(steps, counts, strict=True)]
        found.append(PagedRequest(rows, blocks, length - queries))
        query = torch.cat([step[:, 3 : 3 + n] for step, n in zip(steps, counts, strict=True)], 1)
        key = keys[:, blocks].transpose(1, 2).flatten(2, 3)[:, :, :length]
        plain.append((query.unflatten(-1, (HEADS, DIM)).transpose(1, 2), key))
    return found, plain


def problem_of(query, key, cache, position, layer=None):
    sinks = None if cache.sinks is None else cache.sinks[layer].to(query.device)
    slopes = None if cache.slopes is None else cache.slopes[layer]
    return problem_from_inputs(
        query,
        key,
        key,
        scale=cache.scale,
        offset=position,
        mask=gh.causal() if cache.before is None else gh.window(before=cache.before),
        softcap=cache.softcap or None,
        sinks=sinks,
        bias=None if slopes is None else Distance(slopes.to(query.device)),
    )


def request_of(cache, queries, keys):
    """Return the request for statistics of so many queries and keys, of no numbers."""
    nothing = torch.empty(1)
    query = nothing.expand(LAYERS, HEADS, queries, DIM)
    key = nothing.expand(LAYERS, KV_HEADS, keys, DIM)
    return StatisticRequest(problem_of(query, key, cache, keys - queries, 0), STATISTICS)


def assert_of_reference(values, query, key, cache, dtype):
    """Compare statistics of a request with those of the reference, in another dtype."""
    for layer in range(LAYERS):
        problem = problem_of(
            query[layer, None].to(dtype),
            key[layer, None].to(dtype),
            cache,
            key.shape[2] - query.shape[2],
            layer,
        )
        one = StatisticRequest(problem, STATISTICS)
        expected = one.finished(by_rows(problem, one.reductions))
        for name, value in expected.items():
            got = values[name]
            if name == "top":
                weights, keys = value.weights[0].float().cpu(), value.keys[0].cpu()
                torch.testing.assert_close(got.weights[layer], weights, atol=1e-5, rtol=0)
                assert torch.equal(got.keys[layer], keys)
            else:
                wanted = value[0].to(got[layer])
                torch.testing.assert_close(got[layer], wanted, atol=2e-5, rtol=1e-5, msg=name)


KINDS = {
    "full": {},
    "window": {"before": 5},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": torch.linspace(-2, 3, LAYERS * HEADS).view(LAYERS, HEADS)},
    "slopes": {"slopes": torch.linspace(0.01, 0.7, LAYERS * HEADS).view(LAYERS, HEADS)},
}
