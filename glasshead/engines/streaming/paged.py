"""Sums over the weights of many requests, whose keys are in the blocks of a paged cache."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.arguments import (
    ROW_STATISTICS,
    Nothing,
    PagedKeys,
    PagedQueries,
    PagedResults,
    PagedRoom,
    PagedRule,
    PagedTask,
)
from glasshead.engines.streaming.kernels.processor import at_hand, columns_of
from glasshead.engines.streaming.kernels.streamed import ROW_STATS, OutputSpec, Results
from glasshead.engines.streaming.machine_code import kernel
from glasshead.engines.streaming.operands import asked_for, knows, results_of
from glasshead.engines.streaming.threads import call_in_threads
from glasshead.recipe.problem import Problem
from glasshead.statistics.reductions import (
    BlockSum,
    DiagonalSum,
    Reduction,
    TimesQueries,
)

_HALVES = {torch.bfloat16: 1, torch.float16: 2}
# With fewer products of numbers one thread computes alone.
_FEW = 1_000_000
_HEIGHT = 64


class PagedRequest(NamedTuple):
    """Queries of a request.

    Attributes:
        rows: Of each step the queries of all layers, `[layers, tokens, heads · dim]`, the first row
            of the request, and the one after its last.
        blocks: The numbers of its blocks, in order.
        position: The position of its first query; the last one sees all keys up to its own.
    """

    rows: Sequence[tuple[Tensor, int, int]]
    blocks: Tensor
    position: int

    @property
    def queries(self) -> int:
        """The number of its queries."""
        return sum(last - first for _, first, last in self.rows)


class PagedCache(NamedTuple):
    """The paged caches of layers that are alike, and the rule of their attention.

    Attributes:
        layers: The cache of each layer, with the blocks as its first axis.
        order: The place of each key's number in a block, `[kv_heads, tokens, dim]`.
        heads: The number of query heads.
        scale, softcap: As of a problem; no softcap is 0.
        before: How many keys before its own a query sees; None: all.
        sinks, slopes: Of each layer and head; None: there are none.
    """

    layers: Sequence[Tensor]
    order: Tensor
    heads: int
    scale: float
    softcap: float
    before: int | None
    sinks: Tensor | None
    slopes: Tensor | None


def refusal(cache: PagedCache, reductions: Sequence[Reduction]) -> str | None:
    """Return why the kernel cannot compute reductions of a cache; None if it can."""
    first, order = cache.layers[0], cache.order
    if first.device.type != "cpu":
        return "the cache is not on the CPU"
    unknown = shared_refusal(cache, reductions)
    if unknown is not None:
        return unknown
    step = _head_step(order)
    heads = torch.arange(len(order))[:, None, None] * step
    return None if torch.equal(order, order[0] + heads) else "its heads lie in different orders"


def shared_refusal(cache: PagedCache, reductions: Sequence[Reduction]) -> str | None:
    """Return why neither paged kernel computes these reductions of a cache; None if both may."""
    if cache.layers[0].dtype not in (torch.float32, *_HALVES):
        return f"the cache is of {cache.layers[0].dtype}"
    for one in reductions:
        if not knows(one) or isinstance(one, BlockSum | DiagonalSum):
            return f"{type(one).__name__} does not follow from chunks of queries"
        if isinstance(one, TimesQueries) and not bool((one.per_query == 1).all()):
            return "its queries have weights"
    return None


def _head_step(order: Tensor) -> int:
    """Return the step from a head to the next in a block; 0 of one head."""
    return int(order[1, 0, 0] - order[0, 0, 0]) if len(order) > 1 else 0


def reduce_paged(
    cache: PagedCache,
    requests: Sequence[PagedRequest],
    largest: Problem,
    reductions: Sequence[Reduction],
) -> list[list[tuple[Tensor, ...]]]:
    """Compute reductions of the weights of each request, `[layers, heads, …]`, in one call.

    Args:
        cache: The caches.
        requests: The requests.
        largest: A problem with the most queries and keys of any, which the reductions were made
            for; none of its numbers is read.
        reductions: The reductions, none of which `refusal` refuses.
    """
    spec, kv_heads = _of_one_head(asked_for(largest, reductions)), len(cache.order)
    batch = _Batch(cache, requests, spec)
    task = PagedTask(
        queries=batch.queries,
        keys=_keys_of(cache),
        rule=_rule_of(cache),
        group=cache.heads // kv_heads,
        spec=spec,
        results=batch.results,
        room=_room_of(batch, cache, spec),
        nothing=_NOTHING,
    )
    run, counters = kernel("paged_units", np.dtype(np.float32)), np.zeros(2, np.int64)
    packed = run.pack((task, counters.ctypes.data))
    if len(task.room.numbers) == 1:
        run.run(packed)
    else:
        call_in_threads(run, packed, len(task.room.numbers))
    # What is kept of a request must not hold the results of all.
    return [
        [
            tuple(part.clone() for part in parts)
            for parts in results_of(batch.of(number), largest, reductions)
        ]
        for number in range(len(requests))
    ]


_NOTHING = Nothing(np.zeros(0, np.int32), np.zeros(0, np.int16), np.zeros(0, np.bool_))


class _Batch:
    """Requests in tables as the kernel reads them, and the arrays that it fills for them.

    Args:
        cache: The caches.
        requests: The requests.
        spec: Output specification of one head.
    """

    def __init__(
        self, cache: PagedCache, requests: Sequence[PagedRequest], spec: OutputSpec
    ) -> None:
        self.heads = len(cache.layers), cache.heads
        self.counts = np.array([one.queries for one in requests])
        self.lengths = np.array([one.position + one.queries for one in requests])
        self._spec, size = spec, cache.order.shape[1]
        many, blocks = math.prod(self.heads), -(-self.lengths // size)
        rows = ROW_STATS, len(spec.per_key), spec.top
        sizes = [many * each * self.counts for each in rows]
        columns = many * len(spec.per_query) * self.lengths
        ends = np.cumsum(sizes).reshape(len(sizes), -1)
        table = [
            begins(self.counts),
            self.counts,
            self.lengths,
            [one.position for one in requests],
            begins(blocks),
            *(ends - sizes),
            begins(sizes[-1]),
            begins(columns),
        ]
        self.queries = PagedQueries(
            requests=np.stack(table, 1).astype(np.int64),
            blocks=torch.cat(
                [one.blocks[:count] for one, count in zip(requests, blocks, strict=True)]
            ).numpy(),
            rows=np.concatenate([addresses(one.rows) for one in requests]),
            before=-1 if cache.before is None else cache.before,
            itemsize=cache.layers[0].itemsize,
        )
        self.results = PagedResults(
            reals=np.zeros(ends[-1, -1], np.float32),
            places=np.zeros(sizes[-1].sum(), np.int64),
            sums=np.zeros(columns.sum()),
        )

    def of(self, number: int) -> Results:
        """Return the results of a request, `[layers, heads, …]`."""
        reals, places, sums = self.results
        begins = self.queries.requests[number, ROW_STATISTICS:].tolist()
        queries, keys = int(self.counts[number]), int(self.lengths[number])
        spec = self._spec
        shapes = (
            (reals, (ROW_STATS, queries)),
            (reals, (len(spec.per_key), queries)),
            (reals, (queries, spec.top)),
            (places, (queries, spec.top)),
            (sums, (len(spec.per_query), keys)),
        )
        statistics, by_key, top, top_keys, by_query = (
            torch.from_numpy(numbers[begin : begin + math.prod((*self.heads, *shape))]).view(
                *self.heads, *shape
            )
            for begin, (numbers, shape) in zip(begins, shapes, strict=True)
        )
        nothing = statistics.new_zeros(*self.heads, 0)
        return Results(
            context=nothing,
            rows=statistics,
            by_key=by_key,
            top=top,
            keys=top_keys,
            by_query=by_query.float(),
            diagonals=nothing,
            maps=nothing,
        )


def begins(counts: np.ndarray) -> np.ndarray:
    """Return where each part begins, of so many numbers each."""
    return np.cumsum(counts) - counts


def addresses(steps: Sequence[tuple[Tensor, int, int]]) -> np.ndarray:
    """Return of each query the address in the first layer, and the step to the next layer."""
    found = []
    for copies, first, last in steps:
        layer, row, _ = (step * copies.itemsize for step in copies.stride())
        begin = copies.data_ptr()
        found += [(begin + row * i, layer) for i in range(first, last)]
    return np.array(found, np.int64)


def _of_one_head(spec: OutputSpec) -> OutputSpec:
    """Return the specification as the kernel reads it: all heads ask for the same."""
    per_key, per_query = (
        np.zeros((0, 0), np.float32) if x is None else x[0, 0].numpy()
        for x in (spec.per_key, spec.per_query)
    )
    maps = np.zeros((0, 2), np.int64)
    return spec._replace(per_key=per_key, per_query=per_query, maps=maps)


def _keys_of(cache: PagedCache) -> PagedKeys:
    """Return where the keys are."""
    first, (heads, size, dim), lanes = cache.layers[0], cache.order.shape, at_hand().tile.bytes // 4
    order = cache.order[0].contiguous()
    steps = order[: size // lanes * lanes].view(-1, lanes, dim).diff(dim=1)
    is_even = size % lanes == 0 and bool((steps == steps[0, 0, 0]).all())
    return PagedKeys(
        caches=np.array([one.data_ptr() for one in cache.layers], np.int64),
        order=order.numpy(),
        block_bytes=first.stride(0) * first.itemsize,
        head_bytes=_head_step(cache.order) * first.itemsize,
        heads=heads,
        halves=_HALVES.get(first.dtype, 0),
        step=int(steps[0, 0, 0]) if is_even else 0,
    )


def _rule_of(cache: PagedCache) -> PagedRule:
    """Return what turns products into weights."""
    shape = len(cache.layers), cache.heads
    sinks, slopes = (
        None if one is None else one.float().reshape(shape).contiguous().numpy()
        for one in (cache.sinks, cache.slopes)
    )
    return PagedRule(
        scale=cache.scale,
        softcap=cache.softcap,
        sinks=np.full(shape, -math.inf, np.float32) if sinks is None else sinks,
        slopes=np.zeros((0, 0), np.float32) if slopes is None else slopes,
    )


def _room_of(batch: _Batch, cache: PagedCache, spec: OutputSpec) -> PagedRoom:
    """Return memory for each thread: as many as the work and its units deserve."""
    (kv_heads, _, dim), width, tile = cache.order.shape, columns_of(4), at_hand().tile.rows
    counts, lengths = batch.counts, batch.lengths
    seen = lengths if cache.before is None else np.minimum(lengths, counts + cache.before)
    across, queries = int(seen.max()) + 2 * width, int(counts.max())
    height = min(_HEIGHT, -(-queries // tile) * tile)
    high = -(-queries // height) * height
    groups = max(64, min(4 * spec.top, int(lengths.max())))
    diagonals = int((counts + lengths).max()) if cache.slopes is not None else 0
    # Panels, queries, those of a block and its scores, and what is searched for the largest.
    numbers = (across + high + height) * dim + height * (across + width)
    numbers += groups + spec.top + height + diagonals
    operations = math.prod(batch.heads) * int((counts * seen).sum()) * dim
    threads = 1 if operations < _FEW else torch.get_num_threads()
    threads = min(threads, len(counts) * len(cache.layers) * kv_heads)
    return PagedRoom(
        numbers=np.empty((threads, numbers), np.float32),
        whole=np.empty((threads, 2 * high + 2 * len(spec.per_key)), np.int64),
        groups=groups,
        width=width,
        height=height,
        tile_rows=tile,
    )
