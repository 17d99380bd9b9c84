"""Each fault in the numbers of a mask is found."""

import pytest
import torch

import glasshead as gh
from diagnosis.planted import CAUSAL, additive, found, kinds


def test_nan_is_counted_and_named():
    finding = found(torch.ones(3, 3).triu(1) * -torch.inf, "nan")
    assert "6 cells of the mask have NaN" in finding.sentence
    assert finding.where == ((0, 0), (1, 0), (1, 1), (2, 0))
    assert gh.diagnose(torch.full((3, 3), torch.nan)).mask is None


def test_positive_infinity_is_found():
    assert found(additive(CAUSAL).masked_fill(CAUSAL.tril(-2), torch.inf), "infinity").where[0] == (
        2,
        0,
    )


@pytest.mark.parametrize("low", [-1e4, -1e9, -65504.0])
def test_finite_numbers_hide_only_almost(low):
    finding = found(additive(CAUSAL, low), "almost-hidden")
    assert (finding.severity, finding.where) == ("warning", ((0, 1),))
    assert ("float16" in finding.sentence) == (low == -65504.0)
    assert gh.diagnose(additive(CAUSAL, low)).conversion == "mask = gh.causal()"


@pytest.mark.parametrize(
    ("dtype", "other"), [(torch.float64, torch.float32), (torch.float32, torch.bfloat16)]
)
def test_the_lowest_number_of_another_dtype_is_found(dtype, other):
    finding = found(additive(CAUSAL, torch.finfo(other).min, dtype), "other-lowest")
    assert str(other).removeprefix("torch.") in finding.sentence
    assert gh.diagnose(additive(CAUSAL, torch.finfo(dtype).min, dtype)).healthy
    # Nobody chose the type of a list.
    assert gh.diagnose(additive(CAUSAL, torch.finfo(other).min, dtype).tolist()).healthy


def test_floats_to_multiply_by_are_found():
    finding = found(CAUSAL.float(), "multiplicative")
    assert finding.severity == "error"
    diagnosis = gh.diagnose(CAUSAL.float())
    assert (diagnosis.convention, diagnosis.conversion) == ("multiplicative", "mask = gh.causal()")
    assert "multiplicative" in kinds(torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]))


def test_zero_and_minus_one_are_found():
    assert found(CAUSAL.float() - 1, "unscaled").severity == "error"


def test_whole_numbers_and_bytes_are_found():
    assert "int64" in found(CAUSAL.long(), "integers").sentence
    assert ".bool()" in found(CAUSAL.to(torch.uint8), "bytes").sentence
    assert found(CAUSAL.long() * 10_000 - 10_000, "integers").severity == "error"
    assert "gh.documents" in found(torch.tensor([[1, 1, 2, 2, 3]]), "values").sentence


@pytest.mark.parametrize("low", [-1e4, torch.finfo(torch.float32).min])
def test_masks_that_were_added_to_each_other_are_found(low):
    padded = additive(torch.tensor([True] * 5 + [False] * 2), low)
    finding = found(additive(CAUSAL, low) + padded, "doubled")
    assert finding.where[0] == (0, 5)
