"""What is written out is what was computed.

The sentence that the texts work by hand: their numbers, and where they slipped.
"""

import dataclasses
import json
import re
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from explanation_told import OwnNormalizer, all_text, figure, sides, traced, value, worked_example
from hypothesis import given

import glasshead as gh
from glasshead.ladder.worked_example import HELLO_SHINY_SUN, WorkedExample
from hypothesis_profiles import examples

LETTERS = ("a", "b", "c", "d", "f", "g")


SCORES = (gh.Dot(), gh.ScaledDot(), gh.Cosine(), gh.Gaussian())


NORMALIZERS = (
    gh.Softmax(),
    gh.SoftmaxOne(),
    gh.SoftmaxOne(sink=1.5),
    gh.Sparsemax(),
    gh.Entmax15(),
    gh.Sigmoid(),
)


@st.composite
def asked(draw, **recipes):
    recipe = {name: draw(st.sampled_from(parts)) for name, parts in recipes.items()}
    length = draw(st.integers(1, 6))
    sizes = {"dim": draw(st.integers(1, 6)), "value_dim": draw(st.integers(1, 6))}
    trace = traced(length, length, **sizes, seed=draw(st.integers(0, 999)), **recipe)
    query = draw(st.integers(0, length - 1))
    return trace, query, gh.explain(trace, tokens=LETTERS[:length], query=query)


HIDING = (None, gh.padding(1), gh.causal(offset=-1), ~gh.causal(), gh.padding(0))


@examples(150)
@given(asked(score=SCORES, mask=HIDING))
def test_each_score_is_the_sum_that_is_written(told):
    trace, query, explanation = told
    lengths = trace.queries[query].norm() * trace.keys.norm(dim=-1)
    for key, line in enumerate(explanation["scores"].numbers):
        exact = trace.scores[query, key].item()
        assert line.endswith(f" = {figure(exact)}")
        *written, result = sides(line.replace("|q|·|k|", repr(lengths[key].item() or 1.0)))
        assert result == pytest.approx(exact, abs=6e-5, rel=6e-5)
        # Inputs of two decimals are written in full, so that there is nothing to forgive.
        assert written[0] == pytest.approx(exact, abs=1e-9)
        if len(written) == 2 and lengths[key]:
            assert written[1] == pytest.approx(exact, abs=2e-3)


@examples(60)
@given(asked(score=(gh.ScaledDot(), gh.Dot(beta=-2.5)), softcap=(None, 2.0)))
def test_scaled_and_capped_scores_are_what_is_written(told):
    trace, query, explanation = told
    for name in {"scaled", "capped"} & {step.name for step in explanation.steps}:
        for key, line in enumerate(explanation[name].numbers):
            written, result = sides(line)
            exact = getattr(trace, name)[query, key].item()
            assert line.endswith(f" = {figure(exact)}")
            assert written == pytest.approx(exact, abs=1e-3, rel=1e-3)
            assert result == pytest.approx(exact, abs=6e-5, rel=6e-5)


@examples(100)
@given(asked(normalizer=NORMALIZERS))
def test_each_weight_is_the_calculation_that_is_written(told):
    trace, query, explanation = told
    lines = explanation["weights"].numbers
    whole = [side for line in lines if line.startswith(("Σ =", "  =")) for side in sides(line)] or [
        1
    ]
    assert whole == pytest.approx([whole[-1]] * len(whole), abs=1e-3, rel=1e-3)
    weights = [line for line in lines if line.startswith("p(")]
    assert len(weights) == trace.weights.shape[-1]
    for key, line in enumerate(weights):
        exact = trace.weights[query, key].item()
        assert line.endswith(f" = {figure(exact)}")
        filled = line.replace("Σ", figure(whole[-1]))
        assert sides(filled) == pytest.approx([exact] * len(sides(filled)), abs=5e-4)


@examples(60)
@given(asked(normalizer=(*NORMALIZERS, OwnNormalizer())))
def test_the_context_is_the_sum_that_is_written(told):
    trace, query, explanation = told
    context = trace.context[query]
    lines = explanation["context"].numbers
    *written, result = sides(lines[-1])
    if written:
        assert lines[-1].startswith("c₁ = ")
        assert written == pytest.approx([context[0].item()], abs=2e-3)
        assert result == pytest.approx(context[0].item(), abs=6e-5, rel=6e-5)
        vectors = [line.rpartition("[")[2] for line in lines if line.endswith("]")]
        assert vectors[-1] == ", ".join(map(figure, context.tolist())) + "]"


