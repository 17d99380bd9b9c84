"""Keeping those that the last few queries look at."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.layers.caching.policy import Policy, widened
from glasshead.layers.caching.rows import last_rows
from glasshead.layers.eviction_scores import snapkv_scores
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import whole_number


@dataclass(frozen=True)
class SnapKV(Policy):
    """Keeps the keys of the largest pool_j Σ_{i in window} P_ij, and those of the window itself.

    The window is the last queries, of a prompt or of what was generated since: where the paper
    compresses the prompt alone, here the cache is held to its budget from then on, by the window
    that moves on.

    Args:
        budget: How many keys are held, of a row and a key head, the window's among them.
        window: How many of the last queries vote.
        kernel: The mean of how many neighbours a key is given, an odd number; 1: its own.

    Errors: a TypeError or ValueError where these are not whole numbers of at least 1, the window is
    not smaller than the budget, or the kernel is even.

    Source: Li et al. 2024 (SnapKV), section 4 and listing 1; the kernel is that of their code.

    >>> SnapKV(budget=64, window=16).most
    64
    """

    budget: int
    window: int = 16
    kernel: int = 5

    def __post_init__(self) -> None:
        for name in ("budget", "window", "kernel"):
            whole_number(getattr(self, name), f"SnapKV({name}=…)", least=1)
        if self.window >= self.budget:
            raise ValueError(
                f"SnapKV takes a window smaller than its budget, and got window={self.window} of "
                f"budget={self.budget}: the window's keys are a part of the budget."
            )
        if self.kernel % 2 == 0:
            raise ValueError(
                f"SnapKV(kernel=…) takes an odd number of keys, and got {self.kernel}."
            )

    @property
    def most(self) -> int:
        return self.budget

    def votes(self, problem: Problem) -> Float[Tensor, "batch kv_heads rows keys"]:
        # Pooling and sums are linear: the mean over a group may go first.
        rows = last_rows(problem, self.window)
        return rows.unflatten(1, (problem.key.shape[-3], -1)).mean(2)

    def joined(self, before: Tensor, new: Tensor) -> Tensor:
        return torch.cat([widened(before, new.shape[-1]), new], -2)[..., -self.window :, :]

    def scores(
        self, votes: Tensor | None, seen: Bool[Tensor, "batch kv_heads keys"]
    ) -> Float[Tensor, "batch kv_heads keys"]:
        received = seen.float() if votes is None else votes.sum(-2)
        kv_heads = received.shape[-2]
        return snapkv_scores(received, kv_heads, window=self.window, kernel=self.kernel)
