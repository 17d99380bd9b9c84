"""Settle queries that wait: compute their statistics from the paged cache, and compare outputs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glasshead.engines import reduce_by_fastest
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import without_autocast
from glasshead.serving.library_scans import pass_scans
from glasshead.serving.served_layers import ServedLayer
from glasshead.serving.watched_request import StepOutput, WatchedRequest
from glasshead.statistics import Statistic
from glasshead.statistics.reductions import StatisticRequest
from glasshead.watching.captured_call import CapturedCall, output_mismatch

if TYPE_CHECKING:
    from glasshead.engines.streaming.paged import PagedCache


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
        self._caches: list[PagedCache | None] = [_cache_of(one) for one in groups]

    def settle(
        self, requests: Sequence[WatchedRequest], states: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Compute the statistics of all queries of some requests that wait.

        Args:
            requests: The requests, each with some.
            states: What the model runner knows of requests, by name.

        Returns: the statistics of these queries, by group, `[layers, 1, heads, …]`.
        """
        found = []
        for number, layers in enumerate(self.groups):
            tables = [layers[0].block_table(states[one.name]) for one in requests]
            values = self._paged(number, requests, tables)
            for place, (request, table) in enumerate(zip(requests, tables, strict=True)):
                first, copied = request.settled, None
                if values is None or self._keep:
                    key = self._keys(layers, table, first, request.end)
                    copied = self._queries(request, number), key
                if copied is not None and self._keep:
                    new = first if request.kept_keys[number] else 0
                    request.kept_queries[number].append(copied[0])
                    request.kept_keys[number].append(copied[1][..., new:, :].clone())
                own = {} if values is None else values[place]
                if values is None and copied is not None:
                    query, key = copied
                    own = self._values(layers[0].problem(query, key, key, first))
                request.chunks[number].add(request.end - first, own)
                found.append(own)
        for one in requests:
            one.waiting, one.settled = [], one.end
        return found

    def _paged(
        self, number: int, requests: Sequence[WatchedRequest], tables: Sequence[Tensor]
    ) -> list[dict[str, Any]] | None:
        """Return the statistics of each request from the cache as it is; None if that cannot be."""
        cache = self._caches[number]
        if cache is None or not self._statistics:
            return None
        from glasshead.engines.streaming.paged import PagedRequest, reduce_paged, refusal

        paged = [
            PagedRequest(
                [(step.copies[number], step.first, step.last) for step in one.waiting],
                table,
                one.settled,
            )
            for one, table in zip(requests, tables, strict=True)
        ]
        queries = max(one.queries for one in paged)
        keys = max(one.end for one in requests)
        wanted = self._request(number, queries, keys)
        if refusal(cache, wanted.reductions) is not None:
            self._caches[number] = None
            return None
        reduced = reduce_paged(cache, paged, wanted.problem, wanted.reductions)
        return [wanted.finished(one) for one in reduced]

    def _request(self, number: int, queries: int, keys: int) -> StatisticRequest:
        """Return the request for statistics of so many queries and keys, of no numbers."""
        layers = self.groups[number]
        layer, impl = layers[0], layers[0].layer.impl
        nothing = torch.empty(1)
        query = nothing.expand(len(layers), 1, layer.heads, queries, layer.dim)
        key = nothing.expand(len(layers), 1, impl.num_kv_heads, keys, layer.dim)
        return StatisticRequest(layer.problem(query, key, key, keys - queries), self._statistics)

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


def _cache_of(layers: Sequence[ServedLayer]) -> "PagedCache | None":
    """Return the caches of layers that are alike, as kernels read them."""
    # It loads llvmlite.
    from glasshead.engines.streaming.paged import PagedCache

    pass_scans()
    first = layers[0]
    sinks, slopes = (
        None if own is None else torch.stack([getattr(one, name) for one in layers])
        for name, own in (("sinks", first.sinks), ("slopes", first.slopes))
    )
    return PagedCache(
        layers=[one.layout.blocks_of(one.cache) for one in layers],
        order=first.layout.order[0],
        heads=first.heads,
        scale=float(first.layer.impl.scale),
        softcap=first.softcap or 0.0,
        before=first.before,
        sinks=sinks,
        slopes=slopes,
    )
