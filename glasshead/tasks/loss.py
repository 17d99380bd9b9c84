"""Cross-entropy and accuracy."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

# Target index that is ignored in the loss.
IGNORED = -100

M = TypeVar("M", bound=nn.Module)


def cross_entropy(
    logits: Float[Tensor, "*batch classes"],
    answers: Int[Tensor, "*batch"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Cross-entropy, summed: -Σ_i Σ_k q_ik ln softmax(logits_i)_k, with label smoothing.

    The smoothed targets are q_ik = (1 - ε) [k = answer_i] + ε / classes.

    Args:
        logits: Unnormalized scores of the classes.
        answers: Target classes; `IGNORED` where there is none.
        smoothing: Label smoothing ε.

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
    """Cross-entropy over the `answers` of a batch, -Σ ln p(answer), in nats.

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
        """Return the model's logits for a batch."""

    def loss(self, batch: dict[str, Tensor]) -> Float[Tensor, ""]:
        """Return the loss, summed over the answers, in nats, with label smoothing."""
        return cross_entropy(self.logits(batch), batch["answers"], self.smoothing)

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums `loss`, without smoothing, `targets` and `right` of a batch."""
        logits, answers = self.logits(batch), batch["answers"]
        return {
            "loss": cross_entropy(logits, answers),
            "targets": torch.sum(answers != IGNORED),
            "right": torch.sum(logits.argmax(-1) == answers),
        }

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """Return the mean loss in nats, and the accuracy."""
        return {
            "loss": sums["loss"] / sums["targets"],
            "accuracy": sums["right"] / sums["targets"],
        }
