"""The masks by which a model ran: inverted ones are warned of, stated ones are compared."""

import warnings
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

import glasshead as gh

CAUSAL = torch.ones(7, 7, dtype=torch.bool).tril()


class Attending(nn.Module):
    """Layers that attend by one function, with the masks that they are given."""

    def __init__(self, attend, masks):
        super().__init__()
        self.layers = nn.ModuleList(Layer(attend, mask) for mask in masks)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


class Layer(nn.Module):
    def __init__(self, attend, mask):
        super().__init__()
        self.attend, self.mask = attend, mask

    def forward(self, x):
        return self.attend(x, self.mask)


def by_function(x, mask):
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def by_hand(x, mask):
    scores = x @ x.mT / x.shape[-1] ** 0.5
    hidden = scores.masked_fill(~mask, -1e9) if mask.dtype == torch.bool else scores + mask
    return hidden.softmax(-1) @ x


def warned(model, *inputs, expect=None):
    """The warnings of a watch, and what was seen."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.no_grad(), gh.watch(model, [gh.Entropy()], expect=expect) as seen:
            for given in inputs:
                model(given)
    return [str(one.message) for one in caught], seen


@contextmanager
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def written(shown, low):
    return torch.zeros(shown.shape).masked_fill(~shown, low)


MASKS = {
    "boolean": lambda shown: shown,
    "-inf": lambda shown: written(shown, -torch.inf),
    "lowest": lambda shown: written(shown, torch.finfo(torch.float32).min),
    "large": lambda shown: written(shown, -1e9),
}


@pytest.mark.parametrize("attend", [by_function, by_hand])
@pytest.mark.parametrize("form", MASKS)
@pytest.mark.parametrize("diagonal", [0, 1])
def test_a_layer_whose_queries_see_only_later_positions_is_named_once(attend, form, diagonal):
    torch.manual_seed(0)
    upside_down = torch.ones(7, 7, dtype=torch.bool).triu(diagonal)
    model = Attending(attend, [MASKS[form](CAUSAL), MASKS[form](upside_down)])
    x = torch.randn(2, 3, 7, 5)
    told, _ = warned(model, x, x)
    (sentence,) = told
    assert "'layers.1' looks inverted: queries see only later positions" in sentence


def test_padding_does_not_hide_that_a_mask_is_inverted():
    keys = torch.tensor([7, 5])[:, None, None, None] > torch.arange(7)
    for shown in (CAUSAL.mT & keys, CAUSAL.mT & keys.flip(-1)):
        told, _ = warned(Attending(by_function, [shown]), torch.randn(2, 3, 7, 5))
        assert any("looks inverted" in one for one in told)


@pytest.mark.parametrize(
    "shown",
    [
        CAUSAL,
        CAUSAL.new_ones(7, 7),
        gh.window(before=1, after=2).visible(gh.Tile(range(7), range(7))),
        (torch.arange(7) > 4).expand(7, 7),
        (CAUSAL & (torch.arange(7) > 4)),
        torch.eye(7, dtype=torch.bool),
    ],
)
def test_other_masks_are_not_inverted(shown):
    told, _ = warned(Attending(by_function, [shown.expand(2, 1, 7, 7)]), torch.randn(2, 3, 7, 5))
    assert not any("inverted" in one for one in told)


def language_model(kind, config, **options):
    torch.manual_seed(0)
    return kind(
        config(
            vocab_size=101,
            hidden_size=24,
            intermediate_size=32,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=1,
            **options,
        )
    ).eval()


@pytest.fixture(scope="module")
def sliding():
    return language_model(MistralForCausalLM, MistralConfig, sliding_window=5)


def test_a_model_that_runs_by_the_stated_masks_has_no_warning(sliding):
    tokens = torch.randint(3, 101, (2, 13))
    real = (torch.arange(13) >= torch.tensor([[0], [4]])).long()
    expect = {"model.layers.*": gh.causal() & gh.window(before=4)}
    with no_warning(), gh.watch(sliding, [gh.Entropy()], expect=expect) as seen:
        sliding(tokens)
        sliding(tokens, attention_mask=real)
        sliding.generate(
            tokens, attention_mask=real, max_new_tokens=4, do_sample=False, pad_token_id=0
        )
    assert seen.unexpected == {}


def test_a_layer_that_runs_by_another_mask_is_named_with_the_first_difference(sliding):
    expect = {"model.layers.1": gh.causal(), "model.layers.*": gh.window(before=4)}
    told, seen = warned(sliding, torch.randint(3, 101, (2, 13)), expect=expect)
    name = "model.layers.1.self_attn"
    assert seen.unexpected == {name: "position 5 does not see key 0"}
    assert told == [
        f"{name!r} ran by another mask than expect= states: position 5 does not see key 0."
    ]


def test_a_step_of_generation_is_compared(sliding):
    cached = language_model(LlamaForCausalLM, LlamaConfig)
    tokens = torch.randint(3, 101, (1, 4))
    expect = {"*.0.self_attn": gh.window(before=4), "*.1.self_attn": gh.causal()}
    with (
        pytest.warns(UserWarning, match="position 5 sees key 0"),
        gh.watch(cached, [gh.Entropy()], expect=expect) as seen,
    ):
        cached.generate(tokens, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert [*seen.unexpected] == ["model.layers.0.self_attn"]


@pytest.mark.parametrize("attend", [by_function, by_hand])
def test_documents_are_compared_by_layer(attend):
    ids = [0, 0, 0, 1, 1, 1, 1]
    packed = (gh.causal() & gh.documents(ids)).visible(gh.Tile(range(7), range(7)))
    model = Attending(attend, [packed.reshape(7, 7), CAUSAL])
    told, seen = warned(
        model, torch.randn(1, 2, 7, 5), expect={"layers.*": gh.causal() & gh.documents(ids)}
    )
    assert seen.unexpected == {"layers.1": "position 3 sees key 0"}
    assert len(told) == 1


def test_a_stated_mask_that_does_not_fit_is_told_and_breaks_nothing():
    x = torch.randn(1, 2, 7, 5)
    model = Attending(by_function, [CAUSAL])
    told, seen = warned(model, x, expect={"layers.0": gh.documents([0, 1, 1])})
    assert "does not fit 7 × 7" in seen.unexpected["layers.0"]
    assert len(told) == 1


def test_no_mask_is_stated_by_none():
    x = torch.randn(1, 2, 7, 5)
    model = Attending(by_function, [CAUSAL, None])
    _, seen = warned(model, x, expect={"layers.*": None})
    assert seen.unexpected == {"layers.0": "position 0 does not see key 1"}


def test_the_padding_of_another_text_is_not_compared():
    layer = nn.TransformerDecoderLayer(10, 2, 16, batch_first=True).eval()
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    expect = {"multihead_attn": None, "self_attn": gh.causal()}
    upper = nn.Transformer.generate_square_subsequent_mask(7)
    with no_warning(), gh.watch(layer, [gh.Entropy()], expect=expect) as seen:
        layer(
            torch.randn(2, 7, 10),
            torch.randn(2, 5, 10),
            tgt_mask=upper,
            memory_key_padding_mask=hidden,
        )
    assert seen.unexpected == {}


def test_what_is_no_mask_is_refused_before_the_block():
    model = Attending(by_function, [CAUSAL])
    with (
        pytest.raises(TypeError, match="expect must be masks by patterns of module names"),
        gh.watch(model, [gh.Entropy()], expect={"layers.0": CAUSAL}),
    ):
        pass
    with (
        pytest.raises(ValueError, match="expect must be names of the model's modules.*'nothing'"),
        gh.watch(model, [gh.Entropy()], expect={"nothing": gh.causal()}),
    ):
        pass


def test_a_pattern_without_attention_is_told():
    model = Attending(by_function, [CAUSAL])
    model.norm = nn.LayerNorm(5)
    expect = {"layers.0": gh.causal(), "norm": gh.causal()}
    told, _ = warned(model, torch.randn(1, 2, 7, 5), expect=expect)
    assert told == ["expect= states a mask for 'norm', where no attention was seen."]
