"""Cross-entropy, and the share of right answers."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

# Answers that do not count.
IGNORED = -100

M = TypeVar("M", bound=nn.Module)


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


class CrossEntropyObjective(ABC, Generic[M]):
    """-Σ ln p(answer), in nats, over the `answers` of a batch; smoothed where it is trained.

    Args:
        model: What answers.
        smoothing: The share that all answers are given alike, in training alone.
    """

    monitor = "accuracy"
    higher_is_better = True

    def __init__(self, model: M, smoothing: float = 0.0) -> None:
        self.model = model
        self.smoothing = smoothing

    @abstractmethod
    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "*answers classes"]:
        """What the model makes of a batch."""

    def loss(self, batch: dict[str, Tensor]) -> Float[Tensor, ""]:
        """The sum over the answers, in nats."""
        return cross_entropy(self.logits(batch), batch["answers"], self.smoothing)

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The loss without smoothing, how many answers it is of, and how many were right."""
        logits, answers = self.logits(batch), batch["answers"]
        return {
            "loss": cross_entropy(logits, answers),
            "targets": torch.sum(answers != IGNORED),
            "right": torch.sum(logits.argmax(-1) == answers),
        }

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """The mean loss in nats, and the share of answers that are right."""
        return {
            "loss": sums["loss"] / sums["targets"],
            "accuracy": sums["right"] / sums["targets"],
        }
