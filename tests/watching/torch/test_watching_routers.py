"""A router's softmax is no attention, whichever part of a model ran before it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
import watched_models as models

BATCH, TOKENS, WIDTH, EXPERTS = 2, 5, 7, 3


class Fused(nn.Module):
    def forward(self, x):
        heads = x[:, None]
        return F.scaled_dot_product_attention(heads, heads, heads)[:, 0]


class Explicit(nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x.mT / WIDTH**0.5, -1) @ x


class Experts(nn.Module):
    """A mixture of experts that each scale a token, and of which a way chooses some."""

    def __init__(self, way):
        super().__init__()
        self.gate, self.way = nn.Linear(WIDTH, EXPERTS), way

    def forward(self, x):
        return self.way(self.gate(x).softmax(-1), x)


def by_the_largest(weights, x):
    return x * weights.max(-1, keepdim=True).values


def by_the_two_largest(weights, x):
    largest, chosen = weights.topk(2, -1)
    largest = largest / largest.sum(-1, keepdim=True)
    made = torch.stack([(1 + number) * x for number in range(EXPERTS)], -1)
    chosen = chosen[..., None, :].expand(*x.shape, 2)
    return (made.gather(-1, chosen) * largest[..., None, :]).sum(-1)


def by_all(weights, x):
    return sum(weights[..., number, None] * (1 + number) * x for number in range(EXPERTS))


WAYS = [by_the_largest, by_the_two_largest, by_all]


class Model(nn.Module):
    """A vision tower, and layers of attention and experts, the first of which may be left out."""

    def __init__(self, way, attention=Fused):
        super().__init__()
        self.vision = Fused()
        self.attention = nn.ModuleList([Fused(), attention()])
        self.experts = nn.ModuleList([Experts(way), Experts(way)])

    def forward(self, x, *, mixing=True):
        for attention, experts in zip(self.attention, self.experts, strict=True):
            x = x + attention(x)
            x = x + experts(x) if mixing else x
        return x


BEFORE = {
    "nothing": [],
    "a vision tower": ["vision"],
    "a vision tower twice": ["vision", "vision"],
    "the model": ["model"],
    "the model without its experts": ["without", "without"],
}


def run(model, x, before):
    for one in before:
        model.vision(x) if one == "vision" else model(x, mixing=one == "model")
    return model(x)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("way", WAYS)
def test_experts_are_left_alone_whatever_ran_before(way, before):
    torch.manual_seed(0)
    model, x = Model(way).eval(), torch.randn(BATCH, TOKENS, WIDTH)
    alone = run(model, x, BEFORE[before])
    with gh.watch(model, [gh.Entropy()]) as seen:
        assert torch.equal(run(model, x, BEFORE[before]), alone)
    towers = ["vision"] if "vision" in BEFORE[before] else []
    assert list(seen) == [*towers, "attention.0", "attention.1"]


def test_explicit_attention_after_a_vision_tower_is_seen_from_its_first_pass():
    torch.manual_seed(0)
    model, x = Model(by_the_two_largest, Explicit).eval(), torch.randn(BATCH, TOKENS, WIDTH)
    with gh.watch(model, [gh.Entropy()]) as seen:
        run(model, x, ["vision", "vision", "model"])
    first, second = seen["attention.1"]
    assert torch.equal(first.entropy, second.entropy)
    assert first.by_hand == "queries · keys, divided by 2.646, softmax, · values"


def test_a_mixture_of_experts_writes_about_a_picture():
    transformers = pytest.importorskip("transformers")
    # The product of its experts takes rows of whole 16 bytes alone.
    sizes = models.sizes_of_a_decoder(hidden_size=28, intermediate_size=20)
    sizes |= {"num_local_experts": 3, "num_experts_per_tok": 2}
    config = transformers.MixtralConfig(**sizes)
    text = models.built(transformers.MixtralForCausalLM, config, "sdpa")
    model = nn.ModuleDict({"vision": models.vit("sdpa"), "text": text})
    prompt = models.tokens(2, 5)
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        for _ in range(2):
            model["vision"](torch.rand(2, 3, 12, 12))
        written = text.generate(prompt, max_new_tokens=3, do_sample=False)
    assert torch.equal(written, text.generate(prompt, max_new_tokens=3, do_sample=False))
    assert [len(seen[f"text.model.layers.{layer}.self_attn"]) for layer in range(2)] == [3, 3]
