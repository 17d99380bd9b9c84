"""Eviction policies of the key/value cache: which keys it keeps."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.engines import REFERENCE, reduce_by_fastest
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Span
from glasshead.recipe.validation import whole_number
from glasshead.statistics import Received
from glasshead.statistics.eviction_scores import h2o_scores, snapkv_scores, tova_scores


def last_rows(problem: Problem, count: int) -> Float[Tensor, "batch heads rows keys"]:
    """Compute the weights of the last `count` queries alone, or of all where they are fewer."""
    queries = problem.scores_shape[-2]
    span = Span(max(0, queries - count), queries)
    return REFERENCE.part(problem, replace(problem.tile(), queries=span)).weights


class Policy(ABC):
    """Base class of eviction policies: which keys a cache keeps, per layer, row and key head.

    A policy is a frozen value. Its state, the votes so far, is held by the cache: rows of numbers,
    one per key, that are evicted and reordered with the keys.

    Attributes:
        budget: The most keys held, per row and key head.
    """

    budget: int

    @property
    def most(self) -> int:
        """Return the most keys held after a call, per row and key head."""
        return self.budget

    def votes(self, problem: Problem) -> Float[Tensor, "batch kv_heads votes keys"] | None:
        """Compute the votes of a call's queries on the keys, or None if none are needed."""
        return None

    def joined(
        self,
        before: Float[Tensor, "batch kv_heads votes keys"],
        new: Float[Tensor, "batch kv_heads votes keys"],
    ) -> Float[Tensor, "batch kv_heads votes keys"]:
        """Combine the votes of earlier calls with new ones; by default keep the new ones alone."""
        return new

    @abstractmethod
    def scores(
        self,
        votes: Float[Tensor, "batch kv_heads votes keys"] | None,
        seen: Bool[Tensor, "batch kv_heads keys"],
    ) -> Float[Tensor, "batch kv_heads keys"]:
        """Score each key; inf means that it stays, whatever the others score.

        Args:
            votes: The votes on the keys, in the order of the text.
            seen: Which keys later queries can see; padding is worth nothing.
        """


def widened(votes: Float[Tensor, "*batch keys"], keys: int) -> Float[Tensor, "*batch more"]:
    """Pad votes with zeros for new keys."""
    return F.pad(votes, (0, keys - votes.shape[-1]))


@dataclass(frozen=True)
class Sinks(Policy):
    """StreamingLLM eviction: keep the first keys (attention sinks) and the latest.

    It looks at no weight. Keys keep the positions that they have in the text; the paper renumbers
    them within the cache, so that they never exceed the positions that the model was trained on.

    Args:
        first: The number of first keys kept, per row.
        window: The number of latest keys kept.

    Errors: a TypeError or ValueError if these are not whole numbers, of at least 0 and 1.

    Source: Xiao et al. 2024 (StreamingLLM), section 3.2.

    >>> Sinks(first=4, window=60).most
    64
    """

    first: int = 4
    window: int = 60

    def __post_init__(self) -> None:
        whole_number(self.first, "Sinks(first=…)")
        whole_number(self.window, "Sinks(window=…)", least=1)

    @property
    def most(self) -> int:
        return self.first + self.window

    def scores(
        self, votes: Tensor | None, seen: Bool[Tensor, "batch kv_heads keys"]
    ) -> Float[Tensor, "batch kv_heads keys"]:
        # A row's first key is the first that is not padding.
        stays = seen & (seen.cumsum(-1) <= self.first)
        stays[..., -self.window :] = True
        return torch.where(stays, torch.inf, 0.0)


@dataclass(frozen=True)
class H2O(Policy):
    """H2O eviction: keep the heavy hitters, of the largest Σ_i P_ij, and the latest keys.

    Half of the budget, rounded up, is for the latest keys.

    Args:
        budget: The most keys held, per row and key head.

    Errors: a TypeError or ValueError if the budget is not a whole number of at least 1.

    Source: Zhang et al. 2023 (H2O), section 4, algorithm 1; the halves: section 5.

    >>> H2O(budget=64).most
    64
    """

    budget: int

    def __post_init__(self) -> None:
        whole_number(self.budget, "H2O(budget=…)", least=1)

    def votes(self, problem: Problem) -> Float[Tensor, "batch kv_heads 1 keys"]:
        received = Received()
        reduced = reduce_by_fastest(problem, received.reductions(problem))
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


@dataclass(frozen=True)
class SnapKV(Policy):
    """SnapKV eviction: keep the keys of the largest pool_j Σ_{i in window} P_ij, and the window.

    The window is the last queries, of a prompt or of what was generated since: the paper compresses
    the prompt alone; here the cache is held to its budget from then on, by the window that moves
    on.

    Args:
        budget: The most keys held, per row and key head, the window included.
        window: The number of last queries that vote.
        kernel: The pooling width, an odd number; 1: no pooling.

    Errors: a TypeError or ValueError if these are not whole numbers of at least 1, the window is
    not smaller than the budget, or the kernel is even.

    Source: Li et al. 2024 (SnapKV), section 4 and listing 1; the kernel is taken from their code.

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
                "the window of SnapKV must be smaller than its budget, which includes it, got "
                f"window={self.window} of budget={self.budget}."
            )
        if self.kernel % 2 == 0:
            raise ValueError(f"SnapKV(kernel=…) must be an odd number of keys, got {self.kernel}.")

    def votes(self, problem: Problem) -> Float[Tensor, "batch kv_heads rows keys"]:
        # Pooling and sums are linear: the mean over a group may come first.
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


@dataclass(frozen=True)
class TOVA(Policy):
    """TOVA eviction: keep the keys of the largest P_ij of the last query i, over all heads.

    Args:
        budget: The most keys held, per row and key head.

    Errors: a TypeError or ValueError if the budget is not a whole number of at least 1.

    Source: Oren et al. 2024 (Transformers are multi-state RNNs), section 3.3.

    >>> TOVA(budget=64).most
    64
    """

    budget: int

    def __post_init__(self) -> None:
        whole_number(self.budget, "TOVA(budget=…)", least=1)

    def votes(self, problem: Problem) -> Float[Tensor, "batch kv_heads 1 keys"]:
        (row,) = last_rows(problem, 1).unbind(-2)
        return tova_scores(row, problem.key.shape[-3])[..., None, :]

    def scores(
        self, votes: Tensor | None, seen: Bool[Tensor, "batch kv_heads keys"]
    ) -> Float[Tensor, "batch kv_heads keys"]:
        return seen.float() if votes is None else votes[..., 0, :]
