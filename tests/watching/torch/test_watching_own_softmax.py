"""Modules that compute attention by code of their own are named; other softmaxes are none."""

import re
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from watching.torch.explicit import nothing_is_open, undisturbed

WIDTH = 12


def near(x):
    """Scores that grow as two vectors come nearer, without a product of queries and keys."""
    return -(x.unsqueeze(-2) - x.unsqueeze(-3)).square().sum(-1)


class CausalSelfAttention(nn.Module):
    """Weights by a softmax of distances, which follow from no product."""

    def __init__(self, softmax):
        super().__init__()
        self.softmax = softmax

    def forward(self, x):
        scores = near(x).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -1e9)
        return self.softmax(scores) @ x


class Router(nn.Module):
    """Mixes two experts by a softmax that is no attention."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x):
        mixed = torch.stack([expert(x) for expert in self.experts], -1)
        return (mixed * self.gate(x).softmax(-1).unsqueeze(-2)).sum(-1)


class Fused(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class Failing(nn.Module):
    def forward(self, x):
        raise ZeroDivisionError


class Model(nn.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def refusal(model, *inputs, **asked):
    """The sentence by which a watch of a run is refused."""
    with pytest.raises(RuntimeError) as refused, gh.watch(model, [gh.Entropy()], **asked):
        model(*inputs)
    assert nothing_is_open()
    return str(refused.value)


SOFTMAXES = {
    "torch.softmax": lambda scores: torch.softmax(scores, -1),
    "method": lambda scores: scores.softmax(-1),
    "F.softmax": lambda scores: F.softmax(scores, dim=-1),
    "of another type": lambda scores: F.softmax(scores, dim=-1, dtype=torch.float64).float(),
    "nn.Softmax": nn.Softmax(-1),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("softmax", SOFTMAXES)
def test_a_module_with_a_softmax_of_its_own_is_named(softmax, inference):
    model = Model(Fused(), CausalSelfAttention(SOFTMAXES[softmax]))
    sentence = (
        r"^watch observes F\.scaled_dot_product_attention, .*, but CausalSelfAttention at "
        r"'blocks.1' takes the softmax of what no product of queries and keys has made. "
        r"Exclude these with layers=.$"
    )
    with (
        torch.inference_mode(inference),
        pytest.raises(RuntimeError, match=sentence),
        gh.watch(model, [gh.Entropy()]),
    ):
        model(torch.randn(2, 5, WIDTH))
    assert nothing_is_open()


def test_of_several_the_first_is_named():
    softmax = SOFTMAXES["method"]
    model = Model(CausalSelfAttention(softmax), CausalSelfAttention(softmax))
    sentence = r"CausalSelfAttention at 'blocks.0' \(and 1 more\) takes the softmax of what"
    with pytest.raises(RuntimeError, match=sentence), gh.watch(model, [gh.Entropy()]):
        model(torch.randn(2, 5, WIDTH))


def test_it_can_be_left_out():
    model = Model(Fused(), CausalSelfAttention(SOFTMAXES["method"]))
    x = torch.randn(2, 5, WIDTH)
    seen = undisturbed(model, x, asked={"layers": "blocks.0"})
    assert list(seen) == ["blocks.0"]


def test_a_router_of_experts_is_no_attention():
    model = Model(Fused(), Router())
    assert list(undisturbed(model, torch.randn(2, 5, WIDTH))) == ["blocks.0"]


def test_a_router_alone_has_no_attention_at_all():
    sentence = (
        "^watch observed no attention of Model, which ran: Router at 'blocks.0' takes the softmax "
        "of a projection, and not of a product of queries and keys.$"
    )
    assert re.match(sentence, refusal(Model(Router()), torch.randn(2, 5, WIDTH)))


def test_an_error_of_the_model_is_told_and_not_what_was_unseen():
    model = Model(CausalSelfAttention(SOFTMAXES["method"]))
    model.blocks.append(Failing())
    with pytest.raises(ZeroDivisionError), gh.watch(model, [gh.Entropy()]):
        model(torch.randn(2, 5, WIDTH))


class SwitchedAttention(CausalSelfAttention):
    """Has a fused path beside the other, and an attribute that chooses."""

    def __init__(self, switch, value):
        super().__init__(SOFTMAXES["method"])
        self.flash = self.fused_attn = self.use_sdpa = self.use_flash_attention = None
        setattr(self, switch, value)

    def forward(self, x):
        if self.flash or self.fused_attn or self.use_sdpa or self.use_flash_attention:
            return F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return super().forward(x)


@pytest.mark.parametrize("switch", ["flash", "fused_attn", "use_sdpa", "use_flash_attention"])
def test_a_fused_path_that_is_switched_off_is_named_and_helps(switch):
    model, x = Model(Fused(), SwitchedAttention(switch, value=False)), torch.randn(2, 5, WIDTH)
    told = refusal(model, x)
    assert "SwitchedAttention at 'blocks.1' takes the softmax of what no product" in told
    sentence = f"Its {switch} is False, so set {switch} to True, or build the model so, or exclude"
    assert sentence in told
    assert "attn_implementation" not in told
    setattr(model.blocks[1], switch, True)
    assert list(undisturbed(model, x)) == ["blocks.0", "blocks.1"]


def test_timm_is_switched_in_its_own_words(monkeypatch):
    monkeypatch.setattr(SwitchedAttention, "__module__", "timm.layers.attention")
    told = refusal(Model(SwitchedAttention("fused_attn", value=False)), torch.randn(2, 5, WIDTH))
    assert "timm.layers.set_fused_attn(True)" in told
    assert "attn_implementation" not in told


@pytest.mark.parametrize(
    ("processor", "advice"),
    [
        ("AttnProcessor", "so give it AttnProcessor2_0() by set_processor, or exclude these"),
        ("XFormersAttnProcessor", "has made. Exclude these with layers="),
    ],
)
def test_a_processor_of_diffusers_is_exchanged_if_another_does_the_same(
    monkeypatch, processor, advice
):
    class Attention(CausalSelfAttention):
        def set_processor(self, processor):
            self.processor = processor

    module = Attention(SOFTMAXES["method"])
    module.set_processor(type(processor, (), {})())
    monkeypatch.setattr(Attention, "__module__", "diffusers.models.attention_processor")
    assert advice in refusal(Model(module), torch.randn(2, 5, WIDTH))


def test_a_switch_that_no_fused_path_reads_is_no_way_out():
    model = Model(CausalSelfAttention(SOFTMAXES["method"]))
    model.blocks[0].flash = False
    told = refusal(model, torch.randn(2, 5, WIDTH))
    assert told.endswith("has made. Exclude these with layers=.")


class Gated(nn.Module):
    """Attention whose heads, or queries, are weighed by the softmax of a projection."""

    def __init__(self):
        super().__init__()
        self.gate = Gate()

    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x) * self.gate(x)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.project(x).softmax(-1)


def test_a_gate_of_an_attention_is_no_attention():
    model = nn.Sequential(OrderedDict(attn=Gated()))
    assert list(undisturbed(model, torch.randn(2, 5, WIDTH))) == ["attn"]


class AdditiveAttention(nn.Module):
    """One score a token, by a projection, as Bahdanau et al. and SwiftFormer have it."""

    def __init__(self, softmax):
        super().__init__()
        self.score, self.softmax = nn.Linear(WIDTH, 1), softmax

    def forward(self, x):
        return x + (self.softmax(self.score(x).tanh().mT) @ x)


class AttentionOverHeads(nn.Module):
    def forward(self, x):
        parts = x.unflatten(-1, (3, -1)).transpose(1, 2)
        return ((parts @ parts.mT).softmax(1) @ parts).transpose(1, 2).flatten(2)


class AttentionToScores(nn.Module):
    """Weights that are returned, and no product takes."""

    def forward(self, x):
        return (x @ x.mT).softmax(-1)


class SamplingAttention(nn.Module):
    """Weights of points that are sampled, as deformable attention has them."""

    def __init__(self):
        super().__init__()
        self.weigh, self.place = nn.Linear(WIDTH, 3), nn.Linear(WIDTH, 3)

    def forward(self, x):
        places = (self.place(x).sigmoid() * (x.shape[1] - 1)).long().unsqueeze(-1)
        points = x.unsqueeze(2).expand(-1, -1, 3, -1).gather(1, places.expand(-1, -1, -1, WIDTH))
        return (points * self.weigh(x).softmax(-1).unsqueeze(-1)).sum(2)


OF_A_PROJECTION = "takes the softmax of a projection, and not of a product of queries and keys"
LONE = {
    "additive": (AdditiveAttention(nn.Softmax(-1)), OF_A_PROJECTION),
    "sampling": (SamplingAttention(), OF_A_PROJECTION),
    "over heads": (AttentionOverHeads(), "takes its softmax over axis 1 of "),
    "to scores": (
        AttentionToScores(),
        "takes a softmax whose weights no matrix product multiplies by val",
    ),
}


@pytest.mark.parametrize("lone", LONE)
def test_each_cause_is_what_the_module_does(lone):
    module, cause = LONE[lone]
    told = refusal(Model(Fused(), module), torch.randn(2, 5, WIDTH))
    assert f"{type(module).__name__} at 'blocks.1' {cause}" in told
    assert "call F.scaled" not in told
    assert told.endswith(". Exclude these with layers=.")


class Weighed(nn.Module):
    """Weights that are no softmax of their scores."""

    def __init__(self, weigh):
        super().__init__()
        self.weigh, self.query = weigh, nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.weigh(self.query(x) @ x.mT / 4) @ x


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize(
    ("weigh", "words"),
    [
        (torch.sigmoid, "by sigmoid, "),
        (lambda s: s.relu().pow(3), "by relu, by pow, "),
        (lambda s: s.exp() / s.exp().sum((-1, -2), keepdim=True), "by exp, divided by numbers, "),
        (lambda s: s, ""),
    ],
    ids=["sigmoid", "squares", "over several axes", "linear"],
)
def test_weights_without_a_softmax_are_named_as_not_observed(weigh, words, inference):
    sentence = (
        "watch observes attention with a softmax, but Weighed at 'blocks.0' has none between its "
        f"scores and its values (queries · keys, divided by 4, {words}· values)."
    )
    model, x = Model(Weighed(weigh)), torch.randn(2, 5, WIDTH)
    with torch.inference_mode(inference):
        assert refusal(model, x) == sentence
        assert refusal(Model(*model.blocks, Fused()), x, layers="blocks.0") == sentence


def test_one_text_without_a_batch_is_not_passed_over():
    class SelfAttention(nn.Module):
        def forward(self, x):
            return torch.softmax(near(x), dim=-1) @ x

    told = refusal(nn.Sequential(SelfAttention()), torch.randn(5, WIDTH))
    assert "SelfAttention at '0' takes the softmax of what no product" in told


class Head(nn.Module):
    """One of the heads of a class that says what it is; its own name does not."""

    def forward(self, x):
        return near(x).softmax(-1) @ x


class MultiHeadAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([Head(), Head(), Head()])

    def forward(self, x):
        return sum(head(x) for head in self.heads)


def test_heads_are_of_the_attention_that_lists_them():
    model = nn.ModuleDict({"sa": MultiHeadAttention(), "fused": Fused()})
    model.forward = lambda x: model["sa"](model["fused"](x))
    told = refusal(model, torch.randn(2, 5, WIDTH))
    assert "Head at 'sa.heads.0' (and 2 more) takes the softmax of what no product" in told


def test_a_model_without_attention_is_told_that_it_has_none():
    model = nn.Sequential(nn.Conv2d(3, 7, 3), nn.GELU(), nn.Conv2d(7, 5, 3))
    told = refusal(model, torch.randn(2, 3, 11, 13))
    assert told.startswith("watch observed no attention of Sequential, which ran: ")
    assert "inside the block" not in told


@pytest.mark.parametrize(
    "weigh", [lambda s: s.exp() / s.exp().sum(-1, keepdim=True), lambda s: s.log_softmax(-1).exp()]
)
def test_weights_without_a_softmax_are_not_told_to_run_inside_the_block(weigh):
    told = refusal(Model(CausalSelfAttention(weigh)), torch.randn(2, 5, WIDTH))
    assert told.startswith("watch observed no attention of Model, which ran: ")


def test_a_pattern_beside_the_attention_is_told_where_that_is():
    model = Model(Fused(), Router())
    told = refusal(model, torch.randn(2, 5, WIDTH), layers="blocks.1")
    assert (
        "in the modules that layers='blocks.1' matches ('blocks.1'); it observed 'blocks.0'. "
        in told
    )
    assert "Router at 'blocks.1' takes the softmax of a projection" in told
