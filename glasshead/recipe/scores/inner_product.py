"""Scores that are an inner product of features, which is what fused kernels compute."""

from abc import abstractmethod
from typing import final

from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.scores.score import Score


class InnerProduct(Score):
    """score(q, k) = f(q) · g(k), with features f and g as wide as the vectors themselves."""

    @final
    def forward(
        self,
        query: Float[Tensor, "*leading queries dim"],
        key: Float[Tensor, "*leading keys dim"],
    ) -> Float[Tensor, "*leading queries keys"]:
        query, key = self.features(query, key)
        return query @ key.transpose(-1, -2)

    @abstractmethod
    def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """f(query) and g(key), in the inputs' shapes."""
