"""Attention in each form that tutorials end with is explained with the numbers of the module."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import glasshead as gh
from glasshead.watching import UnseenError

WORDS, WIDTH, HEADS, DIM = 5, 12, 3, 4


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def batch():
    return torch.randn(2, WORDS, WIDTH)


class Calling(nn.Module):
    def __init__(self, attention, **options):
        super().__init__()
        self.attention, self.options = attention, options

    def forward(self, x):
        output, _ = self.attention(x, x, x, **self.options)
        return output


@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"need_weights": False},
        {"average_attn_weights": False},
        {"attn_mask": torch.ones(WORDS, WORDS, dtype=torch.bool).triu(1)},
        {
            "attn_mask": torch.full((WORDS, WORDS), -torch.inf).triu(1),
            "is_causal": True,
            "need_weights": False,
        },
    ],
    ids=["plain", "no weights", "of heads", "mask", "causal"],
)
@pytest.mark.parametrize("grads", [True, False])
def test_multi_head_attention_in_each_calling_form(heads, batch_first, options, grads):
    attention = nn.MultiheadAttention(WIDTH, heads, batch_first=batch_first).eval()
    attention.requires_grad_(grads)
    x = batch()
    given = x if batch_first else x.transpose(0, 1)
    explanation = gh.explain(Calling(attention, **options), given, index=(1, heads - 1))
    asked = {**options, "need_weights": True, "average_attn_weights": False}
    _, weights = attention(given, given, given, **asked)
    told = explanation["weights"].data["weights"]
    torch.testing.assert_close(told, weights[1, heads - 1].detach(), rtol=1e-4, atol=1e-6)
    assert "projection" in [step.name for step in explanation.steps]
    assert ("masked" in [step.name for step in explanation.steps]) == ("attn_mask" in options)


def test_keys_of_another_text_and_added_ones():
    x, others = batch(), torch.randn(2, 7, 5)
    crossing = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, kdim=5, vdim=5).eval()
    told = gh.explain(crossing, x, others, others, index=(1, 2), keys=list("abcdefg"))
    _, weights = crossing(x, others, others, average_attn_weights=False)
    torch.testing.assert_close(told["weights"].data["weights"], weights[1, 2].detach())
    added = nn.MultiheadAttention(
        WIDTH, HEADS, batch_first=True, add_bias_kv=True, add_zero_attn=True
    ).eval()
    told = gh.explain(added, x, x, x, index=(1, 2))
    _, weights = added(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(told["weights"].data["weights"], weights[1, 2].detach())
    one = gh.explain(nn.MultiheadAttention(WIDTH, HEADS).eval(), x[0], x[0], x[0])
    assert one["context"].data["context"].shape == (WORDS, DIM)


@pytest.mark.parametrize("heads", [2, 3])
def test_layers_of_pytorch(heads):
    x = batch()
    layer = nn.TransformerEncoderLayer(WIDTH, heads, 24, batch_first=True).eval()
    told = gh.explain(layer, x, index=(1, 1))
    _, weights = layer.self_attn(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(told["weights"].data["weights"], weights[1, 1].detach())
    decoder = nn.TransformerDecoderLayer(WIDTH, heads, 24, batch_first=True).eval()
    memory = torch.randn(2, 7, WIDTH)
    told = gh.explain(decoder, x, memory, layers="multihead_attn", keys=list("abcdefg"))
    assert told["weights"].data["weights"].shape == (WORDS, 7)
    with pytest.raises(ValueError, match="explain needs one attention, but .* has 2"):
        gh.explain(decoder, x, memory)


class InHeads(nn.Module):
    """Projections, an attention of some kind, and an output projection."""

    def __init__(self, attend, kv_heads=HEADS):
        super().__init__()
        self.num_heads, self.attend = HEADS, attend
        self.q_proj = nn.Linear(WIDTH, WIDTH)
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, kv_heads * DIM) for _ in range(2))
        self.out_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (
            f(x).unflatten(-1, (-1, DIM)).transpose(1, 2)
            for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        self.context = self.attend(q, k, v, self.training)
        return self.out_proj(self.context.transpose(1, 2).flatten(2))


def by_function(q, k, v, training, p=0.0):
    return F.scaled_dot_product_attention(
        q, k, v, is_causal=True, dropout_p=p if training else 0.0, enable_gqa=True
    )


def by_flex(score_mod=None, block_mask=None, scale=None):
    def attend(q, k, v, training):
        with warnings.catch_warnings():
            # It is meant to be compiled.
            warnings.simplefilter("ignore")
            return flex_attention(
                q, k, v, score_mod=score_mod, block_mask=block_mask, scale=scale, enable_gqa=True
            )

    return attend


def causal_blocks():
    return create_block_mask(lambda b, h, q, k: q >= k, None, None, WORDS, WORDS, device="cpu")


@pytest.mark.parametrize("kv_heads", [3, 1])
@pytest.mark.parametrize(
    ("attend", "steps"),
    [
        (by_function, ["masked"]),
        (by_flex(), []),
        (by_flex(scale=0.25), []),
        (by_flex(lambda s, b, h, q, k: s - (h + 1) * (q - k).abs() / 7), ["masked"]),
        (by_flex(block_mask=causal_blocks()), ["masked"]),
    ],
    ids=["sdpa", "flex", "flex with a scale", "flex with a bias", "flex with blocks"],
)
def test_functions_in_a_class(attend, steps, kv_heads):
    module, x = InHeads(attend, kv_heads).eval(), batch()
    explanation = gh.explain(module, x, index=(1, 2))
    told = explanation["context"].data["context"]
    torch.testing.assert_close(told, module.context[1, 2].detach(), rtol=1e-4, atol=1e-5)
    names = [step.name for step in explanation.steps]
    assert [name for name in names if name == "masked"] == steps
    assert ("projection" in names) == (kv_heads == HEADS)


class Stacked(nn.Module):
    def __init__(self, *, together):
        super().__init__()
        self.n_head, self.together = HEADS, together
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        made = self.c_attn(x)
        if self.together:
            parts = made.unflatten(-1, (HEADS, 3, DIM)).unbind(-2)
        else:
            parts = [part.unflatten(-1, (HEADS, DIM)) for part in made.chunk(3, -1)]
        q, k, v = (part.transpose(1, 2) for part in parts)
        self.queries = q
        return self.c_proj(((q @ k.mT / 2).softmax(-1) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("together", [True, False])
def test_the_projection_of_stacked_matrices_is_shown(together):
    module, x = Stacked(together=together), batch()
    explanation = gh.explain(module, x, index=(1, 2))
    made = explanation["projection"].data
    found = x[1] @ made["W_query"] + made["b_query"]
    torch.testing.assert_close(found, module.queries[1, 2].detach(), rtol=1e-4, atol=1e-5)


class ScaledBefore(nn.Module):
    """Text D divides Q before the product; others share the root between both sides."""

    def __init__(self, query, key):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(WIDTH, DIM, bias=False) for _ in range(3))
        self.query, self.key = query, key

    def forward(self, x):
        q, k = self.W_q(x) * self.query, self.W_k(x) * self.key
        return torch.softmax(q @ k.mT, -1) @ self.W_v(x)


@pytest.mark.parametrize(
    ("query", "key", "notes"), [(0.5, 1, 1), (1, 0.5, 1), (0.5**0.5, 0.5**0.5, 2), (1, 1, 0)]
)
def test_queries_that_are_scaled_before_the_product_are_shown_before(query, key, notes):
    module, x = ScaledBefore(query, key), torch.randn(WORDS, WIDTH)
    explanation = gh.explain(module, x)
    made = explanation["inputs"].data
    torch.testing.assert_close(made["queries"], module.W_q(x).detach())
    torch.testing.assert_close(made["keys"], module.W_k(x).detach())
    torch.testing.assert_close(explanation["context"].data["context"], module(x).detach())
    assert math.isclose(explanation.recipe["beta"], query * key, rel_tol=1e-5)
    assert sum("before the product" in note for note in explanation.notes) == notes
    assert "projection" in [step.name for step in explanation.steps]


class Cut(nn.Module):
    """Heads by `.view`, with a transpose or without one."""

    def __init__(self, *, turned):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.turned = turned

    def forward(self, x):
        rows, words, _ = x.shape
        q, k, v = (
            f(x).view(rows, words, HEADS, DIM).transpose(1, 2)
            if self.turned
            else f(x).view(rows, HEADS, words, DIM)
            for f in (self.W_q, self.W_k, self.W_v)
        )
        return (torch.softmax(q @ k.mT / 2, -1) @ v).reshape(rows, words, WIDTH)


def test_heads_that_are_cut_without_a_transpose_are_warned_of():
    module, x = Cut(turned=False), batch()
    explanation = gh.explain(module, x, query=1)
    # Word 1 of the first head has the second third of word 0.
    own = module.W_q(x)[0, 0, DIM : 2 * DIM].detach()
    torch.testing.assert_close(explanation["inputs"].data["queries"][1], own)
    assert "so that a head mixes words" in explanation.notes[-1]
    assert "projection" not in [step.name for step in explanation.steps]
    assert not any("mixes" in one for one in gh.explain(Cut(turned=True), x).notes)


def test_the_steps_of_a_cache_and_of_latent_keys():
    class Cached(ScaledBefore):
        keys = values = None

        def forward(self, x):
            keys, values = self.W_k(x), self.W_v(x)
            if self.keys is not None:
                keys, values = torch.cat([self.keys, keys]), torch.cat([self.values, values])
            self.keys, self.values = keys, values
            return torch.softmax(self.W_q(x) @ keys.mT / 2, -1) @ values

    module, x = Cached(1, 1), torch.randn(7, WIDTH)
    with torch.no_grad():
        whole = module(x)
        module.keys = module.values = None
        module(x[:5])
    told = gh.explain(module, x[5:], keys=list("abcdefg"))
    torch.testing.assert_close(told["context"].data["context"][-1], whole[-1])

    class Latent(nn.Module):
        def __init__(self):
            super().__init__()
            self.W_query, self.W_down = nn.Linear(WIDTH, 6), nn.Linear(WIDTH, 3)
            self.up_key, self.up_value = nn.Linear(3, 6), nn.Linear(3, 6)

        def forward(self, x):
            latent = self.W_down(x)
            weights = torch.softmax(self.W_query(x) @ self.up_key(latent).mT / 6**0.5, -1)
            return weights @ self.up_value(latent)

    latent = Latent()
    told = gh.explain(latent, x)
    torch.testing.assert_close(told["context"].data["context"], latent(x).detach())


@pytest.mark.parametrize(
    "module",
    [
        lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 24, batch_first=True),
        lambda: Calling(nn.MultiheadAttention(WIDTH, HEADS, dropout=0.1, batch_first=True)),
        lambda: InHeads(lambda *given: by_function(*given, p=0.1)),
    ],
    ids=["encoder layer", "multi-head", "sdpa"],
)
def test_a_module_in_training_that_drops_weights_is_asked_for_evaluation(module):
    module, x = module(), batch()
    with pytest.raises(ValueError, match=r"Call .eval\(\) on the module first"):
        gh.explain(module, x)
    assert module.training
    assert gh.explain(module.eval(), x)


@pytest.mark.parametrize(("axis", "sizes"), [(0, (2, 3, 5, 4)), (1, (2, 3, 5, 4)), (0, (2, 5, 4))])
def test_a_softmax_over_heads_or_a_batch_is_named_by_its_axis(axis, sizes):
    class Over(nn.Module):
        def forward(self, x):
            return nn.Softmax(dim=axis)(x @ x.mT) @ x

    scores = [*sizes[:-1], sizes[-2]]
    with pytest.raises(UnseenError, match="takes its softmax over axis ") as caught:
        gh.explain(Over(), torch.randn(sizes))
    assert f"axis {axis} of {scores}, which is neither the axis of keys" in str(caught.value)
