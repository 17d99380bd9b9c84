"""Answers: how far a model's logits are from what it was to tell."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

# Answers that do not count.
IGNORED = -100


def cross_entropy(
    logits: Float[Tensor, "*batch classes"],
    answers: Int[Tensor, "*batch"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """-Σ_i Σ_k q_ik ln softmax(logits_i)_k, with q_ik = (1 - ε) [k = answer_i] + ε / classes.

    Args:
        logits: Of each answer.
        answers: The right ones; `IGNORED` where there is none.
        smoothing: ε, which all answers are given alike, so that a model is never quite sure.

    Source: Szegedy et al. 2016 (Rethinking the inception architecture), section 7.

    >>> import torch
    >>> cross_entropy(torch.zeros(2, 3, 4), torch.tensor([[1, 3, 0], [2, -100, -100]]))
    tensor(5.5452)
    """
    return F.cross_entropy(
        logits.flatten(0, -2),
        answers.flatten(),
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=smoothing,
    )
