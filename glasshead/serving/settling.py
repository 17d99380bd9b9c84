"""Settle queries that wait: compute their statistics from the paged cache, and compare outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from glasshead.engines import reduce_by_fastest
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import without_autocast
from glasshead.serving.served_layers import ServedLayer
from glasshead.serving.watched_request import StepOutput, WatchedRequest
from glasshead.statistics import Statistic
from glasshead.statistics.reductions import StatisticRequest
from glasshead.watching.captured_call import CapturedCall, output_mismatch


class Settler:
    """Computes the statistics of queries that wait.

    Args:
        groups: The layers that are computed together.
        statistics: Statistics by name.
        keep: Whether queries and keys are kept, for the weights.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[ServedLayer]],
        statistics: Mapping[str, Statistic],
        *,
        keep: bool,
    ) -> None:
        self.groups, self._statistics, self._keep = groups, statistics, keep

    def settle(self, request: WatchedRequest, state: Any) -> list[dict[str, Any]]:
        """Compute the statistics of all queries of a request that wait.

        Args:
            request: The request.
            state: What the model runner knows of it.

        Returns: the statistics of these queries, by group; of each layer `[layers, 1, heads, …]`.
        """
        count, found = request.end - request.settled, []
        for number, layers in enumerate(self.groups):
            table = layers[0].block_table(state)
            query = self._queries(request, number)
            key = self._keys(layers, table, request.settled, request.end)
            values = self._values(layers[0].problem(query, key, key, request.settled))
            request.chunks[number].add(count, values)
            found.append(values)
            if self._keep:
                new = request.settled if request.kept_keys[number] else 0
                request.kept_queries[number].append(query)
                request.kept_keys[number].append(key[..., new:, :].clone())
        request.waiting, request.settled = [], request.end
        return found

    def _queries(self, request: WatchedRequest, number: int) -> Tensor:
        """Return the queries of a group that wait, `[layers, 1, heads, queries, dim]`."""
        layer = self.groups[number][0]
        rows = [one.copies[number][:, one.first : one.last] for one in request.waiting]
        whole = rows[0] if len(rows) == 1 else torch.cat(rows, 1)
        return whole.unflatten(-1, (layer.heads, layer.dim)).transpose(1, 2).unsqueeze(1)

    def _values(self, problem: Problem) -> dict[str, Any]:
        if not self._statistics:
            return {}
        wanted = StatisticRequest(problem, self._statistics)
        with without_autocast(problem.query.device):
            return wanted.finished(reduce_by_fastest(problem, wanted.reductions))

    @staticmethod
    def _keys(layers: Sequence[ServedLayer], table: Tensor, first: int, end: int) -> Tensor:
        """Copy all keys that queries from the first one on see, `[layers, 1, kv_heads, end, dim]`.

        Those before a window may hold anything by now, and are 0.
        """
        layer = layers[0]
        seen = 0 if layer.before is None else max(0, first - layer.before)
        parts = [one.layout.keys(one.cache, table, seen, end) for one in layers]
        whole = parts[0].new_zeros(len(layers), 1, parts[0].shape[0], end, parts[0].shape[2])
        torch.stack(parts, out=whole[:, 0, :, seen:]) if not seen else whole[:, 0, :, seen:].copy_(
            torch.stack(parts)
        )
        return whole

    def mismatch(self, output: StepOutput, state: Any) -> str | None:
        """Return the layer whose own output does not follow from its inputs; None: all do."""
        for number, layers in enumerate(self.groups):
            several = [(layers, slice(None))]
            while several:
                some, places = several.pop(0)
                if not self._follows(some, places, number, output, state):
                    if len(some) == 1:
                        return some[0].name
                    several = [([one], slice(i, i + 1)) for i, one in enumerate(layers)]
        return None

    @staticmethod
    def _follows(
        layers: Sequence[ServedLayer], places: slice, number: int, output: StepOutput, state: Any
    ) -> bool:
        layer, end = layers[0], output.position + 1
        table = layer.block_table(state)
        seen = 0 if layer.before is None else max(0, output.position - layer.before)
        key, value = (
            torch.stack([read(one.layout)(one.cache, table, seen, end) for one in layers])
            for read in (lambda x: x.keys, lambda x: x.values)
        )
        query, made = (
            copies[number][places, row].unflatten(-1, (layer.heads, -1)).unsqueeze(-2)
            for copies, row in ((output.queries, output.query), (output.outputs, output.row))
        )
        problem = layer.problem(query, key, value, output.position - seen)
        return output_mismatch(CapturedCall(problem, output=made)) is None
