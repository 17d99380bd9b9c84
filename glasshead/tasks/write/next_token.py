"""Next token: what a language model is trained to tell, and how well it does."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.models import LanguageModel
from glasshead.tasks.write.windows import IGNORED


class NextToken:
    """-Σ_t ln p(token_{t+1} | token_0 … token_t), in nats.

    Args:
        model: What tells.
        characters: How many characters the held-out targets have, by which its bits are told.
    """

    monitor = "loss"
    higher_is_better = False

    def __init__(self, model: LanguageModel, characters: int) -> None:
        self.model = model
        self.characters = characters

    def loss(self, batch: dict[str, Tensor]) -> Float[Tensor, ""]:
        """The sum over the targets, in nats."""
        logits = self.model(batch["tokens"])
        return F.cross_entropy(
            logits.flatten(0, 1),
            batch["targets"].flatten(),
            ignore_index=IGNORED,
            reduction="sum",
        )

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The loss, and how many targets it is of."""
        return {"loss": self.loss(batch), "targets": torch.sum(batch["targets"] != IGNORED)}

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """The loss in nats a token, the perplexity, and bits a character."""
        loss = sums["loss"] / sums["targets"]
        return {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bits_per_character": sums["loss"] / math.log(2) / max(1, self.characters),
        }