@examples(40)
@given(asked(normalizer=(gh.Softmax(),)))
def test_each_derivative_is_that_of_autograd(told):
    trace, query, explanation = told
    data = explanation["sharpness"].data
    if trace.masked.shape[-1] < 2:
        assert "jacobian" not in data
        return
    scores = trace.masked[query].detach()
    jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores)
    keys = data["jacobian_keys"]
    torch.testing.assert_close(data["jacobian"], jacobian[keys][:, keys])
    for line in explanation["sharpness"].numbers:
        written, result = sides(line)
        assert written == pytest.approx(result, abs=2e-4)


def test_of_long_sums_the_first_terms_are_written():
    trace = traced(dim=768, seed=3)
    line = gh.explain(trace, query=0)["scores"].numbers[0]
    assert line.count("·") == 3
    assert line.endswith(f"… (765 more) = {figure(trace.scores[0, 0].item())}")


def test_a_biased_score_is_the_sum_that_is_written():
    bias = torch.linspace(-1, 1, 25).reshape(5, 5).double()
    trace = traced(bias=bias, mask=gh.causal())
    lines = gh.explain(trace, query=2, tokens=LETTERS[:5])["masked"].numbers
    for key, line in enumerate(lines):
        exact = trace.masked[2, key].item()
        assert line.endswith(f" = {figure(exact)}")
        assert sides(line) == pytest.approx([exact] * len(sides(line)), abs=2e-4)
    assert [line.count("+") for line in lines] == [1, 1, 1, 0, 0]


def test_dropped_weights_are_told_as_they_fell():
    torch.manual_seed(1)
    trace = traced(dropout=0.5)
    step = gh.explain(trace, query=0, tokens=LETTERS[:5])["dropped"]
    dropped = trace.dropped[0].tolist()
    assert 0 < sum(weight == 0 for weight in dropped) < 5
    for line, weight in zip(step.numbers, dropped, strict=True):
        if weight == 0:
            assert line.endswith("→ 0")
        else:
            assert sides(line) == pytest.approx([weight] * 2, abs=2e-4)


def test_an_evaluated_attention_drops_nothing():
    attention = gh.Attention(dropout=0.5).eval()
    x = torch.rand(3, 2)
    explanation = gh.explain(attention.trace(x, x, x))
    with pytest.raises(KeyError, match="'dropped'"):
        explanation["dropped"]


def test_the_reader_of_sums_can_read():
    assert value("(-0.5)·2 + [1 - 3]²") == 3.0
    assert value("e^(1 - 1)") == 1.0
    assert sides("p(a) = 1 / 4 = 0.25   (hidden)") == [0.25, 0.25]


SEED = json.loads((Path(__file__).parents[1] / "data" / "seed_numbers.json").read_text("utf-8"))


def test_its_numbers_are_written_out():
    text = all_text(worked_example())
    for line in (
        "s(Hello) = 0.53·0.34 + 0.34·0.22 + 0.98·0.54 = 0.7842",
        "s(shiny) = 0.53·0.53 + 0.34·0.34 + 0.98·0.98 = 1.3569",
        "s(sun)   = 0.53·0.29 + 0.34·0.54 + 0.98·0.93 = 1.2487",
        "p(shiny) = e^1.3569 / Σ = 3.8841 / 9.5606 = 0.4063",
        "c(shiny) = 0.2291·[0.34, 0.22, 0.54]",
        "= [0.3990, 0.3854, 0.8610]",
        "∂p(shiny)/∂s(Hello) = 0.4063·(0 - 0.2291) = -0.0931",
    ):
        assert line in text


def test_its_data_are_those_of_the_texts():
    steps = {step["name"]: step["data"] for step in worked_example().to_dict()["steps"]}
    shiny = SEED["shiny_sun"]
    assert steps["scores"]["scores"][1] == pytest.approx(shiny["exact_scores"], abs=1e-6)
    assert steps["weights"]["weights"][1] == pytest.approx(shiny["exact_weights"], abs=1e-6)
    assert steps["context"]["context"][1] == pytest.approx(shiny["exact_context"], abs=1e-6)


def test_a_word_can_score_less_with_itself_than_with_a_longer_one():
    scores = worked_example(query="Hello")["scores"]
    with_itself, with_shiny, _ = scores.data["scores"][0].tolist()
    assert (figure(with_itself), figure(with_shiny)) == ("0.4556", "0.7842")
    assert scores.why.endswith("points exactly like the query can score less than a longer one.")


