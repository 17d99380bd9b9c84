"""Generation with a cache that lets go of keys."""

import pytest
import torch

import glasshead as gh
from glasshead.models.decoding import Beam, Greedy, generate
from glasshead.models.language_model import LanguageModelSteps

VOCABULARY, LENGTH, NEW = 11, 19, 23


def model_of(**settings):
    torch.manual_seed(0)
    sizes = {"d_model": 12, "num_heads": 6, "num_kv_heads": 2, "num_layers": 2}
    config = gh.LanguageModelConfig(
        vocab_size=VOCABULARY, context_length=61, **sizes, positions="rotary", **settings
    )
    return gh.LanguageModel(config).eval()


def text(model, strategy=None, tokens=NEW, **asked):
    torch.manual_seed(1)
    prompt = torch.randint(VOCABULARY, (2, LENGTH))
    steps = LanguageModelSteps(model, **asked)
    return generate(steps, prompt, strategy or Greedy(), max_tokens=tokens).tokens


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
@pytest.mark.parametrize("policy", [gh.H2O(50), gh.SnapKV(50), gh.TOVA(50), gh.Sinks(4, 46)])
def test_a_budget_that_is_not_reached_writes_the_same(policy, strategy):
    model = model_of()
    assert text(model, strategy, policy=policy) == text(model, strategy)


@pytest.mark.parametrize("policy", [gh.H2O(7), gh.SnapKV(7, 3), gh.TOVA(7), gh.Sinks(2, 5)])
def test_generation_goes_on_beyond_the_budget_and_the_context(policy):
    written = text(model_of(), tokens=70, policy=policy)
    assert [len(row) for row in written] == [70, 70]


def test_sinks_of_a_window_model_that_hold_its_window_write_the_same():
    model = model_of(window=6)
    assert text(model, policy=gh.Sinks(1, 5)) == text(model)


@pytest.mark.parametrize("policy", [None, gh.TOVA(5)])
def test_a_translator_keeps_its_source(policy):
    config = gh.TranslatorConfig(vocab_size=VOCABULARY, d_model=12, num_heads=3, num_layers=2)
    model, lengths = gh.Translator(config).eval(), torch.tensor([13, 7])
    cache, memory = model.new_cache(policy), model.encode(torch.ones(2, 13).long(), lengths)
    for token in torch.randint(VOCABULARY, (2, 9)).split(1, 1):
        model.decode(token, memory, lengths, cache=cache)
    assert [one.count for one in cache.crossed.values()] == [13, 13]
    assert [one.count for one in cache.own.values()] == [5 if policy else 9] * 2


def test_steps_take_padding_as_a_list_and_refuse_other_rows():
    model, prompt = model_of(), torch.randint(VOCABULARY, (2, 7))
    found = model.steps(padding=[0, 3]).next(prompt)
    steps = model.steps(padding=torch.tensor([0, 3]))
    assert torch.equal(found, steps.next(prompt))
    with pytest.raises(ValueError, match="a cache of 2 rows takes as many, and got 1: begin a new"):
        steps.next(prompt[:1])
