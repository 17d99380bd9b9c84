"""Next token: what a translator is trained to tell, and how well it does."""

import math

from jaxtyping import Float
from torch import Tensor

from glasshead.models import Translator
from glasshead.tasks.runs.answers import RightAnswers


class NextTranslated(RightAnswers[Translator]):
    """-Σ_t ln p(y_t | y_0 … y_{t-1}, x), in nats; smoothed where it is trained.

    Args: as of `RightAnswers`.

    Source: Vaswani et al. 2017, section 5.4, for the smoothing.
    """

    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch length vocab"]:
        """Of the token after each of the translation."""
        return self.model(batch["source"], batch["lengths"], batch["target"])

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """The loss in nats a token, the perplexity, and the share of tokens that are likeliest."""
        known = super().metrics(sums)
        perplexity = math.exp(min(known["loss"], 700.0))
        return {"loss": known["loss"], "perplexity": perplexity, "accuracy": known["accuracy"]}
