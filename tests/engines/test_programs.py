"""A program is remembered by all that it depends on, and by nothing else."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

import glasshead as gh
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
from glasshead.engines.streaming.programs import key_of
from glasshead.engines.streaming.threads import Schedule
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
    recipe = lowered.recipe._replace(bias=bias, sink=sink, rule=lambda *_: bias > 0)
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
    assert issubclass(getattr(reductions, row.reduction), reductions.Reduction)
    if row.asked is not None:
        assert row.asked in ASKED
    assert set(row.arrays) <= set(ARRAYS)


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
