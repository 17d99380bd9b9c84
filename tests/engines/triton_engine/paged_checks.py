"""Checks of the Triton kernel on paged keys, on a CUDA device or else in Triton's interpreter.

`test_triton_kernel.py` runs this file, as `kernel_checks.py`.
"""

import sys

import pytest
import torch

import glasshead as gh
from engines.paged_cases import (
    DIM,
    HEADS,
    KINDS,
    KV_HEADS,
    LAYERS,
    SIZE,
    STATISTICS,
    assert_of_reference,
    cache_of,
    problem_of,
    request_of,
    requests_of,
    shuffled,
    transposed,
)
from glasshead.engines.streaming import paged as streaming
from glasshead.engines.streaming.paged import PagedRequest
from glasshead.engines.triton.paged import is_fastest, reduce_paged, refusal
from glasshead.serving import settling
from glasshead.serving.engine_watcher import EngineWatcher, ServedChoices
from glasshead.statistics.reductions import StatisticRequest
from scripts import ROOT, script
from serving.fake_engine import FakeRunner, FlashAttentionImpl
from serving.test_engine_watcher import KINDS as SERVED_KINDS
from serving.test_engine_watcher import STATISTICS as SERVED
from serving.test_engine_watcher import check, taken

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# The interpreter takes some tenths of a second for each block.
IS_GPU = DEVICE.type == "cuda"
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def as_they_came() -> torch.Tensor:
    """Return the order of a GPU's blocks: token by token, the heads of each together."""
    head = torch.arange(KV_HEADS)[:, None, None]
    token, feature = torch.arange(SIZE)[:, None], torch.arange(DIM)
    return (token * KV_HEADS + head) * DIM + feature


ORDERS = {"tokens": as_they_came(), "transposed": transposed(SIZE, 1)}


@pytest.mark.parametrize(
    ("kind", "dtype", "order"),
    [
        *(("full", dtype, "tokens") for dtype in DTYPES),
        *((kind, torch.float32, "tokens") for kind in KINDS if kind != "full"),
        ("window", torch.bfloat16, "transposed"),
    ],
)
def test_each_request_has_the_sums_of_float64(kind, dtype, order):
    keys, cache = cache_of(dtype, ORDERS[order], DEVICE, **KINDS[kind])
    # Prompts, a generated token, and some after a cached prefix.
    sizes = [(17, 17), (1, 31), (3, 29)]
    if IS_GPU or (kind == "full" and dtype == torch.float32):
        sizes += [(1, 1), (71, 83)]
    requests, plain = requests_of(keys, dtype, sizes)
    wanted = request_of(cache, 71, 83)
    assert refusal(cache, wanted.reductions) is None
    reduced = reduce_paged(cache, requests, wanted.problem, wanted.reductions)
    for found, (query, key) in zip(reduced, plain, strict=True):
        assert_of_reference(wanted.finished(found), query, key, cache, torch.float64)


def test_a_request_has_the_sums_of_the_kernel_of_the_cpu():
    keys, cache = cache_of(torch.bfloat16, as_they_came(), DEVICE)
    requests, _ = requests_of(keys, torch.bfloat16, [(19, 67), (5, 43)])
    wanted = request_of(cache, 19, 67)
    reduced = reduce_paged(cache, requests, wanted.problem, wanted.reductions)
    copies = [
        one._replace(rows=[(step.cpu(), first, last) for step, first, last in one.rows])
        for one in requests
    ]
    other = cache._replace(layers=[one.cpu() for one in cache.layers])
    expected = streaming.reduce_paged(other, copies, wanted.problem, wanted.reductions)
    for ours, theirs in zip(reduced, expected, strict=True):
        found, known = wanted.finished(ours), wanted.finished(theirs)
        for name in STATISTICS:
            one, two = (x[name].weights if name == "top" else x[name] for x in (found, known))
            torch.testing.assert_close(one, two, atol=2e-5, rtol=1e-5, msg=name)


def test_more_columns_than_a_launch_sums():
    keys, cache = cache_of(torch.float32, as_they_came(), DEVICE)
    requests, plain = requests_of(keys, torch.float32, [(17, 31), (1, 1)])
    statistics = {f"m{place}": gh.MassOn([place]) for place in range(11)}
    statistics |= {"received": gh.Received()}
    nothing = torch.empty(1)
    largest = problem_of(
        nothing.expand(LAYERS, HEADS, 17, DIM), nothing.expand(LAYERS, KV_HEADS, 31, DIM), cache, 14
    )
    wanted = StatisticRequest(largest, statistics)
    reduced = reduce_paged(cache, requests, largest, wanted.reductions)
    for found, (query, key) in zip(reduced, plain, strict=True):
        values, position = wanted.finished(found), key.shape[2] - query.shape[2]
        scores = query.double() @ key.double().repeat_interleave(2, 1).mT * cache.scale
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool, device=DEVICE).triu(position + 1)
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1).float().cpu()
        torch.testing.assert_close(values["received"], weights.sum(-2), atol=1e-5, rtol=0)
        for place in range(11):
            mass = weights[..., place] if place < weights.shape[-1] else weights[..., 0] * 0
            torch.testing.assert_close(values[f"m{place}"], mass, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["full", "window", "all"] if IS_GPU else ["all"])
