"""Next token: what a language model is trained to tell, and how well it does."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.models import LanguageModel
from glasshead.tasks.runs.answers import IGNORED, cross_entropy


class NextToken:
    """-Σ_t ln p(token_{t+1} | token_0 … token_t), in nats.

    Args:
        model: What tells.
        characters: How many characters the held-out targets have, by which its bits are told.
        smoothing: The share that all tokens are given alike, in training alone.
    """

    monitor = "loss"
    higher_is_better = False

    def __init__(self, model: LanguageModel, characters: int, smoothing: float = 0.0) -> None:
        self.model = model
        self.characters = characters
        self.smoothing = smoothing

    def loss(self, batch: dict[str, Tensor]) -> Float[Tensor, ""]:
        """The sum over the targets, in nats."""
        return self._loss(batch, self.smoothing)

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The loss, and how many targets it is of."""
        return {"loss": self._loss(batch, 0.0), "targets": torch.sum(batch["targets"] != IGNORED)}

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """The loss in nats a token, the perplexity, and bits a character."""
        loss = sums["loss"] / sums["targets"]
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bits_per_character": sums["loss"] / math.log(2) / max(1, self.characters),
        }

    def _loss(self, batch: dict[str, Tensor], smoothing: float) -> Tensor:
        return cross_entropy(self.model(batch["tokens"]), batch["targets"], smoothing)
