"""A Markov chain: the smallest model that can be decoded, for examples."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Chain:
    """p(next token = j | last token = i) = probabilities[i][j]; nothing else is remembered.

    Args:
        probabilities: A row for each token, which sums to 1.

    >>> Chain([[0.2, 0.8], [0.5, 0.5]]).next(torch.tensor([[1, 0]])).exp()
    tensor([[0.2000, 0.8000]])
    """

    def __init__(self, probabilities: Sequence[Sequence[float]]) -> None:
        self.logits = torch.tensor(probabilities).log()

    def next(self, tokens: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        """Return the logits of the token after the last one of each row."""
        return self.logits[tokens[:, -1]]

    def reorder(self, rows: Int[Tensor, "rows"]) -> None:
        """Nothing to do."""
