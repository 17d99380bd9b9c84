"""`from_module` takes a class for what it computes, or refuses it with the reason."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.ladder import CausalAttention

WIDTH, COLUMNS = 7, 6
THRESHOLD = 19


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Projected(nn.Module):
    """Causal attention of one head, whose scores and weights may be changed."""

    def __init__(self, **numbers):
        super().__init__()
        self.W_query = nn.Linear(WIDTH, COLUMNS, bias=False)
        self.W_key = nn.Linear(WIDTH, COLUMNS, bias=False)
        self.W_value = nn.Linear(WIDTH, COLUMNS, bias=False)
        for name, number in numbers.items():
            setattr(self, name, number)

    def scores(self, x):
        return self.W_query(x) @ self.W_key(x).mT / COLUMNS**0.5

    def hidden(self, tokens):
        return torch.ones(tokens, tokens, dtype=torch.bool).triu(1)

    def forward(self, x):
        scores = self.scores(x).masked_fill(self.hidden(x.shape[-2]), -torch.inf)
        return self.after(scores.softmax(-1)) @ self.W_value(x)

    def after(self, weights):
        return weights


class Window(Projected):
    def hidden(self, tokens):
        place = torch.arange(tokens)
        return super().hidden(tokens) | (place[:, None] - place >= self.window)


class WindowInCode(Projected):
    def hidden(self, tokens):
        place = torch.arange(tokens)
        return super().hidden(tokens) | (place[:, None] - place >= 89)


class WindowOfAGlobal(Projected):
    def hidden(self, tokens):
        return super().hidden(tokens) if tokens < THRESHOLD else super().hidden(tokens).mT


class WindowOfAHelper(Projected):
    def hidden(self, tokens):
        return helper(tokens)


def helper(tokens, window=97):
    place = torch.arange(tokens)
    return (place > place[:, None]) | (place[:, None] - place >= window)


class Softcapped(Projected):
    def scores(self, x):
        return 20 * (super().scores(x) / 20).tanh()


class Sink(Projected):
    def forward(self, x):
        scores = F.pad(self.scores(x).masked_fill(self.hidden(x.shape[-2]), -torch.inf), (1, 0))
        return scores.softmax(-1)[..., 1:] @ self.W_value(x)


class NoisyInTraining(Projected):
    def after(self, weights):
        return weights * 1.5 if self.training else weights


class DropsScores(Projected):
    def scores(self, x):
        return F.dropout(super().scores(x), 0.5, self.training)


class Scaled(Projected):
    def scores(self, x):
        return super().scores(x) * self.factor


class RandomMask(Projected):
    def hidden(self, tokens):
        generator = torch.Generator().manual_seed(self.drawn)
        shown = torch.rand(tokens, tokens, generator=generator) < 0.7
        return ~(shown | torch.eye(tokens, dtype=torch.bool))


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (lambda: Window(window=3), "up to 3 tokens, and gives another output for 5 tokens"),
        (lambda: Window(window=131), "up to 67 tokens, and gives another output for 132 tokens"),
        (WindowInCode, "up to 67 tokens, and gives another output for"),
        (WindowOfAGlobal, "up to 17 tokens, and gives another output for 67 tokens"),
        (WindowOfAHelper, "up to 67 tokens, and gives another output for"),
        (Softcapped, "for inputs near 1, and not for inputs near 6"),
        (Sink, "it gives another output for 1 token"),
        (NoisyInTraining, r"it does so in .eval\(\), and gives another output in .train\(\)"),
        (DropsScores, r"it does so in .eval\(\), and gives another output in .train\(\)"),
        (lambda: Scaled(factor=1.1), "it gives another output for 2 tokens"),
        (lambda: Scaled(factor=0.5), "it gives another output for 2 tokens"),
        (lambda: RandomMask(drawn=1), "gives another output for"),
        (lambda: RandomMask(drawn=7), "gives another output for"),
    ],
)
def test_a_class_that_computes_another_thing_is_refused_with_the_reason(module, reason):
    with pytest.raises(ValueError, match=reason):
        gh.MultiHeadAttention.from_module(module())


def test_a_subclass_of_a_known_class_is_taken_for_what_it_computes():
    class Doubled(CausalAttention):
        def forward(self, x):
            return 2 * super().forward(x)

    with pytest.raises(ValueError, match="got Doubled: it gives another output for 1 token"):
        gh.MultiHeadAttention.from_module(Doubled(WIDTH, COLUMNS, 11, 0.0))
    known = CausalAttention(WIDTH, COLUMNS, 11, 0.0)
    check(type("Named", (CausalAttention,), {})(WIDTH, COLUMNS, 11, 0.25).eval())
    check(known)


class Wrapper(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.heads = nn.ModuleList(CausalAttention(WIDTH, 3, 11, dropout) for _ in range(2))
        self.out_proj = nn.Linear(6, 6)

    def forward(self, x):
        return self.out_proj(torch.cat([head(x) for head in self.heads], -1))


class WrapperThatDropsItsOutput(Wrapper):
    def __init__(self):
        super().__init__(0.25)
        self.last = nn.Dropout(0.25)

    def forward(self, x):
        return self.last(super().forward(x))


class ByEinsum(nn.Module):
    """Three axes of parameters, with biases."""

    def __init__(self, heads_first, *, causal):
        super().__init__()
        shape = (2, WIDTH, 3) if heads_first else (WIDTH, 2, 3)
        self.W_q, self.W_k, self.W_v = (nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.b_q, self.b_k, self.b_v = (nn.Parameter(torch.randn(2, 3)) for _ in range(3))
        self.W_o, self.b_o = nn.Parameter(torch.randn(2, 3, 5)), nn.Parameter(torch.randn(5))
        self.pattern, self.causal = "btd,hdk->bthk" if heads_first else "btd,dhk->bthk", causal

    def forward(self, x):
        q, k, v = (
            torch.einsum(self.pattern, x, weight) + bias
            for weight, bias in (
                (self.W_q, self.b_q),
                (self.W_k, self.b_k),
                (self.W_v, self.b_v),
            )
        )
        scores = torch.einsum("bqhk,bshk->bhqs", q, k) / math.sqrt(3)
        if self.causal:
            hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -torch.inf)
        context = torch.einsum("bhqs,bshk->bqhk", scores.softmax(-1), v)
        return torch.einsum("bqhk,hkd->bqd", context, self.W_o) + self.b_o


class OneMatrixByEinsum(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("query", "key", "value"):
            setattr(self, f"W_{name}", nn.Parameter(torch.randn(WIDTH, COLUMNS)))
            setattr(self, f"b_{name}", nn.Parameter(torch.randn(COLUMNS)))

    def forward(self, x):
        q, k, v = (
            torch.einsum("btd,dk->btk", x, getattr(self, f"W_{name}")) + getattr(self, f"b_{name}")
            for name in ("query", "key", "value")
        )
        weights = (torch.einsum("bqk,bsk->bqs", q, k) / COLUMNS**0.5).softmax(-1)
        return torch.einsum("bqs,bsk->bqk", weights, v)


class Stacked(nn.Module):
    """One matrix of queries, keys and values, by SDPA; the rows of a head may stand together."""

    def __init__(self, *, together, drop=0.0):
        super().__init__()
        self.n_head, self.together, self.drop = 2, together, nn.Dropout(drop)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 18), nn.Linear(6, 6)

    def forward(self, x):
        qkv = self.c_attn(x)
        if self.together:
            parts = qkv.unflatten(-1, (2, 3, 3)).unbind(-2)
        else:
            parts = [part.unflatten(-1, (2, 3)) for part in qkv.chunk(3, -1)]
        q, k, v = (part.transpose(1, 2) for part in parts)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (q @ k.mT / 3**0.5).masked_fill(hidden, -torch.inf)
        context = self.drop(scores.softmax(-1)) @ v
        return self.c_proj(context.transpose(1, 2).flatten(2))


class KeysWithoutBias(Projected):
    def __init__(self):
        super().__init__()
        self.W_query = nn.Linear(WIDTH, COLUMNS)


def check(module):
    """Assert that the layer computes what the class does."""
    layer = gh.MultiHeadAttention.from_module(module).eval()
    x = torch.randn(3, 11, WIDTH)
    torch.testing.assert_close(layer(x), module.eval()(x), rtol=1e-4, atol=1e-5)
    return layer


@pytest.mark.parametrize(
    ("module", "heads", "dropout"),
    [
        (Wrapper, 2, 0.0),
        (lambda: Wrapper(0.25), 2, 0.25),
        (lambda: ByEinsum(True, causal=False), 2, 0.0),
        (lambda: ByEinsum(False, causal=True), 2, 0.0),
        (OneMatrixByEinsum, 1, 0.0),
        (lambda: Stacked(together=False, drop=0.125), 2, 0.125),
        (lambda: Stacked(together=True), 2, 0.0),
        (KeysWithoutBias, 1, 0.0),
        (Projected, 1, 0.0),
    ],
)
def test_a_class_is_taken_in_each_form_of_its_weights(module, heads, dropout):
    layer = check(module())
    assert (layer.num_heads, layer.attention.dropout) == (heads, dropout)


def test_heads_that_drop_more_than_their_weights_are_refused():
    with pytest.raises(ValueError, match=r"another output in .train\(\)"):
        gh.MultiHeadAttention.from_module(WrapperThatDropsItsOutput())


def test_matrices_of_other_widths_are_named():
    class Grouped(Projected):
        def __init__(self):
            super().__init__()
            self.W_key = nn.Linear(WIDTH, 3, bias=False)

    with pytest.raises(ValueError, match=r"are \[7, 6\], \[7, 3\], \[7, 6\], not of one"):
        gh.MultiHeadAttention.from_module(Grouped())


def test_the_modes_of_the_module_stay_as_they_are():
    module = Wrapper(0.25)
    module.heads[1].eval()
    modes = [part.training for part in module.modules()]
    gh.MultiHeadAttention.from_module(module)
    assert [part.training for part in module.modules()] == modes
