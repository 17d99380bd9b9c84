"""A program is remembered by all that it depends on, and by nothing else."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

import glasshead as gh
from glasshead.engines.streaming import passes, programs
from glasshead.engines.streaming.engine import lower
from glasshead.engines.streaming.kernels.streamed import (
    ARRAYS,
    ASKED,
    STREAMED,
    OutputSpec,
    Results,
)
from glasshead.engines.streaming.operands import RecipeTensors, asked_for
from glasshead.engines.streaming.operator import streaming
from glasshead.engines.streaming.programs import Schedule, key_of
from glasshead.statistics import reductions

QUERIES, KEYS = 5, 7
REQUEST = OutputSpec(
    keyed=1,
    far=1,
    diagonal=1,
    top=3,
    maps=(2, 3, 5, 1),
    per_key=torch.rand(1, 1, 2, KEYS),
    per_query=torch.rand(1, 6, 3, QUERIES),
)


def problem():
    query, key, value = (torch.randn(2, h, n, 32) for h, n in ((6, QUERIES), (3, KEYS), (3, KEYS)))
    attention = gh.Attention(
        mask=gh.dense(torch.rand(QUERIES, KEYS) < 0.7), bias=gh.ALiBi(6), softcap=3.0
    )
    lowered = lower(attention.problem(query, key, value, None, None, None))
    bias, sink = torch.rand(2, 1, QUERIES, KEYS), torch.rand(6)
    known = torch.rand(2, 6, QUERIES)
    recipe = lowered.recipe._replace(bias=bias, sink=sink, known=known, rule=lambda *_: bias > 0)
    return lowered._replace(recipe=recipe)


def others(value):
    """Values that a program must not take for this one."""
    if isinstance(value, torch.Tensor):
        yield value.to(torch.int16)
        yield torch.cat([value, value], -1)
        yield torch.stack([value, value], -1)[..., 0]
        yield None
    elif isinstance(value, tuple):
        yield value[:2]
        yield (*value[:-1], value[-1] + 1)
    elif callable(value):
        yield None
    else:
        yield value + 1


def variants(whole: Any):
    """The tuple or dataclass with each field changed, one at a time, by the field."""
    if isinstance(whole, Schedule):
        names, changed = [one.name for one in fields(whole) if one.compare], replace
    else:
        names, changed = whole._fields, type(whole)._replace
    for name in names:
        value = getattr(whole, name)
        if isinstance(value, RecipeTensors):
            continue
        assert value is not None, f"{name} is to be given"
        for other in others(value):
            yield name, changed(whole, **{name: other})


def test_programs_that_differ_in_one_field_have_two_keys():
    whole = problem()
    cut = Schedule.of(whole, numbers=2**20, shares=4)
    key, seen = key_of(whole, REQUEST, cut), set()
    for name, recipe in variants(whole.recipe):
        seen.add(name)
        assert key_of(whole._replace(recipe=recipe), REQUEST, cut) != key, name
    for name, one in variants(whole):
        seen.add(name)
        assert key_of(one, REQUEST, cut) != key, name
    for name, spec in variants(REQUEST):
        seen.add(name)
        assert key_of(whole, spec, cut) != key, name
    for name, schedule in variants(cut):
        seen.add(name)
        assert key_of(whole, REQUEST, schedule) != key, name
    assert seen > {*RecipeTensors._fields, *OutputSpec._fields, "query", "key", "value"}


def test_other_numbers_in_tensors_of_one_layout_have_one_key():
    whole = problem()
    other = whole._replace(query=whole.query + 1, key=whole.key * 2)
    assert key_of(whole, REQUEST) == key_of(other, REQUEST)
    hash(key_of(whole, REQUEST))


def test_the_number_of_threads_is_in_the_key(monkeypatch):
    before = key_of(REQUEST)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 17)
    assert key_of(REQUEST) != before


@pytest.mark.parametrize("row", STREAMED, ids=lambda row: row.reduction)
def test_every_row_is_a_reduction_that_has_its_fields(row):
    kind = getattr(reductions, row.reduction)
    assert issubclass(kind, reductions.Reduction)
    if row.asked is not None:
        assert row.asked in ASKED
    assert set(row.arrays) <= set(ARRAYS)
    merged = kind.merged if kind.query_axis is None else ""
    assert all(array.merged == merged for array in row.arrays)


def test_every_reduction_is_streamed_and_the_operator_gives_every_array():
    kinds = {
        one.__name__
        for one in reductions.Reduction.__subclasses__()
        if one.__module__ == reductions.__name__
    }
    assert kinds == {row.reduction for row in STREAMED}
    assert len(streaming._schema.returns) == len(ARRAYS) == len(Results._fields)
    names = [one.name for one in streaming._schema.arguments]
    assert tuple(names[-len(ASKED) :]) == OutputSpec._fields


def test_a_request_joins_reductions_of_one_class():
    query = torch.randn(2, 3, QUERIES, 4)
    key = torch.randn(2, 3, KEYS, 4)
    whole = gh.Attention().problem(query, key, key, None, None, None)
    spec = asked_for(
        whole,
        [
            reductions.LargestWeights(2),
            reductions.TimesKeys(torch.ones(KEYS, 2)),
            reductions.BlockSum(5, 1),
            reductions.LargestWeights(3),
            reductions.BlockSum(2, 7),
            reductions.TimesKeys(torch.zeros(3, KEYS, 1)),
            reductions.DistanceSum(),
        ],
    )
    assert (spec.top, spec.maps, spec.far, spec.keyed, spec.diagonal) == (3, (5, 1, 2, 7), 1, 0, 0)
    assert spec.per_query is None
    assert spec.per_key.shape == (1, 3, 3, KEYS)
    assert torch.equal(spec.per_key.sum(-1)[0, 0], torch.tensor([7.0, 7.0, 0.0]))


def shorter(x):
    """The numbers of a tensor but the last, in memory of their own."""
    return x.detach().flatten()[:-1].clone()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_arrays_that_are_too_short_for_the_kernels_are_refused(monkeypatch, dtype):
    """Of each array one number less; the kernels would read or write beyond it."""
    monkeypatch.setattr(programs, "_CHECKED", True)
    monkeypatch.setattr(programs, "_PROGRAMS", {})
    seen, run = {}, programs.Program.run

    def noting(program, given, **options):
        run(program, given, **options)
        for name, array in given.items():
            if array is None or not array.numel() or name not in program._needed:
                continue
            with pytest.raises(ValueError, match=f"^{name} must have .* bytes for the kernels"):
                run(program, {**given, name: shorter(array)}, **options)
            seen[name] = True
        with pytest.raises(ValueError, match="query must have .* bytes for the kernels, got 0"):
            run(program, {**given, "query": None}, **options)

    monkeypatch.setattr(programs.Program, "run", noting)
    heads = torch.nn.Parameter(torch.linspace(-1, 1, 6).to(torch.promote_types(dtype, torch.float)))
    attention = gh.Attention(
        mask=gh.dense(torch.rand(QUERIES, KEYS) < 0.7),
        bias=gh.RelativeBias(6, buckets=8, max_distance=9),
        normalizer=gh.SoftmaxOne(heads),
        softcap=3.0,
        engine="streaming",
    ).to(heads.dtype)
    query, key, value = (
        torch.randn(2, h, n, 13, dtype=dtype, requires_grad=True)
        for h, n in ((6, QUERIES), (3, KEYS), (3, KEYS))
    )
    asked = [gh.Received(), gh.TopK(2), gh.PooledMap(2, 3), gh.DistanceHistogram([0, 3])]
    attention.observe(query, key, value, asked)
    seen_of = attention.observe(query, key, value, [gh.MassOn([1]), gh.Entropy()], gradient=True)
    (seen_of.context.sum() + seen_of.mass_on.sum() + seen_of.entropy.sum()).backward()
    own = {"query", "key", "value", "bounds", "offsets", "visible", "table", "sink"}
    results = {"context", "rows", "by_key", "top", "keys", "by_query", "diagonals", "maps"}
    backward = {"of_context", "of_entropy", "of_by_key", "row_stats", "grad_query", "grad_key"}
    assert seen.keys() >= own | results | backward | {"per_key", "per_query", "grad_value"}
    assert seen.keys() >= {"grad_table", "grad_sink"}


@pytest.mark.parametrize("rule", [False, True])
def test_a_long_call_in_parts_has_the_bits_of_a_short_one(monkeypatch, rule):
    class EveryThird(gh.Mask):
        def visible(self, tile):
            return tile.distance() % 3 == 0

    attention = gh.Attention(
        mask=gh.causal() & EveryThird() if rule else gh.causal(),
        normalizer=gh.SoftmaxOne(0.3),
        engine="streaming",
    )
    inputs = [torch.randn(2, 3, 331, 13, requires_grad=True) for _ in range(3)]

    def found():
        seen = attention.observe(*inputs, [gh.Received(), gh.TopK(2), gh.Entropy()])
        gradients = torch.autograd.grad(seen.context.square().sum(), inputs)
        return [seen.context, seen.received, *seen.top_k, seen.entropy, *gradients]

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        whole = found()
        monkeypatch.setattr(passes, "LONGEST", 2**20)
        monkeypatch.setattr(passes, "_PAIRS", 2**16)
        taken, share = [], programs.share
        monkeypatch.setattr(programs, "share", lambda *given: taken.append(given) or share(*given))
        for one, other in zip(found(), whole, strict=True):
            assert torch.equal(one, other)
    finally:
        torch.set_num_threads(before)
    assert len(taken) > (2 if rule else 1)


@pytest.mark.parametrize("most", [2**17, 0], ids=["remembered", "too long to be remembered"])
def test_work_is_divided_by_the_numbers_of_the_bounds(monkeypatch, most):
    monkeypatch.setattr(programs, "_REMEMBERED", most)
    whole = problem()
    bounds = torch.tensor([[[0] * QUERIES, [KEYS] * QUERIES]])
    whole = whole._replace(recipe=whole.recipe._replace(bounds=bounds))
    again = whole._replace(recipe=whole.recipe._replace(bounds=bounds.clone()))
    all_keys = Schedule.of(whole, numbers=2**20, shares=4)
    assert Schedule.of(again, numbers=2**20, shares=4) == all_keys
    # As no version of a tensor shows.
    bounds.numpy()[:, 1] = 1
    one_key = Schedule.of(whole, numbers=2**20, shares=4)
    assert all_keys.operations == KEYS * one_key.operations
    assert one_key.across - 1 == all_keys.across - KEYS
    assert Schedule.of(again, numbers=2**20, shares=4) == all_keys
