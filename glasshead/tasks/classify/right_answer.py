"""Right answer: what a classifier is trained to give, and how often it does."""

from jaxtyping import Float
from torch import Tensor

from glasshead.models import Classifier
from glasshead.tasks.runs.answers import RightAnswers


class RightAnswer(RightAnswers[Classifier]):
    """-Σ ln p(answer | text), in nats; smoothed where it is trained.

    Args: as of `RightAnswers`.
    """

    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "batch answers"]:
        """Of the answers to each text."""
        return self.model(batch["tokens"], batch["lengths"])
