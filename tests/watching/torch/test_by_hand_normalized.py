"""Softmaxes that are written otherwise are softmaxes, with the weights that a product takes."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from watching.torch.by_hand import BATCH, HEADS, LENGTH, WIDTH, Block, split
from watching.torch.explicit import check, lower, nothing_is_open, undisturbed, weights


def powers(scores):
    return (scores - scores.amax(-1, keepdim=True)).exp()


def of_mutated(scores):
    made = scores.exp()
    made /= made.sum(-1, keepdim=True)
    return made


def less_logsumexp_in_place(scores):
    return scores.sub(scores.logsumexp(-1, keepdim=True)).exp_()


def masked_powers(scores):
    made = scores.exp() * lower(scores.shape[-1])
    return made / made.sum(-1, keepdim=True)


WAYS = {
    "exp(s - logsumexp)": lambda s: (s - s.logsumexp(-1, keepdim=True)).exp(),
    "exp(s - log sum exp)": lambda s: torch.exp(s - s.exp().sum(-1, keepdim=True).log()),
    "exp in place": less_logsumexp_in_place,
    "log_softmax().exp()": lambda s: s.log_softmax(-1).exp(),
    "exp(F.log_softmax)": lambda s: torch.exp(F.log_softmax(s, dim=-1)),
    "normalize": lambda s: F.normalize(s.exp(), p=1, dim=-1),
    "times reciprocal": lambda s: s.exp() * s.exp().sum(-1, keepdim=True).reciprocal(),
    "reciprocal times": lambda s: powers(s).sum(-1, keepdim=True) ** -1 * powers(s),
    "divided": lambda s: powers(s) / powers(s).sum(-1, keepdim=True),
    "divided by a small number more": lambda s: s.exp() / (s.exp().sum(-1, keepdim=True) + 1e-12),
    "divided in place": of_mutated,
    "exp2": lambda s: (s * math.log2(math.e)).exp2() / s.exp().sum(-1, keepdim=True),
    "last axis in front": lambda s: s.movedim(-1, 0).log_softmax(0).exp().movedim(0, -1),
}


def attention(weigh):
    def attend(query, key, value):
        return weigh(query @ key.mT * query.shape[-1] ** -0.5) @ value

    return Block(attend).double()


def texts(length=LENGTH):
    torch.manual_seed(7)
    return torch.randn(BATCH, length, WIDTH, dtype=torch.float64)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_has_the_weights_of_its_softmax(way, mode):
    model, x = attention(WAYS[way]), texts()
    with mode():
        call = undisturbed(model, x)[""][-1]
        expected = weights(*model.qk(x)).detach()
    assert call.shape == (BATCH, HEADS, LENGTH)
    assert "softmax, · values" in call.by_hand
    check(call, expected, tolerance=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_a_text_of_one_token_is_seen(way):
    model = attention(WAYS[way])
    with torch.no_grad():
        call = undisturbed(model, texts(1))[""][-1]
    assert call.received.eq(1).all()


@pytest.mark.parametrize("hidden", [-math.inf, -1e9, torch.finfo(torch.float64).min])
@pytest.mark.parametrize("way", ["divided", "normalize", "exp(s - logsumexp)", "exp in place"])
def test_scores_that_a_mask_makes_low_are_known_by_what_was_masked(way, hidden):
    def weigh(scores):
        return WAYS[way](scores.masked_fill(~lower(LENGTH), hidden))

    model, x = attention(weigh), texts()
    with torch.no_grad():
        call = undisturbed(model, x)[""][-1]
        expected = weights(*model.qk(x), visible=lower(LENGTH))
    check(call, expected, tolerance=1e-6)


def test_exponentials_that_are_0_by_underflow_are_not_hidden():
    def weigh(scores):
        return WAYS["divided"](scores * 1e4)

    model, x = attention(weigh), texts()
    with torch.no_grad():
        call = undisturbed(model, x)[""][-1]
        expected = weights(*model.qk(x), scale=1e4 * 5**-0.5)
    check(call, expected, tolerance=1e-6)


def test_exponentials_are_masked_before_they_are_divided():
    model, x = attention(masked_powers), texts()
    with torch.no_grad():
        call = undisturbed(model, x)[""][-1]
        expected = weights(*model.qk(x), visible=lower(LENGTH))
    check(call, expected, tolerance=1e-6)
    assert call.by_hand.endswith("exponentials times numbers, softmax, · values")


@pytest.mark.parametrize(
    "weigh",
    [
        lambda s: s.exp() / (1 + s.exp().sum(-1, keepdim=True)),
        lambda s: s.exp() / s.exp().sum((-1, -2), keepdim=True),
        lambda s: (s - s.logsumexp(-1, keepdim=True) + 0.1).exp(),
        lambda s: s.square() / s.square().sum(-1, keepdim=True),
        lambda s: s.exp() / s.exp().sum(-1, keepdim=True).add(math.nan),
    ],
    ids=["one more", "over queries, too", "of other sums", "squares", "NaN"],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_does_not_sum_to_1_along_the_keys_is_no_softmax(weigh, dtype):
    model, x = attention(weigh).to(dtype), texts().to(dtype)
    with pytest.raises(RuntimeError), torch.no_grad(), gh.watch(model, [gh.Entropy()]):
        model(x)
    assert nothing_is_open()


def test_its_steps_are_those_of_the_model():
    model, x = attention(WAYS["exp(s - logsumexp)"]), texts()
    with torch.no_grad(), gh.watch(model, keep="trace") as seen:
        model(x)
        query, key = model.qk(x)
    trace = seen[""].trace
    torch.testing.assert_close(trace.weights, weights(query, key))
    torch.testing.assert_close(trace.context, weights(query, key) @ split(model.value(x)))


def test_a_loss_by_a_log_softmax_is_no_attention():
    class Contrast(nn.Module):
        def forward(self, x):
            near = x.mean(1) @ x.mean(1).mT
            return near.log_softmax(-1).diagonal()

    model = Contrast()
    with (
        pytest.raises(RuntimeError, match="observed no attention"),
        gh.watch(model, [gh.Entropy()]),
    ):
        model(texts())