def test_the_example_of_growing_scores_is_called_by_its_text():
    assert "The same with the five scores of text E:" in all_text(worked_example())


def test_steps_that_do_nothing_are_left_out():
    names = [step.name for step in worked_example().steps]
    told = "opening inputs scores scaled weights context matrix sharpness"
    assert names == told.split()


def test_printed_numbers_stand_beside_the_exact_ones():
    text = all_text(worked_example(printed=HELLO_SHINY_SUN))
    assert "    p·v         Hello     shiny       sun     sum" in text
    assert "c₁  exact      0.0779    0.2153    0.1057  0.3990" in text
    assert "    published  0.0779  ≠ 0.2156    0.1057  0.3992" in text


def test_only_the_two_slips_are_called_slips():
    told = "".join(all_text(worked_example(printed=HELLO_SHINY_SUN)).split())
    assert "prints0.2156where0.2153isright" in told
    assert "prints0.1972where0.1969isright" in told
    assert told.count("isright,whichmakesthesum") == 2


def test_a_text_without_slips_is_praised():
    terms = tuple(
        tuple(round(w * v, 4) for w, v in zip((0.229134, 0.406265, 0.364602), column, strict=True))
        for column in zip(*HELLO_SHINY_SUN.embeddings, strict=True)
    )
    right = dataclasses.replace(
        HELLO_SHINY_SUN, printed_terms=terms, printed_context=(0.3990, 0.3854, 0.8610)
    )
    text = all_text(worked_example(printed=right))
    assert "agree with the exact ones" in text
    assert "≠ 0" not in text


def test_an_example_of_another_shape_is_refused():
    other = dataclasses.replace(HELLO_SHINY_SUN, printed_terms=((1.0, 2.0),))
    with pytest.raises(ValueError, match="an example of 3 numbers by 3 words.*got 1 by 2"):
        worked_example(printed=other)
    with pytest.raises(TypeError, match="must be a WorkedExample.*got str"):
        worked_example(printed="shiny")


class TestPrintedSteps:
    """What a text prints of the steps, beside the exact numbers of a small trace."""

    x = torch.tensor([[0.5, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)

    def told(self, **printed):
        example = WorkedExample(
            text="a b c", tokens=("a", "b", "c"), embeddings=(), query="b", **printed
        )
        trace = gh.Attention(score=gh.Dot()).trace(self.x, self.x, self.x)
        return gh.explain(trace, tokens=["a", "b", "c"], query="b", printed=example)

    def test_numbers_that_agree_to_the_last_digit_are_praised(self):
        # exp(0), e and e over 1 + 2e.
        text = all_text(
            self.told(printed_scores=(0, 1, 1), printed_weights=(0.1554, 0.4223, 0.4223))
        )
        assert text.count("The two agree, up to rounding") == 2
        assert re.search(r"weights_2 +a +b +c", text)
        assert re.search(r"as the text prints it +0\.1554 +0\.4223 +0\.4223", text)

    def test_a_number_that_is_off_in_its_last_digit_is_marked(self):
        text = all_text(self.told(printed_weights=(0.1554, 0.4224, 0.4223)))
        assert "≠ 0.4224" in text
        assert text.count("≠ 0.") == 1
        assert "The numbers marked ≠ differ from the exact ones." in text

    def test_queries_keys_values_and_context_have_rows_of_their_own(self):
        rows = ((0.5, 0.0), (0.0, 1.0), (1.0, 1.0))
        text = all_text(
            self.told(
                printed_query=(0.0, 1.0),
                printed_keys=rows,
                printed_values=rows,
                printed_context=(0.5, 0.8446),
            )
        )
        for row in ("query_2", "key_1", "key_3", "value_2", "context_2"):
            assert row in text
        assert "[0.5000, 0.8446]" in text

    @pytest.mark.parametrize(
        ("printed", "sentence"),
        [
            ({"printed_scores": (1.0, 2.0)}, "which has 3 numbers or rows in scores_2, got 2"),
            ({"printed_query": (1.0,)}, "which has 2 numbers or rows in query_2, got 1"),
            ({"printed_keys": ((1.0, 2.0),)}, "which has 3 numbers or rows in keys, got 1"),
        ],
    )
    def test_numbers_of_another_trace_are_refused(self, printed, sentence):
        with pytest.raises(ValueError, match=sentence):
            self.told(**printed)
