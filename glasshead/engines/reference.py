"""The engine protocol, and the reference engine, which is its specification."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.problem import Problem, Trace, sees_and_seen
from glasshead.recipe.tile import Span, Tile
from glasshead.recipe.validation import check_gives, without_autocast
from glasshead.statistics.reductions import Reduction, Rows


@dataclass(frozen=True)
class Cost:
    """Estimated cost of one forward pass.

    Attributes:
        flops: Floating-point operations of the two matrix products, a multiply-add counting two.
        bytes: Peak memory beyond the inputs, the context included.
    """

    flops: int
    bytes: int


class Price(NamedTuple):
    """Additional cost of observing.

    Attributes:
        plain: Operations of the plain call beside its products.
        flops: Operations of further products.
        sums: Operations of the reductions.
        bytes: Peak memory, but for the results.
        passes: The number of times the scores are computed in all.
    """

    plain: int
    flops: int
    sums: int
    bytes: int
    passes: int


# Cost of the softmax of a pair, in operations of a product: measured on a processor with AVX-512
# (benchmarks/observe.py). In full matrices it, and each reduction, costs a few memory accesses.
SOFTMAX, IN_FULL = 45, 100


class Observed(NamedTuple):
    """Context and the results of each requested reduction, `[*batch, heads, …]`."""

    context: Float[Tensor, "*batch heads queries value_dim"]
    reduced: list[tuple[Tensor, ...]]


@runtime_checkable
class Engine(Protocol):
    """Protocol of an engine. The reference engine defines what is right; the others agree."""

    name: str
    about: str

    def refusal(self, problem: Problem) -> str | None:
        """Return why this engine cannot compute the problem, or None if it can."""
        ...

    def cost(self, problem: Problem) -> Cost:
        """Estimate the cost from shapes and masks; the values of the inputs are not read."""
        ...

    def price(self, problem: Problem, cost: Cost, reductions: Sequence[Reduction]) -> Price:
        """Estimate what reductions cost in addition to a call of this cost."""
        ...

    def run(self, problem: Problem) -> Float[Tensor, "*batch heads queries value_dim"]:
        """Compute the context, differentiably."""
        ...

    def observe(
        self, problem: Problem, reductions: Sequence[Reduction], *, gradient: bool = True
    ) -> Observed:
        """Compute the context of `run`, bit for bit, and reductions of the undropped weights.

        Without `gradient` the reductions need none; the context has it always.
        """
        ...


class Reference:
    """Reference engine: every step in full, in float32 at least; any recipe, dtype and device."""

    name = "reference"
    about = "every step in full, queries × keys numbers at a time"

    def refusal(self, problem: Problem) -> str | None:
        """Return None: the reference computes every problem."""

    def cost(self, problem: Problem) -> Cost:
        """Estimate the cost: every step between scores and weights is in memory at once."""
        pairs = math.prod(problem.scores_shape)
        width, value_width = problem.query.shape[-1], problem.value.shape[-1]
        rows, keys = math.prod(problem.query.shape[:-1]), problem.key.shape[-2]
        steps = 3 + (problem.softcap is not None) + bool(problem.dropout)
        # Hidden pairs are masked twice: in the gradient, then in the scores.
        steps += 0 if problem.mask is None and not problem.biases else 2
        steps += bool(problem.biases)
        steps += problem.score.numbers_a_pair(width) + problem.normalizer.numbers_a_pair
        numbers = steps * pairs + rows * value_width
        if problem.group > 1 or problem.dtype != problem.query.dtype:
            numbers += math.prod(problem.query.shape[:-2]) * keys * (width + value_width)
        return Cost(2 * pairs * (width + value_width), numbers * problem.dtype.itemsize)

    def price(self, problem: Problem, cost: Cost, reductions: Sequence[Reduction]) -> Price:
        """Estimate what reductions cost: the whole matrix is there, and is read for each."""
        del cost
        whole = math.prod(problem.scores_shape)
        sums = IN_FULL * len(reductions) * whole
        return Price(2 * IN_FULL * whole, 0, sums, 2 * whole * problem.dtype.itemsize, 1)

    def run(self, problem: Problem) -> Float[Tensor, "*batch heads queries value_dim"]:
        """Compute the context, differentiably."""
        return self.trace(problem).context

    def observe(
        self, problem: Problem, reductions: Sequence[Reduction], *, gradient: bool = True
    ) -> Observed:
        """Compute the context, and each reduction of its weights, from a trace."""
        trace, visible = self._steps(problem, problem.tile())
        rows = Rows(problem, problem.tile(), trace.masked, trace.weights, visible)
        return Observed(trace.context, [reduction.of(rows) for reduction in reductions])

    def part(self, problem: Problem, tile: Tile) -> Rows:
        """Compute the weights of a tile's queries and keys alone, as rows to reduce."""
        queries, keys = tile.queries, tile.keys
        some = replace(
            problem,
            query=problem.query[..., queries.start : queries.stop, :],
            key=problem.key[..., keys.start : keys.stop, :],
            value=problem.key[..., keys.start : keys.stop, :0],
            dropout=0.0,
        )
        trace, visible = self._steps(some, tile)
        return Rows(problem, tile, trace.masked, trace.weights, visible)

    def trace(self, problem: Problem) -> Trace:
        """Compute every step, in the engine's own layout, `[*batch, heads, …]`."""
        return self._steps(problem, problem.tile())[0]

    def _steps(self, problem: Problem, tile: Tile) -> tuple[Trace, Tensor | None]:
        """Compute every step for a tile with all queries of the problem, and the visible pairs."""
        with without_autocast(problem.query.device):
            bias, visible = problem.bias_and_visible(problem.mask, tile)
            query, key, value = (x.to(problem.dtype) for x in as_computed(problem, visible))
            key, value = (x.repeat_interleave(problem.group, dim=-3) for x in (key, value))

            scores = problem.score(query, key)
            pairs = (*query.shape[:-1], key.shape[-2])
            check_gives(problem.score, scores, pairs, exactly=True)
            if visible is not None:
                # A hidden score stays in the trace as it is, and has no gradient.
                scores = torch.where(visible, scores, scores.detach())
            scale, softcap = problem.scale, problem.softcap
            if isinstance(scale, Tensor):
                scale = scale.to(scores)
            scaled = scores if isinstance(scale, float) and scale == 1.0 else scores * scale
            capped = scaled if softcap is None else softcap * torch.tanh(scaled / softcap)
            masked = capped if bias is None else capped + bias
            if visible is not None:
                masked = masked.masked_fill(~visible, -torch.inf)
            weights = problem.normalizer(masked, visible)
            check_gives(problem.normalizer, weights, pairs, exactly=True)
            dropped = F.dropout(weights, problem.dropout) if problem.dropout else weights
            context = (dropped @ value).to(problem.value.dtype)
        trace = Trace(
            problem.query,
            problem.key,
            problem.value,
            scores,
            scaled,
            capped,
            masked,
            weights,
            dropped,
            context,
            problem,
        )
        return trace, visible


