"""Reductions that engines compute from the weights in one pass: a closed set.

Each reduction says what it is on complete rows of weights; how the kernels stream it is a row of
the table in `engines/streaming/kernels/streamed.py`. A custom reduction is computed from complete
rows, a block of queries at a time. A `StatisticRequest` collects those that statistics share.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Tile
from glasshead.recipe.validation import check_gives, named


@dataclass(frozen=True, eq=False)
class Rows:
    """Complete rows of one attention: some queries, with all of the keys.

    Attributes:
        problem: The whole problem.
        tile: Which queries these are, and their positions among the keys.
        scores: Input of the normalizer; -inf where hidden.
        weights: Its output.
        visible: Which pairs are not hidden; None: all.
    """

    problem: Problem
    tile: Tile
    scores: Float[Tensor, "*batch heads queries keys"]
    weights: Float[Tensor, "*batch heads queries keys"]
    visible: Bool[Tensor, "*#batch #heads #queries #keys"] | None

    def empty(self) -> Bool[Tensor, "*batch heads queries"]:
        """Return which queries see no key."""
        shape = self.weights.shape
        if self.visible is None:
            return torch.full(shape[:-1], shape[-1] == 0, device=self.weights.device)
        return ~self.visible.expand(shape).any(-1)


class Reduction(ABC):
    """Base class of reductions of the weights P and the scores s.

    Attributes:
        query_axis: The axis of the results along which those of further queries follow; None if
            they are merged.
        merged: How: "sum" or "max".
    """

    query_axis: ClassVar[int | None] = -1
    merged: ClassVar[str] = "sum"

    def check(self, problem: Problem, owner: object) -> None:  # noqa: B027 - few have an operand
        """Raise a ValueError if an operand does not fit; it names the `owner`, a statistic."""

    def joined(self, other: "Reduction") -> "Reduction | None":
        """Return a reduction that gives what both give; None if there is none.

        Equality is by `==`, as tensors within a reduction cannot be hashed.
        """
        return self if self == other else None

    @abstractmethod
    def of(self, rows: Rows) -> tuple[Tensor, ...]:
        """Compute the results for these rows, `[*batch, heads, …]` each."""


class Reducing(ABC):
    """Interface of a statistic to a request: what it needs, and what it makes of that.

    Attributes:
        differentiable: Whether it can be observed with a gradient.
    """

    differentiable: ClassVar[bool]

    @abstractmethod
    def check(self, problem: Problem) -> None:
        """Raise a ValueError if it does not fit the problem."""

    @abstractmethod
    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        """Return the reductions that `finish` needs."""

    @abstractmethod
    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> Any:
        """Compute it from the results of each reduction."""


class StatisticRequest:
    """Requested statistics by name, and the reductions that they share."""

    def __init__(
        self, problem: Problem, statistics: Mapping[str, Reducing], *, gradient: bool = False
    ) -> None:
        self.problem, self.statistics, self.gradient = problem, statistics, gradient
        self._shared: list[Reduction] | None = None
        self._places: dict[str, list[int]] = {}

    def check(self) -> None:
        """Raise a ValueError if a statistic does not fit the problem, or has no gradient."""
        for one in self.statistics.values():
            one.check(self.problem)
            if self.gradient and not one.differentiable:
                raise ValueError(
                    "gradient=True needs statistics that have a gradient, such as Entropy(), got "
                    f"{one!r}."
                )

    @property
    def reductions(self) -> list[Reduction]:
        """Return the reductions that an engine is to compute, each once."""
        # Not a cached_property, whose lock torch.compile does not support.
        if self._shared is None:
            self._shared = self._share()
        return self._shared

    def _share(self) -> list[Reduction]:
        """Collect the distinct reductions, and record which of them each statistic uses."""
        reductions: list[Reduction] = []
        for name, one in self.statistics.items():
            self._places[name] = []
            for reduction in one.reductions(self.problem):
                reduction.check(self.problem, one)
                for at, known in enumerate(reductions):
                    both = known.joined(reduction)
                    if both is not None:
                        reductions[at] = both
                        break
                else:
                    at = len(reductions)
                    reductions.append(reduction)
                self._places[name].append(at)
        return reductions

    def finished(self, reduced: list[tuple[Tensor, ...]]) -> dict[str, Any]:
        """Finish each statistic by name, in the layout of the inputs."""
        if not self.gradient:
            reduced = [tuple(part.detach() for part in parts) for parts in reduced]
        problem = self.problem
        return {
            name: problem.as_given(one.finish(problem, *(reduced[i] for i in self._places[name])))
            for name, one in self.statistics.items()
        }


@dataclass(frozen=True)
class LogSum(Reduction):
    """Logsumexp: ln Σ_j exp s_ij, with the normalizer's sink; -inf where a query sees nothing."""

    def of(self, rows: Rows) -> tuple[Tensor]:
        empty = rows.empty()
        # The gradient of a logsumexp over nothing would be 0/0.
        lse = rows.problem.normalizer.logsumexp(rows.scores.masked_fill(empty[..., None], 0.0))
        return (lse.masked_fill(empty, -torch.inf),)


