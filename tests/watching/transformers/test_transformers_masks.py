"""Masks that a user makes, and those of texts that are packed one behind the other."""

import gc

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager
from glasshead.watching.interception.session import THREADS

pytest.importorskip("transformers")


def watched(build, mode, given):
    model = build(mode)
    with torch.no_grad(), gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        model(**given)
    return seen


def some_pairs(batch=3, length=7):
    """Pairs as nobody would guess them; each query sees itself."""
    visible = torch.rand(batch, 1, length, length) < 0.4
    return visible | torch.eye(length, dtype=torch.bool)


@pytest.mark.parametrize("build", [models.llama, models.gpt2, models.bert])
def test_a_mask_of_pairs_is_a_mask(build):
    visible = some_pairs()
    hidden = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
    given = models.inputs(build)
    model = build("eager")
    with torch.no_grad():
        weights = model(**given, attention_mask=hidden, output_attentions=True).attentions
    seen = watched(build, "sdpa", given | {"attention_mask": visible})
    for one, name in zip(weights, seen, strict=True):
        eager.check(seen[name], one)
    seen = watched(build, "eager", given | {"attention_mask": hidden})
    for one, name in zip(weights, seen, strict=True):
        eager.check(seen[name], one)


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_numbers_in_a_mask_of_pairs_are_a_bias(mode):
    bias = torch.randn(3, 1, 7, 7).masked_fill(~some_pairs(), -torch.inf)
    given = models.inputs(models.llama) | {"attention_mask": bias}
    seen = watched(models.llama, mode, given)
    with torch.no_grad():
        weights = models.llama("eager")(**given, output_attentions=True).attentions
    for one, name in zip(weights, seen, strict=True):
        eager.check(seen[name], one)


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_a_mask_that_is_written_to_is_read_again(mode):
    from transformers.models.gpt2.modeling_gpt2 import eager_attention_forward

    model = models.Alone(mode, eager_attention_forward, scaling=7**-0.5)
    query, key, value = torch.randn(3, 2, 5, 7, 7).unbind()
    mask = torch.zeros(1, 1, 7, 7)
    hidden = ~some_pairs(1)
    with gh.watch(model, eager.STATISTICS) as seen:
        model(query, key, value, mask)
        model(query, key, value, mask.masked_fill_(hidden, -torch.inf))
    scores = query @ key.mT / 7**0.5
    eager.check(seen[""], scores.masked_fill(hidden, -torch.inf).softmax(-1))


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_no_mask_outlives_the_model_that_made_it(mode):
    THREADS.session.masks.forget()
    watched(models.llama, mode, models.inputs(models.llama, "left"))
    gc.collect()
    assert THREADS.session.masks.last == []


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
@pytest.mark.parametrize("build", [models.llama, models.mistral])
def test_packed_texts_do_not_see_each_other(build, mode):
    packed = models.tokens(1, 10)
    places = torch.tensor([[*range(4), *range(6)]])
    given = {"input_ids": packed, "position_ids": places, "use_cache": False}
    seen = watched(build, mode, given)
    first = eager.weights_of(build, {"input_ids": packed[:, :4]})
    second = eager.weights_of(build, {"input_ids": packed[:, 4:]})
    for name in seen:
        whole = torch.zeros(1, 6, 10, 10)
        whole[..., :4, :4], whole[..., 4:, 4:] = first[name], second[name]
        eager.check(seen[name], whole)
