"""Keeping those that the last query looks at."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.layers.caching.policy import Policy
from glasshead.layers.caching.rows import last_rows
from glasshead.layers.eviction_scores import tova_scores
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import whole_number


@dataclass(frozen=True)
class TOVA(Policy):
    """Keeps the keys of the largest P_ij of the last query i, the mean over all heads of a layer.

    Args:
        budget: How many keys are held, of a row and a key head.

    Errors: a TypeError or ValueError where the budget is not a whole number of at least 1.

    Source: Oren et al. 2024 (Transformers are multi-state RNNs), section 3.3.

    >>> TOVA(budget=64).most
    64
    """

    budget: int

    def __post_init__(self) -> None:
        whole_number(self.budget, "TOVA(budget=…)", least=1)

    @property
    def most(self) -> int:
        return self.budget

    def votes(self, problem: Problem) -> Float[Tensor, "batch kv_heads 1 keys"]:
        (row,) = last_rows(problem, 1).unbind(-2)
        return tova_scores(row, problem.key.shape[-3])[..., None, :]

    def scores(
        self, votes: Tensor | None, seen: Bool[Tensor, "batch kv_heads keys"]
    ) -> Float[Tensor, "batch kv_heads keys"]:
        return seen.float() if votes is None else votes[..., 0, :]
