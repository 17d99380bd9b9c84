"""A token at a time computed on the short way: what the modules compute, bit for bit."""

from functools import partial

import pytest
import torch
from torch import nn

import glasshead as gh
from cases import EverySecond
from glasshead.models.decoding import Greedy, generate
from glasshead.models.fast_decode import FastDecodeStep
from glasshead.models.language_model import LanguageModelSteps

PLAIN = {"vocab_size": 31, "context_length": 64, "d_model": 12, "num_heads": 6, "num_layers": 2}
LLAMA = {
    "positions": "rotary",
    "norm": "rms",
    "feed_forward": "swiglu",
    "bias": False,
    "num_kv_heads": 3,
}
CONFIGS = {
    "gpt": {},
    "llama": LLAMA,
    "post": {"order": "post", "feed_forward": "relu"},
    "sinusoidal": {"positions": "sinusoidal", "feed_forward": "gelu_tanh"},
    "nowhere": {"positions": "none", "qkv_bias": False},
    "window": {**LLAMA, "window": 7},
    "wide_heads": {**LLAMA, "head_dim": 10, "num_kv_heads": 1},
    "attention_alone": {"feed_forward": "none"},
    "untied": {"tied": False, "output_bias": False},
    "parallel": {"positions": "rotary", "order": "parallel", "rotary_dim": 2, "head_dim": 6},
    "joined": {**LLAMA, "order": "res_post", "query_key_norm": "joined"},
    "gemma": {
        **LLAMA,
        "head_dim": 10,
        "order": "sandwich",
        "query_key_norm": "head",
        "local": {"layers": [0], "neighbours": 5, "rotary_base": 500.0},
        "feed_forward": "geglu_tanh",
        "score_scale": 0.3,
        "embedding_scale": 3.0,
        "logit_softcap": 7.0,
    },
    "parallel_attention_alone": {"order": "parallel", "feed_forward": "none"},
}


def built(name="llama", **more):
    torch.manual_seed(5)
    model = gh.LanguageModel(gh.LanguageModelConfig(**PLAIN, **CONFIGS[name], **more))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.eval()


def logits_of_steps(model, rows=3, steps=17, single=True):
    """The logits of each step, on the short way or by the modules."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(31, (rows, 5 + steps), generator=generator)
    walking = LanguageModelSteps(model)
    if not single:
        walking._single = None
    found = [walking.next(tokens[:, :5])]
    return torch.stack([*found, *(walking.next(tokens[:, i : i + 1]) for i in range(5, 5 + steps))])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", CONFIGS)
def test_it_is_what_the_modules_compute_bit_for_bit(name, rows):
    model = built(name)
    assert FastDecodeStep.prepared(model) is not None
    assert logits_of_steps(model, rows).equal(logits_of_steps(model, rows, single=False))


def test_it_is_used(monkeypatch):
    calls = []
    own = FastDecodeStep.__call__
    monkeypatch.setattr(FastDecodeStep, "__call__", lambda *x: calls.append(1) or own(*x))
    generate(LanguageModelSteps(built()), torch.tensor([[3, 1]]), Greedy(), max_tokens=7)
    assert len(calls) == 6


def test_who_watches_sees_each_token_and_changes_none():
    model = built()
    alone = logits_of_steps(model)
    with gh.watch(model, [gh.Entropy()]) as seen:
        watched = logits_of_steps(model)
    assert watched.equal(alone)
    assert [call.shape[-1] for call in seen["blocks.1.attention"]] == [5] + [1] * 17


def test_removed_heads_are_missing():
    model = built()
    with gh.ablate(model, {"blocks.0.attention": [0, 4]}):
        removed = logits_of_steps(model)
        by_modules = logits_of_steps(model, single=False)
    assert removed.equal(by_modules)
    assert not removed.allclose(logits_of_steps(model))


DILATED = gh.causal() & EverySecond()


def test_a_mask_of_ones_own_by_distance_hides_the_same_keys_in_each_step():
    model = built()
    for block in model.blocks:
        block.attention.attention.mask = DILATED
    tokens = torch.randint(31, (2, 13))
    steps = LanguageModelSteps(model)
    found = [steps.next(tokens[:, i : i + 1]) for i in range(13)]
    torch.testing.assert_close(torch.stack(found, 1), model(tokens), rtol=1e-4, atol=1e-5)


def double(module, given, output):
    return 2 * output


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.blocks[0], "feed_forward", nn.Identity()),
        lambda model: setattr(model.blocks[0].around_attention, "norm", nn.Tanh()),
        lambda model: setattr(model.blocks[0].attention.attention, "bias", gh.ALiBi(6)),
        lambda model: setattr(model.blocks[0].attention.attention, "softcap", 2.0),
        lambda model: setattr(model.blocks[0].attention.attention, "normalizer", gh.Sparsemax()),
        lambda model: setattr(model.blocks[0].attention.attention, "engine", "reference"),
        lambda model: setattr(model.blocks[0].attention.attention, "mask", gh.causal(offset=0)),
        lambda model: setattr(model.blocks[0].attention.attention, "mask", DILATED),
        lambda model: setattr(model.blocks[0].around_attention, "training", True),
        lambda model: model.blocks[0].attention.attention.train(),
    ],
)
def test_a_model_of_other_parts_goes_through_its_modules(change):
    model = built()
    change(model)
    assert FastDecodeStep.prepared(model) is None
    changed = logits_of_steps(model)
    assert changed.equal(logits_of_steps(model, single=False))


def test_a_hook_that_comes_later_is_called():
    model = built()
    steps, by_modules, unheard = model.steps(), model.steps(), model.steps()
    by_modules._single = None
    for one in (steps, by_modules, unheard):
        one.next(torch.tensor([[3, 1]]))
    plain = unheard.next(torch.tensor([[4]]))
    model.blocks[1].attention.output.register_forward_hook(double)
    heard = steps.next(torch.tensor([[4]]))
    assert heard.equal(by_modules.next(torch.tensor([[4]])))
    assert not heard.allclose(plain)


def test_a_sharpness_of_its_own_too():
    model = built()
    for block in model.blocks:
        block.attention.attention.score = gh.ScaledDot(0.7).eval()
    assert FastDecodeStep.prepared(model) is not None
    assert logits_of_steps(model).equal(logits_of_steps(model, single=False))


def test_unequal_prompts_and_policies_go_through_the_modules(monkeypatch):
    monkeypatch.setattr(FastDecodeStep, "__call__", partial(pytest.fail, "the short way was taken"))
    model, prompt = built(), torch.tensor([[3, 1, 4], [1, 5, 9]])
    padded = LanguageModelSteps(model, torch.tensor([0, 2]))
    generate(padded, prompt, Greedy(), max_tokens=3)
    evicting = LanguageModelSteps(model, policy=gh.TOVA(budget=4))
    generate(evicting, prompt, Greedy(), max_tokens=3)


def test_a_token_that_is_none_is_told():
    steps = LanguageModelSteps(built())
    steps.next(torch.tensor([[3, 1]]))
    with pytest.raises(ValueError, match="tokens must be ids from 0 to 30, got 31"):
        steps.next(torch.tensor([[31]]))


def test_beyond_the_context_a_new_page_begins():
    model = built()
    steps = 2 * model.config.context_length
    assert logits_of_steps(model, 1, steps).equal(logits_of_steps(model, 1, steps, single=False))
