"""Each score, normalizer and mask is told, in each language, and honestly.

How embeddings become queries, keys and values.
Why scores are scaled: derivatives that die.
"""

import itertools
import json
from pathlib import Path

import pytest
import torch
from explanation_told import (
    LANGUAGES,
    WORDS,
    OwnNormalizer,
    OwnScore,
    all_text,
    figure,
    sides,
    traced,
    two_decimals,
    worked_example,
)

import glasshead as gh
from glasshead.explanation.embeddings import Projection
from glasshead.explanation.steps.sharpness import derivative, largest_derivative
from glasshead.recipe.part import Description

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


class EverySecond(gh.Mask):
    """A mask that describes itself by a sentence of the catalogues and by words of its own."""

    def __init__(self, words):
        self.words = words

    def describe(self):
        return self.words

    def visible(self, tile):
        return tile.distance() % 2 == 0


def test_an_own_mask_is_told_in_its_own_words():
    def told(words, lang="en", mask=EverySecond):
        trace = traced(mask=mask(words) & gh.causal())
        own, causal, *_ = gh.explain(trace, tokens=WORDS, lang=lang)["masked"].intro
        assert causal == gh.explain(traced(mask=gh.causal()), lang=lang)["masked"].intro[0]
        return own

    class Odd(EverySecond):
        def visible(self, tile):
            return tile.distance() % 2 == 1

        def __repr__(self):
            return "odd()"

    assert told("Every second {word}.", "es") == "Every second {word}."
    assert told(Description("Every {n}th word.", n=2), "tr") == "Every 2th word."
    assert told(Description("all"), "es") == "todas"
    # What computes something else is not described by its base.
    assert told("x", mask=Odd) == "The mask odd() says which words may see each other."
    assert told("x", mask=type("Named", (EverySecond,), {})) == "x"


def test_an_own_bias_score_and_normalizer_are_told_in_their_own_words():
    class Nearer(gh.Bias):
        def forward(self, tile):
            return -tile.distance().abs().to(tile.dtype)

        def describe(self):
            return "Near words count more."

    class Manhattan(gh.Score):
        formula = "-Σ|q - k|"

        def forward(self, query, key):
            return -torch.cdist(query, key, p=1)

        def written(self, query, key, write):
            pairs = zip(query, key, strict=True)
            return f"-({write.total([f'|{write.figure(a - b)}|' for a, b in pairs])})"

        def describe(self):
            return "Why blocks: a taxi drives along the streets."

    class Described(OwnNormalizer):
        normalize = OwnNormalizer.normalize

        def describe(self):
            return "Why squares: large scores win."

    trace = traced(bias=Nearer(), score=Manhattan(), normalizer=Described())
    explanation = gh.explain(trace, tokens=WORDS, query="The", lang="tr")
    assert explanation["masked"].intro[0] == "Near words count more."
    assert explanation["weights"].why == "Why squares: large scores win."
    step = explanation["scores"]
    assert (step.formula, step.why) == (
        "s = -Σ|q - k|",
        "Why blocks: a taxi drives along the streets.",
    )
    query, key = trace.problem.query.flatten(0, -2)[0], trace.problem.key.flatten(0, -2)[0]
    terms = " + ".join(f"|{figure(x)}|" for x in (query - key).tolist())
    assert step.numbers[0] == f"s(The)  = -({terms}) = {figure(trace.scores[0, 0].item())}"


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
        (1, "12", "Only the keys that “2” may see are written out; the others (7) "),
        (3, "1234", "Only the keys that “4” may see are written out; the others (5) "),
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


SEED = json.loads((Path(__file__).parents[1] / "data" / "seed_numbers.json").read_text("utf-8"))


def projection(d_out=2, **options):
    matrices = {
        f"W_{role}": two_decimals(3, d_out, seed=place)
        for place, role in enumerate(("query", "key", "value"))
    }
    return Projection(inputs=two_decimals(4, 3, seed=9), **{**matrices, **options})


def told(made, heads=1, **options):
    q, k, v = made.queries, made.keys, made.values
    if heads > 1:
        q, k, v = (x.unflatten(-1, (heads, -1)).transpose(0, 1)[None] for x in (q, k, v))
    trace = gh.Attention().trace(q, k, v)
    return gh.explain(trace, tokens=list("abcd"), projection=made, **options)


def test_it_comes_first_and_its_sums_are_right():
    made = projection(b_key=two_decimals(2, seed=5))
    explanation = told(made, query="b")
    assert [step.name for step in explanation.steps[:3]] == ["opening", "projection", "inputs"]
    lines = [line for line in explanation["projection"].numbers if "₁(b)" in line or "₂(b)" in line]
    assert [line[:2] for line in lines] == ["q₁", "q₂", "k₁", "k₂", "v₁", "v₂"]
    exact = [*made.queries[1], *made.keys[1], *made.values[1]]
    for line, result in zip(lines, exact, strict=True):
        written, shown = sides(line)
        assert written == pytest.approx(result.item(), abs=1e-9)
        assert shown == pytest.approx(result.item(), abs=6e-5)
    assert explanation["projection"].formula == (
        "q = x·W_query,   k = x·W_key + b_key,   v = x·W_value"
    )


def test_the_texts_numbers_come_out():
    seed, journey = SEED["scaled_dot_product_article"], torch.tensor(SEED["journey_inputs"])
    torch.manual_seed(seed["seed"])
    q, k, v = (torch.rand(3, 2) for _ in range(3))
    made = Projection(inputs=journey, W_query=q, W_key=k, W_value=v)
    trace = gh.Attention().trace(made.queries, made.keys, made.values)
    step = gh.explain(trace, query=1, projection=made)["projection"]
    assert [line for line in step.numbers if line.startswith("q")][-1] == "q(2)  = " + str(
        seed["rand_query_2"]
    )


