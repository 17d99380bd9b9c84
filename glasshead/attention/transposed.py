"""The lazy matrix of weights, transposed."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention.products import factor_of

if TYPE_CHECKING:
    from glasshead.attention.weights import Weights


class Transposed:
    """Pᵀ of a `Weights`: what keys receive from queries."""

    def __init__(self, weights: "Weights") -> None:
        self._weights = weights

    @property
    def shape(self) -> torch.Size:
        """`[..., keys, queries]`."""
        *leading, queries, keys = self._weights.shape
        return torch.Size([*leading, keys, queries])

    @property
    def T(self) -> "Weights":  # noqa: N802 - as a tensor's
        """P itself."""
        return self._weights

    @torch.no_grad()
    def __matmul__(self, left: Tensor) -> Float[Tensor, "... keys n"]:
        """Pᵀ·L for L `[..., queries, n]`, without P.

        Errors: a TypeError or ValueError where L is not a tensor of that shape.
        """
        problem = self._weights._problem
        per_query = factor_of(problem, left, self.shape, "W.T @ L")
        return self._weights._times_queries(per_query)

    def __repr__(self) -> str:
        return f"{self._weights!r}, transposed"
