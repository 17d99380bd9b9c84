"""Settle queries that wait: compute their statistics from the paged cache, and compare outputs."""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glasshead.attention.io import parts
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

# The most keys' numbers that are read at once to compare outputs.
_NUMBERS = 2**22


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
                    request.kept_queries[number].append(copied[0].cpu())
                    request.kept_keys[number].append(copied[1][..., new:, :].to("cpu", copy=True))
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
        from glasshead.engines.streaming.paged import PagedRequest

        kernels = _kernels_of(cache)
        paged = [
            PagedRequest(
                [(step.copies[number], step.first, step.last) for step in one.waiting],
                table,
                one.settled,
            )
            for one, table in zip(requests, tables, strict=True)
        ]
        if _is_of_gpu(cache) and not kernels.is_fastest(cache, paged):
            return None
        queries = max(one.queries for one in paged)
        keys = max(one.end for one in requests)
        wanted = self._request(number, queries, keys)
        stored = {cache.layers[0].dtype, *(x.dtype for one in paged for x, _, _ in one.rows[:1])}
        if len(stored) > 1 or kernels.refusal(cache, wanted.reductions) is not None:
            self._caches[number] = None
            return None
        try:
            reduced = kernels.reduce_paged(cache, paged, wanted.problem, wanted.reductions)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if not _is_of_gpu(cache):
                raise
            # The engine must go on, and copies of the keys have the same statistics.
            warnings.warn(
                f"The Triton kernel for paged keys failed ({type(error).__name__}: {error}). "
                "Statistics are computed from copies of the keys.",
                stacklevel=2,
            )
            self._caches[number] = None
            return None
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
            values = wanted.finished(reduce_by_fastest(problem, wanted.reductions))
        return {name: _on_cpu(value) for name, value in values.items()}

    @staticmethod
    def _keys(layers: Sequence[ServedLayer], table: Tensor, first: int, end: int) -> Tensor:
        """Copy all keys that queries from the first one on see, `[layers, 1, kv_heads, end, dim]`.

        Those before a window may hold anything by now, and are 0.
        """
        layer = layers[0]
        seen = 0 if layer.before is None else max(0, first - layer.before)
        several = [one.layout.keys(one.cache, table, seen, end) for one in layers]
        heads, _, dim = several[0].shape
        whole = several[0].new_zeros(len(layers), 1, heads, end, dim)
        torch.stack(several, out=whole[:, 0, :, seen:]) if not seen else whole[
            :, 0, :, seen:
        ].copy_(torch.stack(several))
        return whole

    def mismatch(self, outputs: Sequence[StepOutput], states: Sequence[Any]) -> str | None:
        """Return a layer whose own outputs do not follow from their inputs; None: all do.

        Args:
            outputs: Outputs of requests, of queries at the same position.
            states: What the model runner knows of these requests.
        """
        for number, layers in enumerate(self.groups):
            several = [(layers, slice(None))]
            while several:
                some, places = several.pop(0)
                if not self._follows(some, places, number, outputs, states):
                    if len(some) == 1:
                        return some[0].name
                    several = [([one], slice(i, i + 1)) for i, one in enumerate(layers)]
        return None

    def at_a_time(self, position: int) -> int:
        """Return of how many requests outputs at a position are compared together."""
        sizes = [len(one) * one[0].layer.impl.num_kv_heads * one[0].dim for one in self.groups]
        return max(1, _NUMBERS // (max(sizes) * (position + 1)))

    @staticmethod
    def _follows(
        layers: Sequence[ServedLayer],
        places: slice,
        number: int,
        outputs: Sequence[StepOutput],
        states: Sequence[Any],
    ) -> bool:
        layer, position = layers[0], outputs[0].position
        end, seen = position + 1, max(0, position - (layer.before or position))
        blocks = -(-end // layer.layout.size)
        tables = torch.stack([layer.block_table(state)[:blocks] for state in states])
        key, value = (
            torch.stack([read(one.layout)(one.cache, tables, seen, end) for one in layers])
            for read in (lambda x: x.keys, lambda x: x.values)
        )
        query, made = (
            torch.stack([copies[number][places, row] for copies, row in rows], 1)
            .unflatten(-1, (layer.heads, -1))
            .unsqueeze(-2)
            for rows in (
                [(one.queries, one.row) for one in outputs],
                [(one.outputs, one.row) for one in outputs],
            )
        )
        problem = layer.problem(query, key, value, position - seen)
        return output_mismatch(CapturedCall(problem, output=made)) is None


def _on_cpu(value: Any) -> Any:
    """Return the value of a statistic on the CPU: memory of a GPU is the engine's."""
    if isinstance(value, Tensor):
        return value.cpu()
    return type(value)(*(part.cpu() for _, part in parts(value)))


def _is_of_gpu(cache: "PagedCache") -> bool:
    return cache.layers[0].is_cuda


def _kernels_of(cache: "PagedCache") -> Any:
    """Return the module that computes statistics from a cache where it is."""
    if _is_of_gpu(cache):
        from glasshead.engines.triton import paged
    else:
        from glasshead.engines.streaming import paged
    return paged


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
