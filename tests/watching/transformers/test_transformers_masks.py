"""Masks that a user makes, and those of texts that are packed one behind the other.

A model that runs on FlexAttention, which is compiled, is seen as it runs.
A model of transformers that computes attention by code of its own is named, not passed over.
"""

import gc

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

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
    with torch.no_grad(), models.skipped_where_transformers_fails(ValueError):
        weights = model(**given, attention_mask=hidden, output_attentions=True).attentions
    seen = watched(build, "eager", given | {"attention_mask": hidden})
    for one, name in zip(weights, seen, strict=True):
        eager.check(seen[name], one)
    if build is models.gpt2 and models.TRANSFORMERS.major < 5:
        pytest.skip("eager GPT-2 of transformers 4 also hides later keys, and sdpa does not")
    seen = watched(build, "sdpa", given | {"attention_mask": visible})
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
    from transformers.models.bart.modeling_bart import eager_attention_forward

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


pytest.importorskip("transformers")


# One test alone, as compiling takes longer than all others together.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_flex_attention_is_seen_and_stays_compiled():
    from torch._dynamo.utils import counters
    from torch._inductor.exc import InductorError

    # Code is compiled again where it was compiled for other shapes before, by whatever test.
    torch.compiler.reset()
    given = models.inputs(models.mistral, "left")
    model = models.mistral("flex_attention", num_attention_heads=4)
    with torch.no_grad():
        with models.skipped_where_transformers_fails(InductorError):
            alone = model(**given).logits
        # What makes the mask is compiled for the watch, and the attention is not.
        with gh.watch(model, [gh.Entropy()]):
            model(**given)
        compiled = counters["stats"]["unique_graphs"]
        with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
            watched = model(**given).logits
        assert torch.equal(watched, alone)
        assert torch.equal(model(**given).logits, alone)
    assert counters["stats"]["unique_graphs"] == compiled > 0
    for name, weights in eager.weights_of(models.mistral, given, num_attention_heads=4).items():
        real = eager.real_queries(models.mistral, given, name)
        eager.check(seen[name], weights, real=real)


pytest.importorskip("transformers")


def nystromformer():
    from transformers import NystromformerConfig, NystromformerModel

    sizes = {"hidden_size": 14, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 7, "vocab_size": models.VOCABULARY, "num_landmarks": 2}
    sizes |= {"segment_means_seq_len": 8, "conv_kernel_size": 3}
    return NystromformerModel(NystromformerConfig(**sizes)).eval()


class PastedAttention(torch.nn.Module):
    """Weights by a softmax of distances, which follow from no product."""

    def forward(self, hidden_states, **named):
        apart = hidden_states.unsqueeze(-2) - hidden_states.unsqueeze(-3)
        return apart.square().sum(-1).neg().softmax(-1) @ hidden_states, None


def pasted(attention="sdpa"):
    model = models.llama(attention)
    model.model.layers[1].self_attn = PastedAttention()
    return model


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    ("build", "named"),
    [
        (
            nystromformer,
            (
                "NystromformerSelfAttention at 'encoder.layer.0.attention.self' combines the "
                "weights of several softmaxes. Exclude it with layers="
            ),
        ),
    ],
)
def test_attention_that_cannot_be_followed_is_named(build, named, without_gradients):
    model = build()
    with (
        pytest.raises(RuntimeError, match=named),
        without_gradients(),
        gh.watch(model, [gh.Entropy()]),
    ):
        model(models.tokens(2, 8))


def refused(model, **asked):
    """The sentence by which a watch of a run is refused."""
    with pytest.raises(RuntimeError) as told, torch.no_grad(), gh.watch(model, [gh.Entropy()]):
        model(models.tokens(2, 7), **asked)
    return str(told.value)


NAMED = "PastedAttention at 'model.layers.1.self_attn' takes the softmax of what no product of que"


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
@pytest.mark.parametrize("of_the_library", [False, True])
def test_a_class_that_chooses_no_function_is_told_of_none(monkeypatch, mode, of_the_library):
    model = pasted(mode)
    if of_the_library:
        monkeypatch.setattr(PastedAttention, "__module__", type(model.model).__module__)
    sentence = refused(model)
    assert NAMED in sentence
    assert sentence.endswith("of queries and keys has made. Exclude these with layers=.")


class ChoosingAttention(PastedAttention):
    """Leaves the function of the library for distances of its own where it is eager, or asked."""

    def __init__(self, eager):
        super().__init__()
        self.eager = eager

    def forward(self, hidden_states, output_attentions=False, **named):
        if not self.eager and not output_attentions:
            parts = [hidden_states.unsqueeze(1)] * 3
            attend = ALL_ATTENTION_FUNCTIONS["sdpa"]
            return attend(self, *parts, None, is_causal=True)[0].flatten(2), None
        return super().forward(hidden_states)


@pytest.mark.parametrize(
    ("mode", "asked", "advice"),
    [
        ("eager", {}, "Load the model with attn_implementation='sdpa'"),
        ("sdpa", {"output_attentions": True}, "Call the model without output_attentions=True"),
    ],
)
def test_a_class_that_chooses_a_function_is_told_how_and_that_helps(
    monkeypatch, mode, asked, advice
):
    def chosen(mode):
        model = models.llama(mode)
        model.model.layers[1].self_attn = ChoosingAttention(mode == "eager")
        return model

    monkeypatch.setattr(ChoosingAttention, "__module__", type(chosen(mode).model).__module__)
    sentence = refused(chosen(mode), **asked)
    assert "ChoosingAttention at 'model.layers.1.self_attn' takes the softmax of" in sentence
    assert sentence.endswith(f"has made. {advice}, or exclude these with layers=.")
    model = chosen("sdpa")
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        model(models.tokens(2, 7))
    assert "model.layers.1.self_attn" in seen


def test_an_attention_that_is_not_what_it_seems_is_refused():
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def doubled(module, query, key, value, attention_mask, **named):
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **named)
        return output * 2, None

    AttentionInterface.register("doubled", doubled)
    AttentionMaskInterface.register("doubled", sdpa_mask)
    try:
        model, text = models.llama("doubled"), models.tokens(2, 7)
        with (
            pytest.raises(RuntimeError, match="module gave another output"),
            gh.watch(model, [gh.Entropy()]),
        ):
            watched = model(text).logits
        assert torch.equal(watched, model(text).logits)
    finally:
        AttentionInterface._global_mapping.pop("doubled")
        AttentionMaskInterface._global_mapping.pop("doubled")
