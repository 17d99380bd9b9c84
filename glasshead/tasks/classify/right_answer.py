"""Right answer: what a classifier is trained to give, and how often it does."""

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.models import Classifier
from glasshead.tasks.runs.answers import cross_entropy


class RightAnswer:
    """-Σ ln p(answer | text), in nats; smoothed where it is trained.

    Args:
        model: What answers.
        smoothing: The share that all answers are given alike, in training alone.
    """

    monitor = "accuracy"
    higher_is_better = True

    def __init__(self, model: Classifier, smoothing: float = 0.0) -> None:
        self.model = model
        self.smoothing = smoothing

    def loss(self, batch: dict[str, Tensor]) -> Float[Tensor, ""]:
        """The sum over the texts, in nats."""
        return cross_entropy(self._logits(batch), batch["answers"], self.smoothing)

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The loss without smoothing, how many texts it is of, and how many were right."""
        logits, answers = self._logits(batch), batch["answers"]
        return {
            "loss": cross_entropy(logits, answers),
            "targets": torch.tensor(len(answers)),
            "right": torch.sum(logits.argmax(-1) == answers),
        }

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """The loss in nats a text, and the share of texts with the right answer."""
        return {
            "loss": sums["loss"] / sums["targets"],
            "accuracy": sums["right"] / sums["targets"],
        }

    def _logits(self, batch: dict[str, Tensor]) -> Tensor:
        return self.model(batch["tokens"], batch["lengths"])
