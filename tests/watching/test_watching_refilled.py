"""Kept calls stay as they were when a model refills its masks, biases, keys or parameters."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
import watched_models as models
from watching.torch.explicit import weights

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 7, 11, 5
NEAR: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}


def filled(tensor, new):
    return tensor.logical_or_(new) if tensor.dtype == torch.bool else tensor.add_(new)


WAYS = {
    "copy_": lambda tensor, new: tensor.copy_(new),
    "fill_": lambda tensor, new: filled(tensor.fill_(0), new),
    "index": lambda tensor, new: tensor.__setitem__(..., new),
    "data": lambda tensor, new: tensor.data.copy_(new),
    "data index": lambda tensor, new: tensor.data.__setitem__(slice(None), new),
    "set data": lambda tensor, new: setattr(tensor, "data", new),
    "numpy": lambda tensor, new: tensor.numpy().__setitem__(..., new.numpy()),
}
STATISTICS = [gh.Entropy(), gh.Received(), gh.MaxWeight()]
KINDS = ["boolean", "hiding", "bias"]


def drawn(kind, seed, shape=(QUERIES, KEYS)):
    """A mask, in which each query sees the first key at least."""
    pairs = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
    visible = (pairs < 0.6) | (torch.arange(KEYS) == 0)
    if kind == "boolean":
        return visible
    hidden = pairs.new_zeros(shape).masked_fill(~visible, -torch.inf)
    return hidden if kind == "hiding" else hidden + 3 * pairs


def explicit(query, key, mask):
    if mask.dtype == torch.bool:
        return weights(query, key, visible=mask)
    return weights(query, key, bias=mask)


def check(call, expected):
    """What was seen of a call is what the weights say."""
    entropy = -torch.special.xlogy(expected, expected).sum(-1)
    torch.testing.assert_close(call.entropy, entropy, **NEAR)
    torch.testing.assert_close(call.received, expected.sum(-2), **NEAR)
    torch.testing.assert_close(call.max_weight, expected.amax(-1), **NEAR)


class Refilling(nn.Module):
    """Two layers that share one mask, which is refilled for each batch."""

    def __init__(self, mask, way):
        super().__init__()
        self.layers = nn.ModuleList(nn.Identity() for _ in range(2))
        self.register_buffer("mask", mask)
        self.way, self.calls = way, []

    def forward(self, query, key, new):
        WAYS[self.way](self.mask, new)
        for layer in self.layers:
            layer.forward = lambda x: F.scaled_dot_product_attention(x, key, key, self.mask)
            self.calls.append((query, key, self.mask.clone()))
            query = layer(query)
        return query


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_that_is_refilled_belongs_to_its_call(kind, way):
    model = Refilling(drawn(kind, 0), way)
    with torch.no_grad(), gh.watch(model, STATISTICS, keep="weights") as seen:
        for batch in range(3):
            query, key = torch.randn(BATCH, HEADS, QUERIES, DIM), torch.randn(2, 3, KEYS, DIM)
            model(query, key, drawn(kind, batch))
    model.mask.data.fill_(0)
    for place, (query, key, mask) in enumerate(model.calls):
        call = seen[f"layers.{place % 2}"][place // 2]
        expected = explicit(query, key, mask)
        torch.testing.assert_close(call.weights.dense(), expected, **NEAR)
        torch.testing.assert_close(call.weights @ torch.eye(KEYS), expected, **NEAR)
        check(call, expected)


def test_layers_share_a_copy_of_a_mask_and_batches_do_not():
    def watched(budget):
        model = Refilling(drawn("boolean", 0), "data")
        with torch.no_grad(), gh.watch(model, keep="weights", budget=budget) as seen:
            for seed in (1, 1, 2):
                query, key = torch.randn(BATCH, HEADS, QUERIES, DIM), torch.randn(2, 3, KEYS, DIM)
                model(query, key, drawn("boolean", seed))
        return seen

    masks = 2 * QUERIES * KEYS
    vectors = 4 * BATCH * HEADS * (QUERIES * DIM + KEYS * DIM + QUERIES)
    seen = watched(6 * vectors + masks)
    held = {call.weights._problem.mask.tensor.data_ptr() for name in seen for call in seen[name]}
    assert len(held) == 2
    with pytest.warns(UserWarning, match=f"={6 * vectors + masks - 1} bytes, but needs"):
        assert watched(6 * vectors + masks - 1).missing


@pytest.mark.parametrize("way", ["copy_", "data", "index"])
@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_a_mask_that_a_model_of_transformers_is_given_again(mode, way):
    from transformers.models.bart.modeling_bart import eager_attention_forward

    model = models.Alone(mode, eager_attention_forward, scaling=DIM**-0.5)
    mask = torch.zeros(1, 1, QUERIES, QUERIES)
    given = []
    with gh.watch(model, STATISTICS, keep="weights") as seen:
        for seed in range(3):
            query, key, value = torch.randn(3, BATCH, HEADS, QUERIES, DIM).unbind()
            new = drawn("bias", seed)[:, :QUERIES]
            WAYS[way](mask, new[None, None])
            model(query, key, value, mask)
            given.append((query, key, new))
    for call, (query, key, new) in zip(seen[""], given, strict=True):
        expected = weights(query, key, bias=new)
        torch.testing.assert_close(call.weights.dense(), expected, **NEAR)
        check(call, expected)


class Own(nn.Module):
    """Our attention, with everything in its recipe that may be learned or refilled."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(HEADS, QUERIES, KEYS))
        self.shown = torch.ones(BATCH, KEYS, dtype=torch.bool)
        self.lengths = torch.tensor([11, 6])
        self.rule = gh.Attention(
            score=gh.Dot(beta=nn.Parameter(torch.rand(HEADS) + 0.5)),
            bias=gh.RelativeBias(HEADS, buckets=8, max_distance=9),
            mask=~(~gh.dense(self.shown[:, None, None]) | ~gh.padding(self.lengths)),
            normalizer=gh.SoftmaxOne(nn.Parameter(torch.zeros(HEADS))),
        )

    def forward(self, query, key):
        return self.rule(query, key, key, bias=self.table)