@dataclass(frozen=True)
class Largest(Reduction):
    """Largest weight of each query, its key (the first of equals), and the largest score.

    Where a query sees nothing they are 0, -1 and -inf.

    Args:
        keyed: Whether the key is read; if not, it may be -1.
    """

    keyed: bool = True

    def joined(self, other: "Reduction") -> "Reduction | None":
        """Return one of both, whose key is read if either's is."""
        return (
            replace(self, keyed=self.keyed or other.keyed) if isinstance(other, Largest) else None
        )

    def of(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        empty = rows.empty()
        if rows.weights.shape[-1] == 0:
            nothing = rows.weights.new_zeros(rows.weights.shape[:-1])
            return nothing, nothing.long() - 1, nothing - torch.inf
        weight = rows.weights.amax(-1)
        # Of weights that round to the same number, the largest score decides.
        best = rows.scores.masked_fill(rows.weights < weight[..., None], -torch.inf)
        key = best.argmax(-1).masked_fill(empty, -1)
        return weight, key, rows.scores.amax(-1)


@dataclass(frozen=True)
class EntropySum(Reduction):
    """Entropy: -Σ_j P_ij ln P_ij, in nats."""

    def of(self, rows: Rows) -> tuple[Tensor]:
        # entr(1) is 0 like entr(0), which would have an infinite gradient.
        weights = rows.weights.masked_fill(rows.weights == 0, 1.0)
        return (torch.special.entr(weights).sum(-1),)


@dataclass(frozen=True)
class ScoreSum(Reduction):
    """Weighted sum of scores: Σ_j P_ij s_ij, where a weight of 0 counts 0 whatever the score."""

    def of(self, rows: Rows) -> tuple[Tensor]:
        scores = rows.scores.masked_fill(rows.weights == 0, 0.0)
        return ((rows.weights * scores).sum(-1),)


@dataclass(frozen=True)
class DistanceSum(Reduction):
    """Weighted sum of distances: Σ_j P_ij · |i + offset - j|."""

    def of(self, rows: Rows) -> tuple[Tensor]:
        distance = rows.tile.distance().abs().to(rows.weights.dtype)
        return ((rows.weights * distance).sum(-1),)


@dataclass(frozen=True, eq=False)
class TimesKeys(Reduction):
    """Right product P·R: Σ_j P_ij R_jr.

    Attributes:
        per_key: R, `[*#batch, #heads, keys, r]` or `[keys, r]`.
    """

    per_key: Float[Tensor, "... keys r"]
    query_axis = -2

    def check(self, problem: Problem, owner: object) -> None:
        *leading, _, keys = problem.scores_shape
        _check_operand("per_key", self.per_key, (*leading, keys), owner)

    def of(self, rows: Rows) -> tuple[Tensor]:
        return (rows.weights @ self.per_key.to(rows.weights),)


@dataclass(frozen=True, eq=False)
class TimesQueries(Reduction):
    """Left product Pᵀ·L: Σ_i P_ij L_il.

    Attributes:
        per_query: L, `[*#batch, #heads, queries, l]` or `[queries, l]`.
    """

    per_query: Float[Tensor, "... queries l"]
    query_axis = None

    def check(self, problem: Problem, owner: object) -> None:
        *leading, queries, _ = problem.scores_shape
        _check_operand("per_query", self.per_query, (*leading, queries), owner)

    def of(self, rows: Rows) -> tuple[Tensor]:
        queries = rows.tile.queries
        left = self.per_query[..., queries.start : queries.stop, :].to(rows.weights)
        return (rows.weights.transpose(-1, -2) @ left,)


def _check_operand(name: str, operand: Tensor, wanted: tuple[int, ...], owner: object) -> None:
    """Check `[*#batch, #heads, length, n]`, which has a row for each query or key."""
    check_gives(owner, operand, (*wanted, *operand.shape[-1:]), what=name)
    if operand.ndim < 2 or operand.shape[-2] != wanted[-1]:
        raise ValueError(
            f"the {name} of {named(owner)} must have {wanted[-1]} rows, got {list(operand.shape)}."
        )


@dataclass(frozen=True)
class DiagonalSum(Reduction):
    """Sum of P_ij over each diagonal: index queries - 1 - i + j of `[queries + keys - 1]`."""

    query_axis = None

    def of(self, rows: Rows) -> tuple[Tensor]:
        queries, keys = rows.problem.scores_shape[-2:]
        device = rows.weights.device
        i = torch.arange(rows.tile.queries.start, rows.tile.queries.stop, device=device)
        place = queries - 1 - i[:, None] + torch.arange(keys, device=device)
        sums = rows.weights.new_zeros(*rows.weights.shape[:-2], max(queries + keys - 1, 0))
        flat = rows.weights.flatten(-2)
        return (sums.scatter_add(-1, place.flatten().expand_as(flat), flat),)


@dataclass(frozen=True)
class LargestWeights(Reduction):
    """The k largest weights of each query and their keys; of equals, the lower key first.

    A weight of 0 is not listed: missing entries are weight 0 and key -1.
    """

    k: int
    query_axis = -2

    def of(self, rows: Rows) -> tuple[Tensor, Tensor]:
        weights, keys = rows.weights.sort(dim=-1, descending=True, stable=True)
        weights, keys = weights[..., : self.k], keys[..., : self.k]
        missing = self.k - keys.shape[-1]
        weights = torch.nn.functional.pad(weights, (0, missing))
        keys = torch.nn.functional.pad(keys, (0, missing), value=-1)
        return weights, keys.masked_fill(weights == 0, -1)


@dataclass(frozen=True)
class BlockSum(Reduction):
    """Block map: sums over blocks of keys, means over blocks of queries; 0 of an empty block.

    Of n queries, row r of the map begins with query r · n // rows; of keys likewise.
    """

    rows: int
    columns: int
    query_axis = None

    def of(self, rows: Rows) -> tuple[Tensor]:
        queries, keys = rows.problem.scores_shape[-2:]
        taken = rows.tile.queries
        into_rows = membership(queries, self.rows, rows.weights)[:, taken.start : taken.stop]
        sizes = membership(queries, self.rows, rows.weights).sum(-1, keepdim=True).clamp(min=1)
        into_columns = membership(keys, self.columns, rows.weights)
        return ((into_rows / sizes) @ (rows.weights @ into_columns.T),)


def edges(length: int, parts: int) -> list[int]:
    """Return where each of `parts` blocks of a length begins, and the last one ends."""
    return [part * length // parts for part in range(parts + 1)]


def membership(length: int, parts: int, like: Tensor) -> Tensor:
    """Return 1 where a position belongs to a block, `[parts, length]`."""
    begins = torch.tensor(edges(length, parts), device=like.device)
    places = torch.arange(length, device=like.device)
    inside = (places >= begins[:-1, None]) & (places < begins[1:, None])
    return inside.to(like.dtype)