def test_each_head_has_its_columns():
    made = projection(d_out=6)
    numbers = told(made, heads=3, index=(0, 1), query="a")["projection"].numbers
    line = next(line for line in numbers if line.startswith("q₁(a)"))
    assert sides(line)[0] == pytest.approx(made.queries[0, 2].item(), abs=1e-9)


def test_in_cross_attention_only_the_query_is_told():
    made = projection()
    trace = gh.Attention().trace(made.queries, torch.rand(3, 2).double(), torch.rand(3, 2).double())
    explanation = gh.explain(trace, tokens=list("abcd"), keys=list("xyz"), projection=made)
    lines = explanation["projection"].numbers
    assert not [line for line in lines if line.startswith(("k", "v"))]


def test_a_projection_of_something_else_is_refused():
    made = projection()
    trace = gh.Attention().trace(made.queries + 1, made.keys, made.values)
    with pytest.raises(ValueError, match="W_query does not produce the query vectors"):
        gh.explain(trace, projection=made)


@pytest.mark.parametrize(
    ("name", "kind"), [("projection", "Projection"), ("printed", "WorkedExample")]
)
def test_a_projection_or_an_example_of_another_kind_is_refused(name, kind):
    trace = gh.Attention().trace(*torch.rand(3, 4, 5))
    with pytest.raises(TypeError, match=f"{name} must be a {kind} such as .*, got int"):
        gh.explain(trace, **{name: 3})


def test_a_projection_of_another_width_is_refused():
    trace = gh.Attention().trace(*(torch.rand(4, 5).double() for _ in range(3)))
    with pytest.raises(ValueError, match="W_query must have 5 columns.*or 5 for 1 heads, got 2"):
        gh.explain(trace, projection=projection())


def test_the_texts_sharpness_comes_out():
    texts = SEED["scaled_dot_product_article"]["softmax_sharpness"]
    data = worked_example()["sharpness"].to_dict()["data"]
    assert data["example_scores"] == texts["x"]
    for row, times in zip(data["example_weights"], data["factors"], strict=True):
        assert row == pytest.approx(texts[f"times_{times}"], rel=5e-4)


def test_own_scores_are_multiplied():
    trace = traced()
    data = gh.explain(trace, query=2)["sharpness"].data
    factors = data["factors"]
    for times, row, largest in zip(
        factors, data["weights"], data["largest_derivatives"], strict=True
    ):
        scores = trace.masked[2] * times
        torch.testing.assert_close(row, scores.softmax(-1))
        jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores)
        assert largest == pytest.approx(jacobian.abs().max().item(), rel=1e-6, abs=1e-15)


def test_derivatives_die_as_scores_grow():
    small, middle, large = worked_example()["sharpness"].data["largest_derivatives"]
    assert small > middle > large > 0


def grown(scores):
    """The step of a query whose scores are given."""
    keys = torch.tensor(scores, dtype=torch.float64)[:, None]
    trace = gh.Attention(score=gh.Dot()).trace(torch.ones(1, 1).double(), keys, keys)
    return gh.explain(trace)["sharpness"]


@pytest.mark.parametrize(
    ("scores", "factors", "share"),
    [
        ((0.3, 2.0, -1.0), 3, 1),
        ((0.3, 2.0, 1.99), 4, 1),
        ((7.0001, 7.0, -1.0), 6, 1),
        ((7.0, 7.0, 7.0 - 1e-4), 6, 2),
        ((0.0,) * 5, 3, 5),
        ((3.0, 3.0 + 1e-9, -torch.inf), 3, 2),
    ],
)
def test_the_table_grows_until_the_largest_scores_have_all_weight(scores, factors, share):
    step = grown(scores)
    assert step.data["factors"] == [10**power for power in range(factors)]
    *_, before, last = step.data["weights"]
    leaders = last.topk(share).values
    torch.testing.assert_close(leaders, torch.full_like(leaders, 1 / share), rtol=1e-2, atol=0)
    if factors > 3:
        assert before.topk(share).values.sum() < 0.99
    said = step.figures[-5].text
    assert said.endswith("the derivatives vanish.") == (share == 1)
    assert (f"The largest scores, {share} of them, are equal or nearly equal" in said) == (
        share > 1
    )
    assert f"the largest weight is {figure(last.max().item())}, " in said
    assert f"largest derivative {figure(step.data['largest_derivatives'][-1])}" in said


def test_nothing_is_said_of_scores_that_cannot_grow():
    step = grown((torch.inf, 1.0, 2.0))
    assert step.figures[-5].text.endswith("nothing is scaled.")
    assert step.data["factors"] == [1, 10, 100]


def test_hidden_keys_take_no_part():
    data = gh.explain(traced(mask=gh.causal()), query=2)["sharpness"].data
    assert data["jacobian_keys"] == [0, 1, 2]
    assert data["weights"].shape == (len(data["factors"]), 3)


def test_the_derivative_keeps_its_digits_where_a_weight_is_nearly_one():
    weights = torch.tensor([1.0, 1e-30], dtype=torch.float64)
    assert derivative(weights, [0, 1]).tolist() == [[1e-30, -1e-30], [-1e-30, 1e-30]]
    assert largest_derivative(weights) == 1e-30


@pytest.mark.parametrize("normalizer", [gh.SoftmaxOne(), gh.Sigmoid(), gh.HardMax()], ids=repr)
def test_other_normalizers_are_not_explained_by_the_softmax(normalizer):
    step = gh.explain(traced(normalizer=normalizer))["sharpness"]
    assert type(normalizer).__name__ in step.intro[0]
    assert (step.formula, step.numbers, step.figures) == ("", (), ())
