"""Sums over the weights of many requests, from a paged cache of any layout, are the reference's."""

import pytest
import torch

import glasshead as gh
from glasshead.engines.reference import by_rows
from glasshead.engines.streaming.paged import PagedCache, PagedRequest, reduce_paged, refusal
from glasshead.recipe.biases import Bias
from glasshead.statistics.reductions import StatisticRequest, TimesQueries
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


def cache_of(dtype, order, **more):
    """Return the keys of blocks, `[layers, blocks, kv_heads, tokens, dim]`, and a cache of them."""
    blocks = 31
    keys = torch.randn(LAYERS, blocks, KV_HEADS, SIZE, DIM).to(dtype)
    caches = []
    for layer in keys:
        cache = torch.full((blocks, 2 * KV_HEADS * SIZE * DIM), torch.nan).to(dtype)
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
    for queries, length in sizes:
        count = -(-length // SIZE)
        blocks, free = free[:count], free[count:]
        # Other tokens of the steps are of other requests.
        counts = [1, queries - 3, 2] if queries > 3 else [1] * queries
        steps = [torch.randn(LAYERS, n + 4, HEADS * DIM).to(dtype) for n in counts]
        rows = [(step, 3, 3 + n) for step, n in zip(steps, counts, strict=True)]
        found.append(PagedRequest(rows, blocks, length - queries))
        query = torch.cat([step[:, 3 : 3 + n] for step, n in zip(steps, counts, strict=True)], 1)
        key = keys[:, blocks].transpose(1, 2).flatten(2, 3)[:, :, :length]
        plain.append((query.unflatten(-1, (HEADS, DIM)).transpose(1, 2), key))
    return found, plain


def problem_of(query, key, cache, position, layer=None):
    sinks = None if cache.sinks is None else cache.sinks[layer]
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
        bias=None if slopes is None else Distance(slopes),
    )


KINDS = {
    "full": {},
    "window": {"before": 5},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": torch.linspace(-2, 3, LAYERS * HEADS).view(LAYERS, HEADS)},
    "slopes": {"slopes": torch.linspace(0.01, 0.7, LAYERS * HEADS).view(LAYERS, HEADS)},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_each_request_has_the_sums_of_the_reference(kind, dtype):
    keys, cache = cache_of(dtype, shuffled(), **KINDS[kind])
    # Prompts, a generated token, and some after a cached prefix.
    sizes = [(41, 41), (1, 1), (1, 67), (71, 83), (3, 29)]
    requests, plain = requests_of(keys, dtype, sizes)
    nothing = torch.empty(1).expand(LAYERS, HEADS, 71, DIM)
    most = torch.empty(1).expand(LAYERS, KV_HEADS, 83, DIM)
    wanted = StatisticRequest(problem_of(nothing, most, cache, 12, 0), STATISTICS)
    assert refusal(cache, wanted.reductions) is None
    reduced = reduce_paged(cache, requests, wanted.problem, wanted.reductions)
    for found, (query, key), (_, length) in zip(reduced, plain, sizes, strict=True):
        values = wanted.finished(found)
        for layer in range(LAYERS):
            position = length - query.shape[2]
            problem = problem_of(
                query[layer, None].float(), key[layer, None].float(), cache, position, layer
            )
            one = StatisticRequest(problem, STATISTICS)
            expected = one.finished(by_rows(problem, one.reductions))
            for name, value in expected.items():
                got = values[name]
                if name == "top":
                    torch.testing.assert_close(
                        got.weights[layer], value.weights[0], atol=1e-5, rtol=0
                    )
                    assert torch.equal(got.keys[layer], value.keys[0])
                else:
                    torch.testing.assert_close(got[layer], value[0], atol=2e-5, rtol=1e-5, msg=name)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_blocks_whose_tokens_are_a_step_apart_give_the_same_bits_as_others(
    dtype, step, monkeypatch
):
    size = 32
    monkeypatch.setitem(globals(), "SIZE", size)
    keys, cache = cache_of(dtype, transposed(size, step))
    requests, _ = requests_of(keys, dtype, [(75, 107), (1, 33)])
    nothing = torch.empty(1)
    largest = problem_of(
        nothing.expand(LAYERS, HEADS, 75, DIM), nothing.expand(LAYERS, KV_HEADS, 107, DIM), cache, 3
    )
    wanted = StatisticRequest(largest, STATISTICS)
    found = reduce_paged(cache, requests, largest, wanted.reductions)
    # The same keys, token by token.
    order = torch.arange(size * DIM).view(size, DIM).expand(KV_HEADS, -1, -1)
    order = order + torch.arange(KV_HEADS)[:, None, None] * size * DIM
    caches = [layer.reshape(len(layer), -1) for layer in keys]
    other = cache._replace(layers=caches, order=order)
    for one, two in zip(
        found, reduce_paged(other, requests, largest, wanted.reductions), strict=True
    ):
        for parts, others in zip(one, two, strict=True):
            assert all(map(torch.equal, parts, others))


def test_threads_share_the_units_and_give_the_same_bits():
    keys, cache = cache_of(torch.float32, shuffled())
    requests, _ = requests_of(keys, torch.float32, [(130, 140), (97, 97)])
    nothing = torch.empty(1)
    largest = problem_of(
        nothing.expand(LAYERS, HEADS, 130, DIM),
        nothing.expand(LAYERS, KV_HEADS, 140, DIM),
        cache,
        10,
    )
    wanted = StatisticRequest(largest, STATISTICS)
    before = torch.get_num_threads()
    runs = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        runs.append(reduce_paged(cache, requests, largest, wanted.reductions))
    torch.set_num_threads(before)
    for one, other in zip(*runs, strict=True):
        for parts, others in zip(one, other, strict=True):
            assert all(map(torch.equal, parts, others))


def test_what_the_kernel_does_not_compute_is_refused_in_words():
    _, cache = cache_of(torch.float32, shuffled())
    apart = cache._replace(order=torch.randperm(KV_HEADS * SIZE * DIM).view(KV_HEADS, SIZE, DIM))
    assert refusal(apart, []) == "its heads lie in different orders"
    assert refusal(cache, [TimesQueries(torch.tensor([[1.0], [0.5]]))]) == (
        "its queries have weights"
    )
    double = cache._replace(layers=[one.double() for one in cache.layers])
    assert refusal(double, []) == "the cache is of torch.float64"
    problem = problem_of(torch.ones(1, 2, 3, 5), torch.ones(1, 2, 4, 5), cache, 1)
    histogram = gh.DistanceHistogram([0, 1, 2]).reductions(problem)
    assert "DiagonalSum does not follow" in (refusal(cache, histogram) or "")
