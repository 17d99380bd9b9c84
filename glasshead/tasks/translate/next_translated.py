"""Next token: what a translator is trained to tell, and how well it does."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.models import Translator
from glasshead.tasks.runs.answers import IGNORED, cross_entropy


class NextTranslated:
    """-Σ_t ln p(y_t | y_0 … y_{t-1}, x), in nats; smoothed where it is trained.

    Args:
        model: What translates.
        smoothing: The share that all answers are given alike, in training alone.

    Source: Vaswani et al. 2017, section 5.4, for the smoothing.
    """

    monitor = "accuracy"
    higher_is_better = True

    def __init__(self, model: Translator, smoothing: float) -> None:
        self.model = model
        self.smoothing = smoothing

    def loss(self, batch: dict[str, Tensor]) -> Float[Tensor, ""]:
        """The sum over the answers, in nats."""
        return cross_entropy(self._logits(batch), batch["answers"], self.smoothing)

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The loss without smoothing, how many answers it is of, and how many were right."""
        logits, answers = self._logits(batch), batch["answers"]
        return {
            "loss": cross_entropy(logits, answers),
            "targets": torch.sum(answers != IGNORED),
            "right": torch.sum(logits.argmax(-1) == answers),
        }

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """The loss in nats a token, the perplexity, and the share of tokens that are likeliest."""
        loss = sums["loss"] / sums["targets"]
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "accuracy": sums["right"] / sums["targets"],
        }

    def _logits(self, batch: dict[str, Tensor]) -> Tensor:
        return self.model(batch["source"], batch["lengths"], batch["target"])
