"""Sums over the weights of many requests, whose keys are in the blocks of a paged cache."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.arguments import PagedTask
from glasshead.engines.streaming.kernels.processor import at_hand, columns_of
from glasshead.engines.streaming.kernels.streamed import ROW_STATS, Results
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
    if first.dtype not in (torch.float32, *_HALVES):
        return f"the cache is of {first.dtype}"
    for one in reductions:
        if not knows(one) or isinstance(one, BlockSum | DiagonalSum):
            return f"{type(one).__name__} does not follow from chunks of queries"
        if isinstance(one, TimesQueries) and not bool((one.per_query == 1).all()):
            return "its queries have weights"
    step = _head_step(order)
    heads = torch.arange(len(order))[:, None, None] * step
    return None if torch.equal(order, order[0] + heads) else "its heads lie in different orders"


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
    first, (kv_heads, size, dim) = cache.layers[0], cache.order.shape
    layers, heads = len(cache.layers), cache.heads
    spec = asked_for(largest, reductions)
    per_key, per_query = (
        np.zeros((0, 0), np.float32) if x is None else x[0, 0].numpy()
        for x in (spec.per_key, spec.per_query)
    )
    sizes = np.array([[one.queries, one.position + one.queries] for one in requests])
    queries, keys = sizes.T
    many = layers * heads
    counts = np.stack(
        [
            many * ROW_STATS * queries,
            many * len(per_key) * queries,
            many * queries * spec.top,
            many * len(per_query) * keys,
        ]
    )
    ends = counts[:3].cumsum().reshape(3, -1)
    begins = ends - counts[:3]
    reals = np.zeros(int(counts[:3].sum()), np.float32)
    places = np.zeros(int(counts[2].sum()), np.int64)
    sums = np.zeros(int(counts[3].sum()))
    blocks = [-(-int(count) // size) for count in keys]
    rows = np.concatenate([_rows(one.rows) for one in requests])
    table = np.stack(
        [
            queries.cumsum() - queries,
            queries,
            keys,
            [one.position for one in requests],
            np.cumsum(blocks) - blocks,
            *begins,
            counts[2].cumsum() - counts[2],
            counts[3].cumsum() - counts[3],
        ],
        1,
    ).astype(np.int64)
    width, tile = columns_of(4), at_hand().tile.rows
    seen = keys if cache.before is None else np.minimum(keys, queries + cache.before)
    across = int(seen.max()) + 2 * width
    height = min(_HEIGHT, -(-int(queries.max()) // tile) * tile)
    high = -(-int(queries.max()) // height) * height
    groups = max(64, min(4 * spec.top, int(keys.max())))
    diagonals = int((queries + keys).max()) if cache.slopes is not None else 0
    # Panels, queries, those of a block and its scores, and what is searched for the largest.
    room = (across + high + height) * dim + height * (across + width)
    room += groups + spec.top + height + diagonals
    operations = many * int((queries * seen).sum()) * dim
    threads = 1 if operations < _FEW else torch.get_num_threads()
    threads = min(threads, len(requests) * layers * kv_heads)
    task = PagedTask(
        requests=table,
        caches=np.array([x.data_ptr() for x in cache.layers], np.int64),
        blocks=torch.cat(
            [one.blocks[:count] for one, count in zip(requests, blocks, strict=True)]
        ).numpy(),
        rows=rows,
        order=cache.order[0].contiguous().numpy(),
        per_key=per_key,
        per_query=per_query,
        sinks=_by_head(cache.sinks, -math.inf, layers, heads),
        slopes=np.zeros((0, 0), np.float32)
        if cache.slopes is None
        else _by_head(cache.slopes, 0.0, layers, heads),
        reals=reals,
        places=places,
        sums=sums,
        scratch=np.empty((threads, room), np.float32),
        whole=np.empty((threads, 2 * high + 2 * len(per_key)), np.int64),
        no_pairs=np.zeros(0, np.int32),
        no_halves=np.zeros(0, np.int16),
        no_booleans=np.zeros(0, np.bool_),
        no_maps=np.zeros((0, 2), np.int64),
        scale=cache.scale,
        softcap=cache.softcap,
        kv_heads=kv_heads,
        group=heads // kv_heads,
        dim=dim,
        size=size,
        block_bytes=first.stride(0) * first.itemsize,
        head_bytes=_head_step(cache.order) * first.itemsize,
        halves=_HALVES.get(first.dtype, 0),
        in_rows=int(size % width == 0 and bool((cache.order[0].diff(dim=0) == 1).all())),
        itemsize=first.itemsize,
        before=-1 if cache.before is None else cache.before,
        keyed=spec.keyed,
        far=spec.far,
        top=spec.top,
        groups=groups,
        width=width,
        height=height,
        tile_rows=tile,
    )
    run = kernel("paged_units", np.dtype(np.float32))
    counters = np.zeros(2, np.int64)
    packed = run.pack((task, counters.ctypes.data))
    if threads == 1:
        run.run(packed)
    else:
        call_in_threads(run, packed, threads)
    found, at = [], table[:, 5:].tolist()
    for (count, length), begin in zip(sizes.tolist(), at, strict=True):
        shapes = (
            (reals, begin[0], (ROW_STATS, count)),
            (reals, begin[1], (len(per_key), count)),
            (reals, begin[2], (count, spec.top)),
            (places, begin[3], (count, spec.top)),
            (sums, begin[4], (len(per_query), length)),
        )
        arrays = [
            torch.from_numpy(x[b : b + many * math.prod(shape)]).view(layers, heads, *shape)
            for x, b, shape in shapes
        ]
        statistics, by_key, top, top_keys, by_query = arrays
        nothing = statistics.new_zeros(layers, heads, 0)
        results = Results(
            context=nothing,
            rows=statistics,
            by_key=by_key,
            top=top,
            keys=top_keys,
            by_query=by_query.float(),
            diagonals=nothing,
            maps=nothing,
        )
        parts = results_of(results, largest, reductions)
        # What is kept of a request must not hold the results of all.
        found.append([tuple(x.clone() for x in several) for several in parts])
    return found


def _rows(steps: Sequence[tuple[Tensor, int, int]]) -> np.ndarray:
    """Return of each query the address in the first layer, and the step to the next layer."""
    found = []
    for copies, first, last in steps:
        layer, row, _ = (step * copies.itemsize for step in copies.stride())
        begin = copies.data_ptr()
        found += [(begin + row * i, layer) for i in range(first, last)]
    return np.array(found, np.int64)


def _by_head(numbers: Tensor | None, default: float, layers: int, heads: int) -> np.ndarray:
    """Return a number for each layer and head."""
    if numbers is None:
        return np.full((layers, heads), default, np.float32)
    return numbers.float().reshape(layers, heads).contiguous().numpy()
