"""Sums over the weights of many requests, from a paged cache of any layout, are the reference's."""

import pytest
import torch

import glasshead as gh
from engines.paged_cases import (
    DIM,
    KINDS,
    KV_HEADS,
    SIZE,
    assert_of_reference,
    cache_of,
    problem_of,
    request_of,
    requests_of,
    shuffled,
    transposed,
)
from glasshead.engines.streaming.paged import reduce_paged, refusal
from glasshead.statistics.reductions import TimesQueries


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_each_request_has_the_sums_of_the_reference(kind, dtype):
    keys, cache = cache_of(dtype, shuffled(), **KINDS[kind])
    # Prompts, a generated token, and some after a cached prefix.
    sizes = [(41, 41), (1, 1), (1, 67), (71, 83), (3, 29)]
    requests, plain = requests_of(keys, dtype, sizes)
    wanted = request_of(cache, 71, 83)
    assert refusal(cache, wanted.reductions) is None
    reduced = reduce_paged(cache, requests, wanted.problem, wanted.reductions)
    for found, (query, key) in zip(reduced, plain, strict=True):
        assert_of_reference(wanted.finished(found), query, key, cache, torch.float32)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_blocks_whose_tokens_are_a_step_apart_give_the_same_bits_as_others(dtype, step):
    size = 32
    keys, cache = cache_of(dtype, transposed(size, step))
    requests, _ = requests_of(keys, dtype, [(75, 107), (1, 33)])
    wanted = request_of(cache, 75, 107)
    found = reduce_paged(cache, requests, wanted.problem, wanted.reductions)
    # The same keys, token by token.
    order = torch.arange(size * DIM).view(size, DIM).expand(KV_HEADS, -1, -1)
    order = order + torch.arange(KV_HEADS)[:, None, None] * size * DIM
    caches = [layer.reshape(len(layer), -1) for layer in keys]
    other = cache._replace(layers=caches, order=order)
    for one, two in zip(
        found, reduce_paged(other, requests, wanted.problem, wanted.reductions), strict=True
    ):
        for parts, others in zip(one, two, strict=True):
            assert all(map(torch.equal, parts, others))


def test_threads_share_the_units_and_give_the_same_bits():
    keys, cache = cache_of(torch.float32, shuffled())
    requests, _ = requests_of(keys, torch.float32, [(130, 140), (97, 97)])
    wanted = request_of(cache, 130, 140)
    before = torch.get_num_threads()
    runs = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        runs.append(reduce_paged(cache, requests, wanted.problem, wanted.reductions))
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
