"""Each score, normalizer and mask is told, in each language, and honestly."""

import itertools
import json

import pytest
import torch
from explanation_told import LANGUAGES, WORDS, OwnNormalizer, OwnScore, all_text, traced

import glasshead as gh

SCORES = (
    gh.Dot(),
    gh.ScaledDot(),
    gh.Cosine(beta=torch.tensor(3.0)),
    gh.Gaussian(beta=0.5),
    gh.Additive(dim=3, hidden=7),
    OwnScore(),
)
NORMALIZERS = (
    gh.Softmax(),
    gh.SoftmaxOne(),
    gh.HardMax(),
    gh.Sparsemax(),
    gh.Entmax15(),
    gh.Sigmoid(),
    OwnNormalizer(),
)
MASKS = (
    None,
    gh.causal(),
    gh.window(before=1, after=1),
    gh.padding(3),
    gh.causal() | gh.prefix(2),
    gh.prefix(2),
    gh.documents([0, 0, 1, 1, 1]) & gh.causal(),
    gh.dense(torch.eye(5).flip(0).bool()),
    gh.dense(torch.zeros(5, 5, dtype=torch.bool)),
)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("normalizer", NORMALIZERS, ids=lambda n: type(n).__name__)
def test_every_recipe_is_told(normalizer, lang):
    for score, mask in itertools.product(SCORES, MASKS):
        trace = traced(score=score, normalizer=normalizer, mask=mask)
        explanation = gh.explain(trace, tokens=WORDS, query="sat", lang=lang)
        assert json.dumps(explanation.to_dict(), allow_nan=False)
        assert explanation.document()
    assert all_text(explanation)
    assert explanation.html()


@pytest.mark.parametrize("score", SCORES, ids=lambda s: type(s).__name__)
def test_each_score_has_a_formula_numbers_and_a_reason(score):
    step = gh.explain(traced(score=score), tokens=WORDS)["scores"]
    assert step.formula.startswith("s = ")
    assert len([line for line in step.numbers if line.startswith("s(")]) == 5
    assert step.why


def test_a_subclass_is_told_by_what_it_computes():
    class Renamed(gh.Dot):
        """The same, so that it is told like its base."""

    class Doubled(gh.Dot):
        def forward(self, query, key):
            return 2 * super().forward(query, key)

    renamed, doubled = (gh.explain(traced(score=s()))["scores"] for s in (Renamed, Doubled))
    assert "·" in renamed.numbers[0]
    assert "·" not in doubled.numbers[0]
    assert "“Doubled” is a score of your own" in doubled.why


def test_an_own_normalizer_is_told_by_its_results_alone():
    explanation = gh.explain(traced(normalizer=OwnNormalizer()), tokens=WORDS)
    assert "“OwnNormalizer” is a normalizer of your own" in explanation["weights"].why
    assert explanation["weights"].formula == "p_j = s_j²/9 - 0.1"
    assert "cannot be drawn as a heat map" in all_text(explanation).replace("\n", " ")
    assert explanation["sharpness"].numbers == ()


def test_a_row_that_sees_nothing_is_told_honestly():
    trace = traced(mask=gh.dense(torch.zeros(5, 5, dtype=torch.bool)))
    explanation = gh.explain(trace, tokens=WORDS)
    assert "may see none of the keys" in " ".join(explanation["masked"].intro)
    assert "nothing to share out" in explanation["weights"].intro[0]
    assert explanation["context"].numbers == ("c(here) = [0, 0]",)
    assert "fewer than two keys" in explanation["sharpness"].intro[0]
    assert explanation["weights"].to_dict()["data"]["weights"] == [[0.0] * 5] * 5


def test_the_picture_of_the_mask_marks_the_query():
    text = all_text(gh.explain(traced(mask=gh.causal()), tokens=WORDS, query="cat"))
    assert "▸ cat   ■ ■ · · ·" in text
    assert "  here  ■ ■ ■ ■ ■" in text


def test_hidden_keys_are_told_as_hidden():
    explanation = gh.explain(traced(mask=gh.causal()), tokens=WORDS, query="cat")
    assert "Of the 5 keys, “cat” may see 2; hidden from it: 3." in explanation["masked"].intro
    assert explanation["masked"].numbers[2:] == ("s(sat)  = -∞", "s(down) = -∞", "s(here) = -∞")
    assert explanation["weights"].numbers[-1] == "p(here) = 0   (hidden)"
    masked = explanation["masked"].to_dict()["data"]["masked"]
    assert masked[0][1:] == [None] * 4
    assert masked[0][0] == pytest.approx(explanation["scaled"].data["scaled"][0, 0].item())


@pytest.mark.parametrize("normalizer", NORMALIZERS, ids=lambda n: type(n).__name__)
def test_why_hidden_scores_are_infinite_goes_with_the_normalizer(normalizer):
    trace = traced(normalizer=normalizer, mask=gh.causal())
    why = gh.explain(trace, tokens=WORDS, query="cat")["masked"].why
    assert why.startswith("Why −∞ and not 0")
    is_softmax = isinstance(normalizer, gh.Softmax)
    assert ("e^(−∞) = 0" in why) == is_softmax
    assert ("share everything" in why) == is_softmax
    assert ("could earn weight" in why) != is_softmax


def test_a_word_that_sees_all_is_told_apart_from_those_that_do_not():
    def told(mask):
        return gh.explain(traced(mask=mask), tokens=WORDS)["masked"].intro[-1]

    assert told(gh.causal()) == "“here” sees all of the keys; some other words do not."
    assert told(gh.padding(5)) == "“here” may see all of the keys."


