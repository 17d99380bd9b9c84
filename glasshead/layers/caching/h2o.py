"""Keeping those that were looked at most."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.engines import reductions_of
from glasshead.layers.caching.policy import Policy, widened
from glasshead.layers.eviction_scores import h2o_scores
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import whole_number
from glasshead.statistics import Received


@dataclass(frozen=True)
class H2O(Policy):
    """Keeps the heavy hitters, of the largest Σ_i P_ij over all queries so far, and the latest.

    Half of the budget, rounded up, is for the latest keys.

    Args:
        budget: How many keys are held, of a row and a key head.

    Errors: a TypeError or ValueError where the budget is not a whole number of at least 1.

    Source: Zhang et al. 2023 (H2O), section 4, algorithm 1; the halves: section 5.

    >>> H2O(budget=64).most
    64
    """

    budget: int

    def __post_init__(self) -> None:
        whole_number(self.budget, "H2O(budget=…)", least=1)

    @property
    def most(self) -> int:
        return self.budget

    def votes(self, problem: Problem) -> Float[Tensor, "batch kv_heads 1 keys"]:
        received = Received()
        reduced = reductions_of(problem, received.reductions(problem))
        mass = received.finish(problem, *reduced)
        return h2o_scores(mass, problem.key.shape[-3])[..., None, :]

    def joined(self, before: Tensor, new: Tensor) -> Tensor:
        return widened(before, new.shape[-1]) + new

    def scores(
        self, votes: Tensor | None, seen: Bool[Tensor, "batch kv_heads keys"]
    ) -> Float[Tensor, "batch kv_heads keys"]:
        scores = torch.zeros(seen.shape, device=seen.device)
        if votes is not None:
            scores = votes[..., 0, :].clone()
        scores[..., -((self.budget + 1) // 2) :] = torch.inf
        return scores