def as_computed(problem: Problem, visible: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the inputs, with 0 for non-finite values that no visible pair reads."""
    if visible is None:
        return problem.query, problem.key, problem.value
    sees, seen = sees_and_seen(visible)
    return (
        torch.where(sees | problem.query.isfinite(), problem.query, 0.0),
        torch.where(seen | problem.key.isfinite(), problem.key, 0.0),
        torch.where(seen | problem.value.isfinite(), problem.value, 0.0),
    )


REFERENCE = Reference()


# How many numbers of one step are held at a time.
_NUMBERS = 2**22


def by_rows(problem: Problem, reductions: Sequence[Reduction]) -> list[tuple[Tensor, ...]]:
    """Compute each reduction over blocks of complete rows, `[*batch, heads, …]`."""
    if not reductions:
        return []
    queries = problem.scores_shape[-2]
    height = rows_at_once(problem)
    parts = []
    for first in range(0, max(queries, 1), height):
        span = Span(first, min(first + height, queries))
        rows = REFERENCE.part(problem, replace(problem.tile(), queries=span))
        parts.append([reduction.of(rows) for reduction in reductions])
    merged = []
    for reduction, *blocks in zip(reductions, *parts, strict=True):
        merged.append(tuple(_merged(reduction, part) for part in zip(*blocks, strict=True)))
    return merged


def rows_at_once(problem: Problem) -> int:
    """Return how many queries are processed at a time, so that their scores fit in memory."""
    *leading, queries, keys = problem.scores_shape
    pairs = 1
    for size in (*leading, keys):
        pairs *= max(size, 1)
    return max(1, min(queries, _NUMBERS // pairs))


def bytes_by_rows(problem: Problem) -> int:
    """Estimate the memory of the steps of complete rows, as many as are computed at a time."""
    *leading, _, keys = problem.scores_shape
    return rows_at_once(problem) * math.prod(leading) * keys * problem.dtype.itemsize * 6


def _merged(reduction: Reduction, parts: Sequence[Tensor]) -> Tensor:
    if reduction.query_axis is None:
        whole = torch.stack(tuple(parts))
        return whole.amax(0) if reduction.merged == "max" else whole.sum(0)
    return torch.cat(tuple(parts), reduction.query_axis)