def test_a_step_of_training_and_a_refilled_recipe_leave_what_was_kept():
    model, expected = Own(), []
    with gh.watch(model, keep="weights") as seen:
        for batch in range(3):
            query, key = torch.randn(BATCH, HEADS, QUERIES, DIM), torch.randn(2, 3, KEYS, DIM)
            model(query, key)
            trace = model.rule.trace(query, key, key, bias=model.table)
            expected.append(trace.weights.detach())
            for parameter in model.parameters():
                parameter.data.add_(torch.randn_like(parameter))
            model.shown.data[:, batch + 1] = False
            model.lengths.data.sub_(1)
    for call, wanted in zip(seen[""], expected, strict=True):
        torch.testing.assert_close(call.weights.dense(), wanted, **NEAR)
        torch.testing.assert_close(call.weights[..., 3:9], wanted[..., 3:9], **NEAR)
        torch.testing.assert_close(call.weights.head(1, 2).dense(), wanted[1, 2], **NEAR)


class Ruled(gh.Mask):
    """A mask of one's own, by a function that reads what it likes."""

    def __init__(self, rule):
        self.rule = rule

    def visible(self, tile):
        return self.rule(tile.positions(), tile.columns())


def test_a_mask_by_a_function_is_kept_as_it_was():
    words = torch.arange(KEYS)
    mask = Ruled(lambda row, column: (words[column] + row) % 3 > 0)
    model, expected = gh.Attention(mask=mask), []
    with gh.watch(model, keep="weights") as seen:
        for _ in range(2):
            query, key = torch.randn(BATCH, HEADS, QUERIES, DIM), torch.randn(2, 3, KEYS, DIM)
            model(query, key, key)
            expected.append(model.trace(query, key, key).weights)
            words.data.add_(1)
    for call, wanted in zip(seen[""], expected, strict=True):
        torch.testing.assert_close(call.weights.dense(), wanted, **NEAR)


@pytest.mark.parametrize("way", ["copy_", "data", "numpy"])
def test_keys_that_are_written_to_one_buffer_belong_to_their_call(way):
    class Buffered(nn.Module):
        def __init__(self):
            super().__init__()
            self.queries, self.keys = torch.empty(2, 3, QUERIES, DIM), torch.empty(2, 3, KEYS, DIM)

        def forward(self, query, key):
            WAYS[way](self.queries, query)
            WAYS[way](self.keys, key)
            return F.scaled_dot_product_attention(self.queries, self.keys, self.keys)

    model, given = Buffered(), []
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        for _ in range(3):
            given.append((torch.randn(2, 3, QUERIES, DIM), torch.randn(2, 3, KEYS, DIM)))
            model(*given[-1])
    for call, (query, key) in zip(seen[""], given, strict=True):
        torch.testing.assert_close(call.weights.dense(), weights(query, key), **NEAR)


@pytest.mark.parametrize("build", [models.llama, models.mistral, models.gemma2, models.gpt_oss])
@pytest.mark.parametrize("prompt", [3, 8])
def test_a_static_cache_that_is_written_on_and_reset_leaves_the_weights_of_each_step(build, prompt):
    from transformers import StaticCache

    model, other = build("eager"), build("eager")
    cache = StaticCache(config=model.config, max_cache_len=17)
    texts = torch.randint(2, models.VOCABULARY, (2, 2, prompt + 6))
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        for text in texts:
            cache.reset()
            model(text[:, :prompt], past_key_values=cache)
            for place in range(prompt, text.shape[1]):
                model(text[:, place : place + 1], past_key_values=cache)
    for layer, name in enumerate(seen):
        for number, text in enumerate(texts):
            with torch.no_grad():
                whole = other(text, output_attentions=True, use_cache=False).attentions[layer]
            for call in seen[name].texts[number]:
                found = call.weights.dense()
                rows = slice(call.position, call.end)
                keys = slice(call.first_key, call.first_key + found.shape[-1])
                torch.testing.assert_close(found, whole[:, :, rows, keys], **NEAR)


def test_a_mask_with_large_numbers_is_kept_as_exactly():
    # The kernel's logsumexp of 1e9 has no digits left for the sum of 11 keys.
    mask = torch.zeros(QUERIES, KEYS)
    mask[[2, 3]], mask[5] = -1e9, 1e4
    model = Refilling(mask.clone(), "data")
    query, key = torch.randn(BATCH, HEADS, QUERIES, DIM), torch.randn(2, 3, KEYS, DIM)
    with torch.no_grad(), gh.watch(model, keep="weights", layers="layers.0") as seen:
        model(query, key, mask)
    W = seen["layers.0"].weights
    expected = (query @ key.mT * DIM**-0.5 + mask).softmax(-1)
    torch.testing.assert_close(W.dense(), expected, **NEAR)
    torch.testing.assert_close(W[..., 2:9], expected[..., 2:9], **NEAR)
    torch.testing.assert_close(W @ torch.ones(KEYS, 1), torch.ones(2, 3, QUERIES, 1), **NEAR)