def test_hard_attention_is_told_as_a_choice():
    explanation = gh.explain(traced(normalizer=gh.HardMax()), tokens=WORDS)
    assert explanation["context"].why == "Here the mixture is a single value."
    assert explanation["weights"].formula == "p_j = 1 (s_j = max s), 0 (s_j < max s)"
    assert "HardMax: 1 (s_j = max s), 0 (s_j < max s)" in all_text(explanation)


def test_a_softmax_of_one_visible_key_has_nothing_to_mix():
    explanation = gh.explain(traced(mask=gh.causal()), tokens=WORDS, query="The")
    assert explanation["context"].why == "Here the mixture is a single value."
    assert "Why a mixture" in gh.explain(traced(), tokens=WORDS)["context"].why


@pytest.mark.parametrize(
    ("query", "keys", "said"),
    [
        (1, "12", "Only the keys that “2” may see are written out; the other 7 "),
        (3, "1234", "Only the keys that “4” may see are written out; the other 5 "),
        (8, None, "Only the 4 keys that will get the largest weights are written out"),
    ],
)
def test_of_many_keys_the_visible_ones_are_written_out(query, keys, said):
    explanation = gh.explain(traced(9, 9, mask=gh.causal()), query=query)
    lines = explanation["scores"].numbers
    assert keys is None or [line[2] for line in lines] == list(keys)
    assert len(lines) == len(keys or "1234")
    assert said in all_text(explanation).replace("\n", " ")


def test_of_many_keys_that_are_all_hidden_the_first_are_written_out():
    mask = gh.dense(torch.zeros(9, 9, dtype=torch.bool))
    explanation = gh.explain(traced(9, 9, mask=mask))
    assert [line[:4] for line in explanation["scores"].numbers] == ["s(1)", "s(2)", "s(3)", "s(4)"]
    assert "Only the first 4 keys are written out" in all_text(explanation)


@pytest.mark.parametrize(
    ("bias", "said"),
    [
        (gh.ALiBi(heads=1), "ALiBi"),
        (gh.RelativeBias(heads=1), "relative bias"),
        (torch.ones(5, 5).double(), "does not depend on their vectors"),
    ],
    ids=["ALiBi", "RelativeBias", "tensor"],
)
def test_each_bias_is_told(bias, said):
    step = gh.explain(traced(bias=bias), tokens=WORDS)["masked"]
    assert said in step.intro[0]
    assert step.formula == "s ← s + b"


def test_a_bias_that_hides_is_told_as_a_mask():
    bias = torch.zeros(5, 5).double().masked_fill(torch.ones(5, 5).bool().triu(1), -torch.inf)
    step = gh.explain(traced(bias=bias), tokens=WORDS, query="The")["masked"]
    assert "hidden from it: 4" in step.intro[-1]
    assert step.numbers[-1] == "s(here) = -∞"


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (gh.causal(), "causal"),
        (gh.window(before=2), "(before it: 2; after it: 0)"),
        (gh.window(after=3), "(before it: all; after it: 3)"),
        (gh.padding(3), "padding"),
        (gh.prefix(3), "prefix"),
        (gh.documents([1, 1, 2, 2, 2]), "documents"),
        (gh.dense(torch.eye(5).bool()), "pair by pair"),
        (gh.causal() | gh.prefix(2), "The mask causal() | prefix(2) says"),
    ],
    ids=repr,
)
def test_each_mask_says_what_it_is_for(mask, said):
    assert said in gh.explain(traced(mask=mask), tokens=WORDS)["masked"].intro[0]


def test_large_scores_are_shifted_and_the_shift_is_told():
    trace = traced(score=gh.Dot(beta=200.0))
    step = gh.explain(trace, tokens=WORDS)["weights"]
    largest = trace.masked[-1].max().item()
    assert f"m = {largest:.4f}".rstrip("0") in step.intro[1]
    assert step.intro[1].startswith("These scores are far from 0, so the powers of e would be")
    assert step.formula == "p_j = e^(s_j - m) / Σ,   Σ = Σ_k e^(s_k - m)"


def test_infinite_and_missing_numbers_are_shown_and_stay_out_of_json():
    x = torch.tensor([[torch.inf, 1.0], [torch.nan, 2.0], [0.0, 1.0]])
    for normalizer in (gh.Softmax(), gh.SoftmaxOne(), gh.HardMax(), gh.Sigmoid(), OwnNormalizer()):
        explanation = gh.explain(gh.Attention(normalizer=normalizer).trace(x, x, x))
        assert "NaN" in all_text(explanation)
        json.dumps(explanation.to_dict(), allow_nan=False)


def test_beta_says_where_it_comes_from():
    by_width = gh.explain(traced())["scaled"]
    assert "β = 1/√3 = 0.5774" in by_width.intro[0]
    assert "√3 = 1.7321" in by_width.why
    chosen = gh.explain(traced(score=gh.ScaledDot(beta=2.0)))["scaled"]
    assert "β = 2, the inverse temperature" in chosen.intro[0]
    none = gh.explain(traced(score=gh.Dot()))["scaled"]
    assert none.numbers == ()
    assert "stay as they are" in none.intro[0]


def test_each_head_has_its_own_beta_and_sink():
    score = gh.ScaledDot(beta=torch.tensor([1.0, 2.0, 4.0]))
    normalizer = gh.SoftmaxOne(sink=torch.tensor([0.0, 0.5, 1.0]))
    trace = traced(leading=(1, 3), score=score, normalizer=normalizer)
    explanation = gh.explain(trace, index=(0, 2))
    assert "β = 4" in explanation["scaled"].intro[0]
    assert "with the score 1." in explanation["weights"].intro[0]