def test_a_watched_engine_has_the_statistics_of_float64(kind, monkeypatch):
    from glasshead.engines.triton import paged

    monkeypatch.setattr(settling, "_kernels_of", lambda _cache: paged)
    monkeypatch.setattr(settling.Settler, "_values", None)
    own = SERVED_KINDS[kind]
    impls = [FlashAttentionImpl(4, 2, 6, **own) for _ in range(3 if IS_GPU else 1)]
    runner = FakeRunner(impls, dtype=torch.bfloat16, device=DEVICE)
    watcher = EngineWatcher(runner, ServedChoices(SERVED, every=7))
    runner.step({"a": 23, "b": 67})
    runner.step({"b": 1, "a": 18, "c": 1})
    for _ in range(9):
        runner.step({"a": 1, "c": 1, "b": 1})
    watcher.stop()
    for name, count in ("a", 50), ("b", 77), ("c", 10):
        seen = taken(watcher, name)
        assert seen["layers.0.self_attn"].entropy.shape == (1, 4, count)
        check(runner, name, seen)


def test_keys_are_copied_if_the_kernel_fails(monkeypatch):
    from glasshead.engines.triton import paged

    def fail(*_args):
        raise RuntimeError("of the test")

    monkeypatch.setattr(settling, "_kernels_of", lambda _cache: paged)
    monkeypatch.setattr(paged, "reduce_paged", fail)
    runner = FakeRunner([FlashAttentionImpl(4, 2, 6)], device=DEVICE)
    watcher = EngineWatcher(runner, ServedChoices(SERVED))
    monkeypatch.setattr(settling, "_is_of_gpu", lambda _cache: True)
    with pytest.warns(UserWarning, match="from copies of the keys"):
        runner.step({"a": 17})
    runner.step({"a": 1})
    watcher.stop()
    check(runner, "a", taken(watcher, "a"))


def test_keys_of_many_pairs_are_copied(monkeypatch):
    from glasshead.engines.triton import paged

    took = []
    monkeypatch.setattr(settling, "_is_of_gpu", lambda _cache: True)
    monkeypatch.setattr(settling, "_kernels_of", lambda _cache: paged)
    monkeypatch.setattr(paged, "_PAIRS", 20 * 20)
    monkeypatch.setattr(paged, "reduce_paged", lambda *_args: took.append("in place"))
    copied = settling.Settler._values
    monkeypatch.setattr(
        settling.Settler, "_values", lambda *args: took.append("copies") or copied(*args)
    )
    runner = FakeRunner([FlashAttentionImpl(4, 2, 6)], device=DEVICE)
    watcher = EngineWatcher(runner, ServedChoices(SERVED))
    runner.step({"a": 23})
    watcher.stop()
    assert set(took) == {"copies"}
    check(runner, "a", taken(watcher, "a"))


@pytest.mark.parametrize(
    ("before", "sizes", "expected"),
    [
        (None, [(64, 2048)], True),
        (None, [(64, 2049)], False),
        # The mean of several counts.
        (None, [(64, 2049), (1, 17)], True),
        # A window of 1,985 keys, of which the last 64 queries see 2,048.
        (1984, [(64, 8191)], True),
        (1985, [(64, 8191)], False),
    ],
)
def test_keys_stay_in_place_if_that_takes_less_time(before, sizes, expected):
    _, cache = cache_of(torch.float32, as_they_came(), torch.device("cpu"))
    step = torch.empty(1, max(queries for queries, _ in sizes), 1)
    requests = [
        PagedRequest([(step, 0, queries)], torch.empty(0), keys - queries)
        for queries, keys in sizes
    ]
    assert is_fastest(cache._replace(before=before), requests) is expected


# On a GPU in the sizes of its blocks.
WORKS = {"cpu": ((2, 3, 37),), "cuda": ((3, 64, 517), (2, 130, 307), (5, 1, 1031))}
TINY = {"layers": 2, "heads": 4, "kv_heads": 2, "width": 16, "dtype": torch.float32}


def test_the_benchmark_finds_the_statistics_of_float64(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = script("benchmarks/gpu_paged.py")
    monkeypatch.setitem(sys.modules, "gpu_paged", module)
    tiny = {} if IS_GPU else TINY
    works = WORKS[DEVICE.type]
    rows = module.measured(module.Sizes(DEVICE, works=works, pairs=1, **tiny))
    errors = [row for row in rows if getattr(row, "about", "").endswith("against float64")]
    assert len(errors) == len(works)
    assert all(row.reached for row in errors), errors


def test_what_the_kernel_does_not_compute_is_refused_in_words():
    _, cache = cache_of(torch.float32, as_they_came(), DEVICE)
    assert refusal(cache._replace(order=shuffled()), []) == "its numbers are not in even steps"
    double = cache._replace(layers=[one.double() for one in cache.layers])
    assert refusal(double, []) == "the cache is of torch.float64"
    wide = cache._replace(order=torch.zeros(KV_HEADS, SIZE, 257, dtype=torch.long))
    assert refusal(wide, []) == "keys are at most 256 wide, and these 257"
    many = gh.TopK(65).reductions(problem_of(*(torch.ones(1, 2, 70, 5),) * 2, cache, 0))
    assert "LargestWeights" in refusal(cache, many)
