"""Sums over the weights of many requests on a GPU, whose keys stay in the blocks of a cache."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.streamed import ROW_STATS, OutputSpec, Results
from glasshead.engines.streaming.operands import asked_for, results_of
from glasshead.engines.streaming.paged import (
    PagedCache,
    PagedRequest,
    addresses,
    begins,
    shared_refusal,
)
from glasshead.engines.triton.engine import TRITON, WIDEST
from glasshead.recipe.problem import Problem
from glasshead.statistics.reductions import Largest, Reduction

if TYPE_CHECKING:
    from glasshead.engines.triton.passes import Blocks

# More keys before its own than any query has.
_ALL = 2**30 - 1
# Pairs of a query and a key that a request may have before copies of its keys take less time.
_PAIRS = 2**17
# About how many bytes the results of several requests take on the device at a time.
_BYTES = 2**28


def refusal(cache: PagedCache, reductions: Sequence[Reduction]) -> str | None:
    """Return why the kernel cannot compute reductions of a cache; None if it can."""
    unavailable = TRITON.unavailable(cache.layers[0].device)
    if unavailable is not None:
        return unavailable
    unknown = shared_refusal(cache, reductions)
    if unknown is not None:
        return unknown
    missing = next((one for one in reductions if not TRITON.knows(one)), None)
    if missing is not None:
        return f"the kernel does not compute {missing}"
    if cache.order.shape[2] > WIDEST:
        return f"keys are at most {WIDEST} wide, and these {cache.order.shape[2]}"
    grid = cache.order[0, 0, 0]
    for size, step in zip(cache.order.shape, _steps(cache.order), strict=True):
        grid = grid[..., None] + torch.arange(size) * step
    return None if torch.equal(grid, cache.order) else "its numbers are not in even steps"


def _steps(order: Tensor) -> list[int]:
    """Return the steps from the first head, token and feature to the second; 1 if there is none."""
    lines = order[:, 0, 0], order[0, :, 0], order[0, 0, :]
    return [int(line[1] - line[0]) if len(line) > 1 else 1 for line in lines]


def is_fastest(cache: PagedCache, requests: Sequence[PagedRequest]) -> bool:
    """Return whether requests take less time here than from copies of their keys.

    The limit was measured on an NVIDIA H100 by `benchmarks/gpu_paged.py`.
    """
    before = _ALL if cache.before is None else cache.before
    pairs = [one.queries * (min(one.position, before) + one.queries) for one in requests]
    return sum(pairs) <= _PAIRS * len(requests)


def reduce_paged(
    cache: PagedCache,
    requests: Sequence[PagedRequest],
    largest: Problem,
    reductions: Sequence[Reduction],
) -> list[list[tuple[Tensor, ...]]]:
    """Compute reductions of the weights of each request, `[layers, heads, …]`, on the CPU.

    Sums along rows take one launch, and sums along columns, which take whole rows, a second one.

    Args:
        cache: The caches.
        requests: The requests.
        largest: A problem with the most queries and keys of any, which the reductions were made
            for; none of its numbers is read.
        reductions: The reductions, none of which `refusal` refuses.
    """
    # The kernel finds the largest scores with their keys, or not at all.
    reductions = [one.joined(Largest()) or one for one in reductions]
    spec, reduced = asked_for(largest, reductions), list[list[tuple[Tensor, ...]]]()
    for several in _batches(cache, requests, spec):
        batch = _Batch(cache, several, spec)
        batch.run()
        # What is kept of a request must not hold the results of all.
        reduced += [
            [tuple(part.clone() for part in some) for some in results_of(one, largest, reductions)]
            for one in batch.results()
        ]
    return reduced


def _batches(
    cache: PagedCache, requests: Sequence[PagedRequest], spec: OutputSpec
) -> Iterator[list[PagedRequest]]:
    """Yield groups of requests whose results take little memory of the device."""
    from glasshead.engines.triton.passes import power_of_two

    places, several, taken = len(cache.layers) * cache.heads, list[PagedRequest](), 0
    columns = 0 if spec.per_query is None else 8
    rows = 4 * (ROW_STATS + 1 + (0 if spec.per_key is None else spec.per_key.shape[2]))
    # The largest weights and their keys are sorted, which takes copies of them and 64-bit places.
    rows += 32 * power_of_two(spec.top) if spec.top else 0
    for one in requests:
        keys = one.position + one.queries
        needed = places * (one.queries * rows + keys * columns)
        if several and taken + needed > _BYTES:
            yield several
            several, taken = [], 0
        several.append(one)
        taken += needed
    yield several


def block_of(dtype: torch.dtype, dim: int, *, top: bool, queries: int) -> "Blocks":
    """Return the block size for requests of so many queries at most.

    There are few heights, because each one is compiled.
    """
    from glasshead.engines.triton.passes import blocks_for

    usual = blocks_for(dtype, dim, top=top, pairs=False)
    most = 32 if dtype == torch.float32 and dim > 64 else usual.queries
    height = next((one for one in (16, 64) if queries <= one < most), most)
    # Addresses of keys need registers, too.
    return usual._replace(queries=height, warps=8 if height > 64 else 4)


class _Batch:
    """Requests in tables as the kernel reads them, and the arrays that it fills for them.

    Args:
        cache: The caches.
        requests: The requests.
        spec: Output specification, the same for each head.
    """

    def __init__(
        self, cache: PagedCache, requests: Sequence[PagedRequest], spec: OutputSpec
    ) -> None:
        # Triton is slow to import.
        from glasshead.engines.triton.passes import power_of_two

        self.cache, self.spec, self.device = cache, spec, cache.layers[0].device
        self.counts = np.array([one.queries for one in requests])
        self.lengths = np.array([one.position + one.queries for one in requests])
        self.places = len(cache.layers) * cache.heads
        dtype, dim = cache.layers[0].dtype, cache.order.shape[2]
        self.block = block_of(dtype, dim, top=bool(spec.top), queries=int(self.counts.max()))
        # Strides of operands. For any but multiples of 16, Triton compiles the kernel again.
        self.queries, self.keys = (
            -(-int(one.max()) // 16) * 16 for one in (self.counts, self.lengths)
        )
        self.top = power_of_two(spec.top) if spec.top else 0
        self._send(requests)
        self.shifts, self.rows = self._of_rows(1), self._of_rows(ROW_STATS)
        self.top_weights, self.top_keys = self._of_rows(self.top), self._of_rows(self.top, True)
        self.by_key = list[tuple[int, int, Tensor]]()
        columns = self.places * int(self.lengths.sum()) if spec.per_query is not None else 0
        self.by_query = torch.zeros(columns, dtype=torch.float64, device=self.device)

    def _of_rows(self, each: int, whole: bool = False) -> Tensor:
        """Return so many zeros for each query of each head."""
        shape, dtype = each * self.places * int(self.counts.sum()), torch.float32
        return torch.zeros(shape, dtype=torch.int32 if whole else dtype, device=self.device)

    def _send(self, requests: Sequence[PagedRequest]) -> None:
        """Send the tables to the device, all at once."""
        from glasshead.engines.triton.kernels import REQUEST

        cache, first, height = self.cache, self.cache.layers[0], self.block.queries
        blocks, tiles = -(-self.lengths // cache.order.shape[1]), -(-self.counts // height)
        positions = self.lengths - self.counts
        owner = np.repeat(np.arange(len(requests)), tiles)
        tile = np.arange(len(owner)) - np.repeat(begins(tiles), tiles)
        # Blocks of queries that see most keys come first.
        seen = np.minimum(positions[owner] + (tile + 1) * height, self.lengths[owner])
        order = np.argsort(-seen, kind="stable")
        self.tiles = len(order)
        layers = [(one.data_ptr() - first.data_ptr()) // first.itemsize for one in cache.layers]
        place = int(cache.order[0, 0, 0])
        self.is_aligned = all((one + place) % 16 == 0 for one in layers)
        numbers = {
            "queries": self.counts,
            "keys": self.lengths,
            "position": positions,
            "rows_before": begins(self.places * self.counts),
            "columns_before": begins(self.places * self.lengths),
            "queries_before": begins(self.counts),
            "pages_before": begins(blocks),
        }
        parts = [
            np.stack([owner, tile], 1)[order],
            np.stack([numbers[name] for name in REQUEST], 1),
            np.concatenate([addresses(one.rows) for one in requests]),
            np.concatenate(
                [one.blocks[:n].numpy() for one, n in zip(requests, blocks, strict=True)]
            ),
            np.array(layers) + place,
        ]
        flat = [np.ascontiguousarray(one, np.int64).ravel() for one in parts]
        sent = torch.from_numpy(np.concatenate(flat)).to(self.device)
        self.units, self.requests, self.addresses, self.pages, self.layers = sent.split(
            [one.size for one in flat]
        )

    def run(self) -> None:
        """Launch the kernel for sums along rows, then for sums along columns, if there are any."""
        from glasshead.engines.triton.passes import COLUMNS, spans_of

        per_key = self.spec.per_key
        parts: list[Tensor | None] = [None]
        if per_key is not None:
            rows = torch.zeros(per_key.shape[2], self.keys, device=self.device)
            seen = min(self.keys, per_key.shape[3])
            rows[:, :seen] = per_key[0, 0, :, :seen]
            parts = [*rows.split(COLUMNS)]
        spans = [None if one is None else spans_of(one) for one in parts]
        for number, (part, span) in enumerate(zip(parts, spans, strict=True)):
            self._launch(part, span, None, rows=number == 0)
        if self.spec.per_query is not None:
            # Every column of L is 1, so one sum serves all columns.
            ones = torch.ones(self.queries, device=self.device)
            self._launch(None, None, ones, rows=False)

    def _launch(
        self, right: Tensor | None, spans: Tensor | None, left: Tensor | None, *, rows: bool
    ) -> None:
        from glasshead.engines.triton.kernels import INTERPRETED, UNREAD
        from glasshead.engines.triton.passes import (
            KERNEL,
            on_device,
            options_of,
            padded,
            power_of_two,
        )

        cache, spec = self.cache, self.spec
        (kv_heads, size, dim), steps = cache.order.shape, _steps(cache.order)
        width = 0 if right is None else power_of_two(len(right))
        by_key = self._of_rows(width)
        if right is not None and spans is not None:
            self.by_key.append((len(right), width, by_key))
            right, spans = padded(right, width), padded(spans, width)
        slopes, sinks = (
            None if one is None else one.to(self.device, torch.float32).contiguous()
            for one in (cache.slopes, cache.sinks)
        )
        arguments = UNREAD | {
            "query": self.addresses,
            "key": cache.layers[0],
            "table": slopes,
            "sink": sinks,
            "per_key": right,
            "key_spans": spans,
            "per_query": left,
            "shifts": self.shifts,
            "rows": self.rows,
            "by_key": by_key,
            "top": self.top_weights,
            "top_keys": self.top_keys,
            "by_query": self.by_query,
            "heads": cache.heads,
            "group": cache.heads // kv_heads,
            "queries": self.queries,
            "keys": self.keys,
            "scale": float(cache.scale),
            "softcap": float(cache.softcap),
            "query_head": dim * cache.layers[0].itemsize,
            "key_head": steps[0],
            "key_row": steps[1],
            "sink_head": 1,
            "units": self.units,
            "requests": self.requests,
            "pages": self.pages,
            "layers": self.layers,
            "places": self.places,
            "page_step": cache.layers[0].stride(0),
            "reach": _ALL if cache.before is None else cache.before,
        }
        with on_device(self.device):
            KERNEL[self.tiles * self.places,](
                **arguments,
                DIM=dim,
                BLOCK_DIM=max(16, power_of_two(dim)),
                BLOCK_QUERIES=self.block.queries,
                BLOCK_KEYS=self.block.keys,
                HAS_VISIBLE=False,
                HAS_BIAS=False,
                HAS_TABLE=slopes is not None,
                HAS_SOFTCAP=cache.softcap > 0,
                HAS_SINK=sinks is not None,
                ROWS=rows,
                SHIFTED=not rows,
                KEYED=bool(spec.keyed) and rows,
                FAR=bool(spec.far) and rows,
                RIGHT=width,
                LEFT=0 if left is None else 1,
                TOP=self.top if rows else 0,
                MAP=0,
                PAGED=True,
                SIZE=size,
                STEP=steps[2],
                ALIGNED=self.is_aligned,
                WIDEN=INTERPRETED,
                **options_of(self.block),
            )

    def results(self) -> list[Results]:
        """Copy the results to the CPU, and return those of each request, `[layers, heads, …]`."""
        from glasshead.engines.triton.passes import largest_first

        spec, heads = self.spec, (len(self.cache.layers), self.cache.heads)
        top, keys = self.top_weights, self.top_keys
        if self.top:
            top, keys = largest_first(*(one.view(-1, self.top) for one in (top, keys)), spec.top)
        rows, top, keys = (one.flatten().cpu() for one in (self.rows, top, keys))
        by_query, by_key = self.by_query.cpu(), [(*sizes, one.cpu()) for *sizes, one in self.by_key]
        columns = 0 if spec.per_query is None else spec.per_query.shape[2]
        before, columns_before = (
            begins(self.places * counts).tolist() for counts in (self.counts, self.lengths)
        )

        def of(numbers: Tensor, begin: int, *shape: int) -> Tensor:
            return numbers[begin : begin + self.places * math.prod(shape)].view(*heads, *shape)

        found = []
        for queries, length, row, column in zip(
            self.counts.tolist(), self.lengths.tolist(), before, columns_before, strict=True
        ):
            several = [
                of(one, row * width, width, queries)[:, :, :count] for count, width, one in by_key
            ]
            nothing = rows.new_zeros(*heads, 0)
            found.append(
                Results(
                    context=nothing,
                    rows=of(rows, row * ROW_STATS, ROW_STATS, queries),
                    by_key=torch.cat(several, 2) if several else nothing,
                    top=of(top, row * spec.top, queries, spec.top),
                    keys=of(keys, row * spec.top, queries, spec.top),
                    by_query=of(by_query, column, 1, length).float().expand(-1, -1, columns, -1)
                    if columns
                    else nothing,
                    diagonals=nothing,
                    maps=nothing,
                )
            )
        return found
