"""Candidates: the translations that a search found for a text, with their scores."""

import pytest
import torch

from glasshead.models.decoding import Beam, Greedy
from glasshead.tasks.data.sentences import pairs
from glasshead.tasks.translate import TextTranslator
from translated import translated

GERMAN = [pair.german for pair in pairs(3, seed=5)]
TEXTS = ["", GERMAN[0], "  ", *GERMAN[1:], "Ja"]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    run = translated(tmp_path_factory.mktemp("runs") / "run", "tokenizer=words")
    return TextTranslator.load(run.path)


@pytest.fixture(scope="module")
def found(translator):
    return translator.candidates(TEXTS, Beam(5, length_penalty=0.7, candidates=3))


def log_probability(translator, candidate):
    """ln p by one run of the whole model, without a cache and without a search."""
    translation, tokenizer = candidate.translation, translator.tokenizer
    written = [*translation.tokens, *([tokenizer.end_id] if candidate.ended else [])]
    source = torch.tensor([translation.source_tokens])
    shown = torch.tensor([[tokenizer.start_id, *written[:-1]]])
    with torch.no_grad():
        logits = translator.model(source, torch.tensor([source.shape[1]]), shown)[0]
    steps = logits.double().log_softmax(-1)
    return steps.gather(1, torch.tensor(written)[:, None]).sum().item(), len(written)


def test_each_has_the_probability_that_the_model_gives_it(translator, found):
    candidates = [each for some in found for each in some]
    assert len(candidates) == 12
    for each in candidates:
        expected, length = log_probability(translator, each)
        assert each.log_probability == pytest.approx(expected, abs=1e-3)
        assert each.score == pytest.approx(expected / ((5 + length) / 6) ** 0.7, abs=1e-3)


def test_they_are_different_and_the_best_comes_first(found):
    for text, some in zip(TEXTS, found, strict=True):
        assert len(some) == (3 if text.strip() else 0)
        assert len({each.translation.tokens for each in some}) == len(some)
        ranks = [(not each.ended, -each.score) for each in some]
        assert ranks == sorted(ranks)
        assert {each.translation.source for each in some} <= {text}


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3, length_penalty=0.6)], ids=str)
def test_a_translation_is_the_one_candidate_of_its_strategy(translator, strategy):
    found = translator.candidates(TEXTS, strategy)
    for one, some in zip(translator.translate(TEXTS, strategy), found, strict=True):
        assert [each.translation for each in some] == ([one] if one.source.strip() else [])


def test_the_first_of_many_is_no_worse_than_the_one(translator):
    for width in (2, 5):
        one, many = (
            translator.candidates(GERMAN, Beam(width, candidates=count)) for count in (1, width)
        )
        for (alone,), (first, *_) in zip(one, many, strict=True):
            assert (first.ended, first.score) >= (alone.ended, alone.score - 1e-5)


def test_they_are_the_same_in_any_company(translator, found):
    strategy = Beam(5, length_penalty=0.7, candidates=3)
    for text, some in zip(TEXTS, found, strict=True):
        alone = translator.candidates([text], strategy)[0]
        assert [each.translation for each in alone] == [each.translation for each in some]


def test_each_step_is_told_and_what_is_raised_ends_the_search(translator):
    told = []
    (one,) = translator.candidates([GERMAN[0]], Greedy(), each_step=lambda: told.append(1))[0]
    assert len(told) == len(one.translation.tokens) + one.ended
    assert translator.translate([GERMAN[0]], Greedy()) == [one.translation]
    steps = iter(range(2))

    def stopping():
        next(steps)

    with pytest.raises(StopIteration):
        translator.candidates([GERMAN[0]], Beam(3), each_step=stopping)
