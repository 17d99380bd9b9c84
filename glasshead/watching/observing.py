"""Observe a call: compute its statistics, the fourth of the stages of a call."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.engines import reduce_by_fastest
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import UnfitError, is_transformed
from glasshead.statistics import Statistic
from glasshead.statistics.reductions import StatisticRequest
from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.one_pass import OnePass
from glasshead.watching.padding import PaddingFinder, of_real, without_padding
from glasshead.watching.placing import PlacedCall
from glasshead.watching.recorded_call import names_keys
from glasshead.watching.sharding import Shard
from glasshead.watching.single_query import QueryBatch, RowRule, single_query


class ObservedCall(NamedTuple):
    """The statistics of an observed call, and the axes that they share.

    Attributes:
        shape: The axes of its statistics before those of their own, `[batch, heads, queries]`.
        values: Its statistics by name; those of a single query are put there later.
        real: Which queries are no padding, `[batch, queries]`; None: all.
        heads: The numbers of its heads, where only some were requested or are of this rank.
        untold: Why some of the statistics have no value, a clause; None: all have one.
        rule: What makes the row of a single query, where its statistics wait; else None.
    """

    shape: tuple[int, ...]
    values: dict[str, Any]
    real: Bool[Tensor, "batch queries"] | None
    heads: tuple[int, ...] | None
    untold: str | None
    rule: RowRule | None


class Observer:
    """Observer of placed calls.

    Args:
        statistics: Statistics by name.
        heads: Head indices; None: all.
        padding: Finds the queries that are padding.

    Attributes:
        padding: The same.
        singles: The single queries of the current pass whose statistics wait for one another.
    """

    def __init__(
        self,
        statistics: dict[str, Statistic],
        heads: tuple[int, ...] | None,
        padding: PaddingFinder,
    ) -> None:
        self._statistics, self._heads, self.padding = statistics, heads, padding
        self.singles = QueryBatch(statistics)

    def observe(self, placed: PlacedCall, *, first: bool) -> ObservedCall:
        """Compute the statistics of a call, or let them wait for those of others.

        Args:
            placed: The call.
            first: Whether it is the first of its attention, which shows whether statistics fit.

        Errors: a ValueError for a statistic that does not fit, or a head out of range.
        """
        call, place, problem, whole, *_ = placed
        captured, real = call.captured, None
        if captured.over_features:
            self._check_without_positions(call.name)
        else:
            real = self.padding.real(call, place)
        untold = place.unplaced or place.far
        waits = captured.queries == 1 and not first and self._heads is None and untold is None
        values: dict[str, Any] = {}
        rule = self.singles.add(whole, real, values) if waits else None
        if rule is None:
            found = self._values(whole, real, captured)
            values = {name: _each(one, _without_others) for name, one in found.items()}
        if untold is not None:
            lost = names_keys if place.unplaced else _reads_positions
            values = {n: one for n, one in values.items() if not lost(self._statistics[n])}
        shape = tuple(whole.as_given(whole.query).shape[:-1])
        heads, numbers = self._requested(call.name, problem, captured.shards)
        if self._heads is not None:
            axis = problem.query.ndim - 3
            values = {n: _of_heads(value, heads, axis) for n, value in values.items()}
            shape = (*shape[:-2], len(heads), shape[-1])
        return ObservedCall(shape, values, real, numbers, untold, rule)

    def _check_without_positions(self, name: str) -> None:
        """Check that no statistic reads the positions of tokens, as features have none.

        Errors: a ValueError if one does.
        """
        for one in self._statistics.values():
            if one.reads_positions:
                raise UnfitError(
                    f"{one!r} needs attention to tokens, whose positions it reads, but {name!r} "
                    f"weighs features by its softmax. Exclude {name!r} with layers=."
                )

    def _values(
        self, problem: Problem, real: Tensor | None, captured: CapturedCall
    ) -> dict[str, Any]:
        """Compute the statistics; sums over queries leave out padding.

        Args:
            problem: The call, with keys numbered as in the text.
            real: Which queries are no padding; None: all.
            captured: The call as it was captured, maybe with what its kernel returned.
        """
        statistics, logsumexp = self._statistics, captured.logsumexp
        if real is None:
            return _computed(problem, statistics, logsumexp, captured.one_pass)
        own = {n: one for n, one in statistics.items() if one.axes[:1] == ("query",)}
        sums = {n: of_real(one, real) for n, one in statistics.items() if n not in own}
        found = _computed(problem, own, logsumexp, captured.one_pass)
        if logsumexp is not None:
            *batch, _, queries = logsumexp.shape
            logsumexp = logsumexp.masked_fill(~real.reshape(*batch, 1, queries), -torch.inf)
        found |= _computed(without_padding(problem, real), sums, logsumexp)
        return {name: found[name] for name in statistics}

    def _requested(
        self, name: str, problem: Problem, shards: Sequence[Shard]
    ) -> tuple[list[int], tuple[int, ...] | None]:
        """Return the requested heads by their places on this rank, and by their numbers.

        The numbers are None if all heads are requested, and this rank computes all.

        Errors: a ValueError for a head out of range.
        """
        requested, own = self._heads, problem.query.shape[-3]
        shard = next((one for one in shards if one.axis == "heads"), None)
        first, count = (0, own) if shard is None else (shard.first, shard.total)
        if requested is None:
            return [*range(own)], None if shard is None else tuple(range(first, first + own))
        if problem.axes < 4:
            raise UnfitError(
                "heads= needs attention with a heads axis, but the tensors of "
                f"{name or 'the model'!r} have {problem.axes} axes. Omit heads=, or exclude this "
                "layer with layers=."
            )
        if max(requested) >= count:
            raise UnfitError(
                f"heads must be in 0..{count - 1} for {name!r}, got {max(requested)}. Choose "
                "other heads, or exclude this layer with layers=."
            )
        here = [head for head in requested if first <= head < first + own]
        return [head - first for head in here], tuple(here)


def _computed(
    problem: Problem,
    statistics: dict[str, Statistic],
    logsumexp: Tensor | None,
    one_pass: OnePass | None = None,
) -> dict[str, Any]:
    """Compute the statistics of a problem, by name, unless one pass has."""
    if not statistics:
        return {}
    found = None if one_pass is None else one_pass.of(problem, statistics)
    if found is not None:
        return found
    if problem.scores_shape[-2] == 1:
        found = single_query(problem, statistics)
        if found is not None:
            return found
    request = StatisticRequest(problem, statistics)
    return request.finished(reduce_by_fastest(problem, request.reductions, logsumexp))


def _reads_positions(statistic: Statistic) -> bool:
    return statistic.reads_positions


def _of_heads(value: Any, heads: list[int], axis: int) -> Any:
    """Select heads of a statistic's value."""
    index = torch.tensor(heads, dtype=torch.long)
    return _each(value, lambda part: part.index_select(axis, index.to(part.device)))


def _without_others(part: Tensor) -> Tensor:
    """Return a tensor that keeps no larger memory alive, as a row of all statistics does."""
    # What a transform of torch.func wraps shows no memory.
    if is_transformed():
        return part
    own = part.numel() * part.itemsize
    return part.clone() if part.untyped_storage().nbytes() > 2 * own else part


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Change each tensor of a statistic's value."""
    if isinstance(value, Tensor):
        return change(value)
    parts = [_each(part, change) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
