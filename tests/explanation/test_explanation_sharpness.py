"""Why scores are scaled: derivatives that die."""

import json
from pathlib import Path

import pytest
import torch
from explanation_told import traced, worked_example

import glasshead as gh
from glasshead.explanation.steps.sharpness import derivative, largest_derivative

SEED = json.loads((Path(__file__).parents[1] / "data" / "seed_numbers.json").read_text("utf-8"))


def test_the_texts_sharpness_comes_out():
    texts = SEED["scaled_dot_product_article"]["softmax_sharpness"]
    data = worked_example()["sharpness"].to_dict()["data"]
    assert data["example_scores"] == texts["x"]
    for row, times in zip(data["example_weights"], data["factors"], strict=True):
        assert row == pytest.approx(texts[f"times_{times}"], rel=5e-4)


def test_own_scores_are_multiplied():
    trace = traced()
    data = gh.explain(trace, query=2)["sharpness"].data
    for times, row, largest in zip(
        (1, 10, 100), data["weights"], data["largest_derivatives"], strict=True
    ):
        scores = trace.masked[2] * times
        torch.testing.assert_close(row, scores.softmax(-1))
        jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores)
        assert largest == pytest.approx(jacobian.abs().max().item(), rel=1e-6, abs=1e-15)


def test_derivatives_die_as_scores_grow():
    small, middle, large = worked_example()["sharpness"].data["largest_derivatives"]
    assert small > middle > large > 0


def test_hidden_keys_take_no_part():
    data = gh.explain(traced(mask=gh.causal()), query=2)["sharpness"].data
    assert data["jacobian_keys"] == [0, 1, 2]
    assert data["weights"].shape == (3, 3)


def test_the_derivative_keeps_its_digits_where_a_weight_is_nearly_one():
    weights = torch.tensor([1.0, 1e-30], dtype=torch.float64)
    assert derivative(weights, [0, 1]).tolist() == [[1e-30, -1e-30], [-1e-30, 1e-30]]
    assert largest_derivative(weights) == 1e-30


@pytest.mark.parametrize("normalizer", [gh.SoftmaxOne(), gh.Sigmoid(), gh.HardMax()], ids=repr)
def test_other_normalizers_are_not_explained_by_the_softmax(normalizer):
    step = gh.explain(traced(normalizer=normalizer))["sharpness"]
    assert type(normalizer).__name__ in step.intro[0]
    assert (step.formula, step.numbers, step.figures) == ("", (), ())
