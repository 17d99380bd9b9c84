"""Answers: the loss of logits, smoothed or not, by hand."""

import math

import pytest
import torch

from glasshead.tasks.training.task import IGNORED, cross_entropy

# Probabilities whose logarithms are plain.
SHARES = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.2, 0.3, 0.5]])
LOGITS, ANSWERS = SHARES.log() + 1.7, torch.tensor([0, 2, IGNORED])


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_every_answer_is_given_its_share(smoothing):
    own, wrong = 1 - smoothing + smoothing / 3, smoothing / 3
    expected = (
        *(own * math.log(0.5), wrong * math.log(0.25), wrong * math.log(0.25)),
        *(wrong * math.log(0.125), wrong * math.log(0.75), own * math.log(0.125)),
    )
    found = cross_entropy(LOGITS, ANSWERS, smoothing)
    assert found.item() == pytest.approx(-sum(expected), rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_gradient_is_what_was_given_less_what_was_wanted(smoothing):
    logits = LOGITS.clone().requires_grad_()
    cross_entropy(logits, ANSWERS, smoothing).backward()
    wanted = torch.tensor([[1.0, 0, 0], [0, 0, 1]]) * (1 - smoothing) + smoothing / 3
    torch.testing.assert_close(logits.grad[:2], SHARES[:2] - wanted)
    assert not logits.grad[2].any()


def test_sums_over_all_axes_but_the_last():
    whole = cross_entropy(LOGITS[None].expand(2, 3, 3), ANSWERS.expand(2, 3), 0.1)
    assert whole.item() == pytest.approx(2 * cross_entropy(LOGITS, ANSWERS, 0.1).item())


def test_nothing_to_answer_is_no_loss():
    assert cross_entropy(LOGITS, torch.full((3,), IGNORED), 0.1) == 0
