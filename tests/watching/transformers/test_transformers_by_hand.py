"""Families of transformers that compute their attention by hand: what is seen is what they return.

They have no fused kernel, and return their weights for `output_attentions=True`.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
import watched_models as models
import watched_weights as eager
from watching.torch.explicit import STATISTICS, check, nothing_is_open, undisturbed
from watching.transformers.written_by_hand import (
    FAMILIES,
    LENGTH,
    WRITERS,
)

pytest.importorskip("transformers")

EXACT = 1e-6
TOLERANCES = {torch.float64: EXACT, torch.float32: 1e-5}
# Positions are turned in float32.
NEAR = {"rtol": 1e-5, "atol": 1e-5}
NEW = 4
GREEDY = {"do_sample": False, "use_cache": True, "pad_token_id": 0}


def given_to(family):
    return {name: one for name, one in family.inputs().items() if one is not None}


def seen_of(model, given, **asked):
    """What a watch sees of a run that gives, bit for bit, what it gives when nobody watches."""
    alone = model(**given)[0]
    with gh.watch(model, STATISTICS, **asked) as seen:
        watched = model(**given)[0]
    assert torch.equal(alone, watched)
    assert nothing_is_open()
    return seen


@pytest.mark.parametrize("name", [name for name, one in FAMILIES.items() if one.attentions])
def test_what_is_seen_is_what_the_model_returns(name):
    family = FAMILIES[name]
    model, given = family.model(), given_to(family)
    with torch.no_grad():
        returned = model(**given, output_attentions=True).attentions
        seen = seen_of(model, given)
    for layer, expected in enumerate(returned[:2]):
        call = seen[family.attentions.format(layer, 1 - layer)][-1]
        assert call.by_hand.startswith("queries · keys, ")
        assert call.shape == expected.shape[:-1]
        # Models average over all keys for queries of padding that see none.
        empty = call.largest == 0
        assert not empty.any() or not call.real[empty.any(1)].any()
        check(
            call, expected.masked_fill(empty.unsqueeze(-1), 0.0), tolerance=TOLERANCES[family.dtype]
        )


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_attention_is_seen_in_each_mode(name, mode):
    family = FAMILIES[name]
    model, given = family.model(), given_to(family)
    with mode():
        seen = seen_of(model, given)
    returned = {"levit": 8, "perceiver": 3, "swinv2": 3, "donut_swin": 3}
    assert len(seen) == returned.get(name, 2)
    assert all(watched[-1].by_hand for watched in seen.values())


@pytest.mark.parametrize("name", WRITERS)
def test_a_text_that_is_written_with_a_cache_is_one_text(name):
    family = WRITERS[name]
    model = family.model()
    tokens = given_to(family)["input_ids"]
    with gh.watch(model, [gh.Entropy(), gh.Received()]) as seen:
        written = model.generate(tokens, max_new_tokens=NEW, **GREEDY)
    read = written[:, :-1]
    with torch.no_grad(), gh.watch(model, [gh.Entropy(), gh.Received()]) as whole:
        model(read)
    for layer, watched in seen.items():
        assert [call.position for call in watched] == [0, *range(LENGTH, read.shape[1])]
        torch.testing.assert_close(watched.entropy, whole[layer].entropy, **NEAR)
        torch.testing.assert_close(watched.received, whole[layer].received, **NEAR)


@pytest.mark.parametrize("name", ["bloom", "gptj", "gpt_neo"])
def test_texts_that_begin_with_padding(name):
    family = WRITERS[name]
    model, given = family.model(), given_to(family)
    mask = given["attention_mask"].flip(-1)
    with torch.no_grad(), gh.watch(model, STATISTICS) as seen:
        model(input_ids=given["input_ids"], attention_mask=mask)
    for watched in seen.values():
        assert watched[-1].real.equal(mask.bool())
        assert watched.received[1, :, :3].eq(0).all()
        assert watched.entropy[1, :, :3].eq(0).all()


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_gpt2_that_upcasts_in_its_eager_mode_is_seen_in_both(mode):
    model = models.gpt2(mode, reorder_and_upcast_attn=True)
    given = models.inputs(models.gpt2)
    with torch.no_grad(), gh.watch(model, eager.STATISTICS) as seen:
        model(**given)
    for name, weights in eager.weights_of(models.gpt2, given).items():
        eager.check(seen[name], weights)


class ClassAttention(nn.Module):
    """Attention of a class token to an image, as CaiT has it."""

    def __init__(self, dim=12, num_heads=3):
        super().__init__()
        self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.attn_drop = nn.Dropout(0.1)

    def forward(self, x):
        B, N, C = x.shape
        q = self.q(x[:, 0]).unsqueeze(1).reshape(B, 1, self.num_heads, -1).permute(0, 2, 1, 3)
        k = self.k(x).reshape(B, N, self.num_heads, -1).permute(0, 2, 1, 3)
        q = q * self.scale
        v = self.v(x).reshape(B, N, self.num_heads, -1).permute(0, 2, 1, 3)
        attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        attn = self.attn_drop(attn)
        return (attn @ v).transpose(1, 2).reshape(B, 1, C)


class TalkingHeadAttn(ClassAttention):
    """Heads mixed before the softmax, and after it, as CaiT has it."""

    def __init__(self, *sizes, after=True):
        super().__init__(*sizes)
        self.proj_l, self.proj_w = (nn.Linear(self.num_heads, self.num_heads) for _ in range(2))
        self.after = after

    def softmax(self, x):
        """The weights of the softmax."""
        q, k = (
            one(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for one in (self.q, self.k)
        )
        scores = (q * self.scale) @ k.mT
        return self.proj_l(scores.movedim(1, -1)).movedim(-1, 1).softmax(-1).detach()

    def forward(self, x):
        q, k, v = (one(x).unflatten(-1, (self.num_heads, -1)) for one in (self.q, self.k, self.v))
        q, k, v = (one.permute(0, 2, 1, 3) for one in (q * self.scale, k, v))
        attn = q @ k.transpose(-2, -1)
        attn = self.proj_l(attn.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        attn = attn.softmax(dim=-1)
        if self.after:
            attn = self.proj_w(attn.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return (self.attn_drop(attn) @ v).transpose(1, 2).flatten(2)


class XCA(nn.Module):
    """Attention between features, as XCiT has it."""

    def __init__(self, dim=12, num_heads=3):
        super().__init__()
        self.num_heads = num_heads
        self.temperature = nn.Parameter(torch.rand(num_heads, 1, 1))
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)
        self.attn_drop = nn.Dropout(0.1)

    def softmax(self, x):
        """The weights of the softmax."""
        q, k, _ = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 4, 1)
        q, k = (one / one.norm(dim=-1, keepdim=True) for one in (q, k))
        return (q @ k.mT * self.temperature).softmax(-1).detach()

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 4, 1).unbind(0)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        attn = (q @ k.transpose(-2, -1)) * self.temperature
        attn = self.attn_drop(attn.softmax(dim=-1))
        return self.proj((attn @ v).permute(0, 3, 1, 2).reshape(B, N, C))


class TestModelsOfImages:
    @pytest.mark.parametrize("length", [12, 11, 4])
    def test_a_class_token_is_a_query_of_its_own(self, length):
        model = ClassAttention().double().eval()
        x = torch.randn(2, length, 12, dtype=torch.float64)
        seen = undisturbed(model, x, gradient=True)
        query, key = (one(x).unflatten(-1, (3, -1)).transpose(1, 2) for one in (model.q, model.k))
        expected = (query[:, :, :1] @ key.mT * model.scale).softmax(-1).detach()
        assert seen[""][-1].shape == (2, 3, 1)
        torch.testing.assert_close(seen[""].received, expected.sum(-2))

    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize("length", [12, 7, 3])
    def test_heads_that_are_mixed_before_the_softmax_and_after_it_are_seen(self, length, after):
        model = TalkingHeadAttn(after=after).double().eval()
        x = torch.randn(2, length, 12, dtype=torch.float64)
        seen = undisturbed(model, x, gradient=True)
        check(seen[""], model.softmax(x), tolerance=EXACT)
        mixed = "heads mixed by a learned product"
        told = [mixed, "a bias added", "softmax", *([mixed] if after else []), "· values"]
        assert seen[""].by_hand == ", ".join(["queries · keys", *told])
        with torch.inference_mode():
            inferred = undisturbed(model, x)
            check(inferred[""], model.softmax(x), tolerance=EXACT)

    def test_a_dropout_of_mixed_heads_is_told(self):
        model, x = TalkingHeadAttn().double(), torch.randn(2, 7, 12, dtype=torch.float64)
        seen = undisturbed(model, x, gradient=True)
        check(seen[""], model.softmax(x), tolerance=EXACT)
        assert seen[""].by_hand.endswith("heads mixed by a learned product, a dropout, · values")

    @pytest.mark.parametrize("training", [False, True])
    @pytest.mark.parametrize("length", [12, 11, 4])
    def test_features_that_weigh_features_are_seen(self, length, training):
        model = XCA().double().train(training)
        x = torch.randn(2, length, 12, dtype=torch.float64)
        asked = [gh.Entropy(), gh.Received()]
        seen = undisturbed(model, x, statistics=asked, gradient=True)
        expected = model.softmax(x)
        assert seen[""][-1].shape == (2, 3, 4)
        entropy = -torch.special.xlogy(expected, expected).sum(-1)
        torch.testing.assert_close(seen[""].entropy, entropy)
        torch.testing.assert_close(seen[""].received, expected.sum(-2))
        after = "a dropout, " if training else ""
        words = f"queries · keys, times numbers, softmax over features, {after}· values"
        assert seen[""].by_hand == words
