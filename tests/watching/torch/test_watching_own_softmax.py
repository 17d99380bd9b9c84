"""Modules that compute attention by code of their own are named; other softmaxes are none."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from watching.torch.explicit import nothing_is_open, undisturbed

WIDTH = 12


class CausalSelfAttention(nn.Module):
    """Weights by a softmax in the open, as in a tutorial."""

    def __init__(self, softmax):
        super().__init__()
        self.softmax = softmax

    def forward(self, x):
        scores = (x @ x.transpose(-1, -2)).masked_fill(
            torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -1e9
        )
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
        "^watch sees attention that goes through .*, and CausalSelfAttention at 'blocks.1' "
        "computes its own: .* leave these out by layers=.$"
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
    sentence = "CausalSelfAttention at 'blocks.0' and 1 more computes"
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
    model = Model(Router())
    sentence = "^watch saw no attention of Model: run the model inside the block and in the thread"
    with pytest.raises(RuntimeError, match=sentence), gh.watch(model, [gh.Entropy()]):
        model(torch.randn(2, 5, WIDTH))


def test_an_error_of_the_model_is_told_and_not_what_was_unseen():
    model = Model(CausalSelfAttention(SOFTMAXES["method"]))
    model.blocks.append(Failing())
    with pytest.raises(ZeroDivisionError), gh.watch(model, [gh.Entropy()]):
        model(torch.randn(2, 5, WIDTH))
