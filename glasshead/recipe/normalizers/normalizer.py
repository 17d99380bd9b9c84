"""What every normalizer is: how the scores of a query become weights."""

from abc import abstractmethod
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn


class Normalizer(nn.Module):
    """Turns the scores of each query into weights; hidden pairs get 0, empty rows only zeros.

    A subclass writes `normalize`; what is hidden is dealt with here, once for all.

    Attributes:
        formula: The weight of a key as text.
        numbers_a_pair: How many numbers are kept for each pair at once, the scores and the weights
            aside.
    """

    formula: str
    numbers_a_pair: ClassVar[int] = 0

    def forward(
        self,
        scores: Float[Tensor, "*leading queries keys"],
        visible: Bool[Tensor, "*#leading #queries #keys"] | None = None,
    ) -> Float[Tensor, "*leading queries keys"]:
        """The weights for scores that are -inf where they are not visible.

        A row of which nothing is visible would be 0/0 in most formulas, so it is normalised as if
        all of it were 0 and then cleared; its gradient is 0 for the same reason.
        """
        if scores.shape[-1] == 0:
            return scores
        if visible is None:
            return self.normalize(scores)
        empty = ~visible.any(-1, keepdim=True)
        return self.normalize(scores.masked_fill(empty, 0.0)).masked_fill(~visible, 0.0)

    @abstractmethod
    def normalize(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries keys"]:
        """The weights for rows that each have a score above -inf."""

    def logsumexp(
        self, scores: Float[Tensor, "*leading queries keys"]
    ) -> Float[Tensor, "*leading queries"]:
        """ln of what every exp s_j is divided by, where the weights are exponentials.

        Errors: a ValueError where this normalizer has none.
        """
        del scores
        raise ValueError(
            f"a logsumexp takes a normalizer of exponentials, Softmax() or SoftmaxOne(), and got "
            f"{type(self).__name__}."
        )

    def check(self, heads: int) -> None:
        """Raise a ValueError where this normalizer cannot serve `heads` heads."""
