"""NaN is within no tolerance: it is reported if the inputs of a model lead to it, or refused."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.explanation.embeddings import Projection
from glasshead.watching.captured_call import CapturedCall, agrees, output_mismatch, within

WORDS = ["Hello", "shiny", "sun"]
X = torch.tensor([[0.34, 0.22, 0.54], [0.53, 0.34, 0.98], [0.29, 0.54, 0.93]])


class Written(nn.Module):
    """Scores of a text with itself, by a function of them and the text."""

    def __init__(self, attend):
        super().__init__()
        self.attend = attend

    def forward(self, x):
        return self.attend(x @ x.mT, x)


def times_infinity(scores, x):
    """A mask as tutorials write it, which is NaN where 0 is multiplied by infinity."""
    return torch.softmax(scores + torch.ones_like(scores).triu(1) * -math.inf, -1) @ x


def function(scores, x):
    mask = torch.ones_like(scores).triu(1) * -math.inf
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask, scale=1.0)


def without_keys(scores, x):
    hidden = torch.zeros_like(scores, dtype=torch.bool)
    hidden[1] = True
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ x


def filled(scores, x):
    return scores.softmax(-1).nan_to_num() @ x


def scores_mended(scores, x):
    """The scores are finite again when the product with the values runs."""
    scores[..., 0, 1] = math.nan
    weights = scores.softmax(-1)
    scores.nan_to_num_()
    return weights @ x


def watched(attend, x):
    model = Written(attend)
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        model(x)
    return seen[""]


@pytest.mark.parametrize("attend", [times_infinity, function])
def test_an_explanation_shows_the_nan_of_the_model_and_the_step_that_it_is_from(attend):
    model = Written(attend)
    told = gh.explain(model, X, tokens=WORDS)
    assert model(X).isnan().all()
    assert told["context"].data["context"].isnan().all()
    assert "NaN" in told["weights"].numbers[-1]
    assert told.notes[0] == (
        "The context of “Hello”, “shiny”, “sun” is NaN. The first step that holds NaN is "
        "`masked`. What is added to the scores holds NaN, as the product 0 · (−∞) does. Hide "
        "scores with masked_fill(mask, −∞)."
    )
    # The output is the context.
    assert len(told.notes) == 2


def test_a_query_without_keys_is_told_as_the_model_gives_it():
    told = gh.explain(Written(without_keys), X, tokens=WORDS)
    assert told.notes[0] == (
        "The context of “shiny” is NaN, because no key is visible: a softmax of −∞ alone is NaN. "
        "The weights are shown as 0."
    )
    assert told["context"].data["context"].isnan().any(-1).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("part", "step"), [("query", "queries"), ("key", "keys"), ("value", "values")]
)
def test_inputs_that_are_nan_are_the_first_step(part, step):
    given = {name: X.clone() for name in ("query", "key", "value")}
    given[part][1, 2] = math.nan
    told = gh.explain(gh.Attention().trace(*given.values()), tokens=WORDS)
    words = "“shiny”" if part == "query" else "“Hello”, “shiny”, “sun”"
    sentence = f"The context of {words} is NaN. The first step that holds NaN is `{step}`."
    assert told.notes == (sentence,)


def test_numbers_without_nan_have_no_note():
    assert not gh.explain(gh.Attention().trace(X, X, X), tokens=WORDS).notes


def test_a_projection_that_is_nan_is_refused_as_such():
    trace = gh.Attention().trace(X, X, X)
    matrix = torch.eye(3).masked_fill(torch.eye(3).bool(), math.nan)
    projection = Projection(inputs=X, W_query=matrix, W_key=matrix, W_value=matrix)
    with pytest.raises(ValueError, match="its W_query gives NaN or infinity"):
        gh.explain(trace, tokens=WORDS, projection=projection)


@pytest.mark.parametrize("attend", [times_infinity, function])
def test_statistics_of_nan_are_nan(attend):
    assert watched(attend, X).entropy.isnan().all()


def test_nan_that_the_inputs_do_not_lead_to_is_refused():
    with pytest.raises(RuntimeError, match=r"^watch cannot reproduce the output .* gave NaN\. "):
        watched(scores_mended, X)


def test_nan_that_is_filled_after_the_softmax_is_refused():
    x = X.clone()
    x[0, 0] = math.nan
    with pytest.raises(RuntimeError, match="weights that are NaN, and fills them with other num"):
        watched(filled, x)


def test_nan_of_one_head_is_that_of_all_that_are_mixed_of_it():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            parts = x.unflatten(-1, (3, 1)).transpose(0, 1)[None]
            return self.mix((parts @ parts.mT).softmax(-1)) @ parts

    model, x = Mixed(), X.clone()
    x[:, 1] = math.nan
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        assert model(x).isnan().all()
    assert seen[""].entropy.isnan().all(-1).tolist() == [[False, True, False]]


def test_a_trace_is_of_each_row_that_the_model_gives():
    def attend(scores, x):
        weights = scores.softmax(-1)
        # Neither the first nor the last row.
        scores[1] *= 2
        return weights @ x

    model = Written(attend)
    with (
        pytest.raises(ValueError, match="'' gave another output than its weights do with its va"),
        torch.no_grad(),
        gh.watch(model, keep="trace"),
    ):
        model(X)


def test_rows_without_keys_may_be_filled():
    def attend(scores, x):
        return without_keys(scores, torch.eye(3)).nan_to_num() @ x

    assert watched(attend, X).entropy[0, 0, 1] == 0


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 2.0])
def test_one_number_of_an_output_suffices(wrong):
    torch.manual_seed(2)
    query, key, value = (torch.randn(2, 3, 5, 7) for _ in range(3))
    problem = gh.Attention().problem(query, key, value)
    output = gh.Attention()(query, key, value)
    assert output_mismatch(CapturedCall(problem, output=output)) is None
    output[1, 2, 4, 6] = wrong
    assert output_mismatch(CapturedCall(problem, output=output)) == (
        "NaN" if math.isnan(wrong) else "another output"
    )
    assert not agrees(output, gh.Attention()(query, key, value))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_hidden_value_that_is_nan_may_be_multiplied_by_0(number):
    query, key, value = (torch.randn(2, 3, 5, 7) for _ in range(3))
    value[..., 4, :] = number
    problem = gh.Attention(mask=gh.causal()).problem(query, key, value)
    weights = gh.Attention(mask=gh.causal()).trace(query, key, value.nan_to_num()).weights
    assert output_mismatch(CapturedCall(problem, output=weights @ value)) is None


@pytest.mark.parametrize("limit", [math.nan, math.inf])
def test_a_limit_that_is_no_number_holds_for_nothing(limit):
    assert within(X, X + 0.1, 0.11)
    assert not within(X, X + 0.1, limit)
    assert not agrees(X, X.masked_fill(torch.eye(3).bool(), limit))


def test_heads_that_are_nan_are_no_heads_that_go_elsewhere():
    config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=1)
    model = gh.LanguageModel(config).eval()
    nn.init.constant_(next(model.parameters()), math.nan)
    with (
        pytest.raises(
            RuntimeError, match="but the heads of 'blocks.0.attention' hold NaN or infinity"
        ),
        gh.head_writes(model),
    ):
        model(torch.tensor([[3, 1, 4, 1, 5]]))
