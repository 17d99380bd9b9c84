"""Passes over the scores on a CUDA device: operands, launches, and results of the kernel."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glasshead.engines.streaming.engine import lower_recipe
from glasshead.engines.streaming.kernels.streamed import FACTOR, LOG_SUM
from glasshead.engines.streaming.operands import (
    LoweredProblem,
    allocated,
    asked_for,
    results_of,
)
from glasshead.engines.triton.kernels import INTERPRETED, NOT_PAGED, reduce_weights
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import four_axes
from glasshead.statistics.reductions import Largest, Reduction

# Columns of P·R and of Pᵀ·L in one launch; more take further ones.
COLUMNS = 8
# Pairs of a mask's rule that are evaluated at a time.
_PAIRS = 2**26
# How far the weights of a row, by a logsumexp that another kernel gave, may be from their own sum.
_AGREES = 2e-5


class Blocks(NamedTuple):
    """Size of a block, and what a multiprocessor gives it; chosen so that nothing is spilled."""

    queries: int
    keys: int
    warps: int
    stages: int


def blocks_for(dtype: torch.dtype, dim: int, *, top: bool, pairs: bool) -> Blocks:
    """Return the block size for a dtype and width.

    The sizes are fixed, because trying several takes a device and some seconds.

    Args:
        dtype, dim: Of queries and keys.
        top: Whether the largest weights of each row are listed.
        pairs: Whether numbers of each pair are read: a mask, or biases.
    """
    if dtype == torch.float32:
        return Blocks(32, 32, 4, 1) if dim > 128 else Blocks(64, 32, 4, 2)
    if top or pairs:
        return Blocks(64, 32, 8 if pairs else 4, 2)
    return Blocks(128, 64, 8, 3) if dim <= 64 else Blocks(64, 64, 4, 2)


class _Stripe(NamedTuple):
    """Some queries, the pairs of them that a rule shows, and where those begin."""

    first: int
    last: int
    bounds: Tensor
    visible: Tensor | None
    first_key: int


class _Columns(NamedTuple):
    """Columns of R and of L, and the map, that one launch sums."""

    right: slice
    left: slice
    map: int | None


def reduce(
    problem: Problem, reductions: Sequence[Reduction], logsumexp: Tensor | None
) -> list[tuple[Tensor, ...]]:
    """Compute reductions that the kernel knows, `[*batch, heads, …]` each.

    Args:
        problem: Of inner products and exponentials.
        reductions: What is asked of it.
        logsumexp: Of each row, `[*batch, heads, queries]`, as a fused kernel gave it. With it one
            pass does; where the weights that it makes do not sum to 1, it is not used.
    """
    one = _Passes(problem, reductions)
    if logsumexp is None or not one.sum_rows_and_columns(logsumexp):
        one.alone()
    return one.results()


class _Passes:
    """The operands and results of one problem, and the launches that fill them."""

    def __init__(self, problem: Problem, reductions: Sequence[Reduction]) -> None:
        # The kernel finds the largest scores with their keys, or not at all.
        reductions = [one.joined(Largest()) or one for one in reductions]
        self.problem, self.reductions = problem, reductions
        query, key, scale = problem.scaled_features(problem.query, problem.key)
        self.query, self.key = (
            _contiguous(four_axes(x, tuple(x.shape[:-3]))) for x in (query, key)
        )
        self.recipe = lower_recipe(problem)._replace(scale=scale)
        self.spec = asked_for(problem, reductions)
        lowered = LoweredProblem(self.query, self.key, None, self.recipe)
        self.found = allocated(lowered, self.spec, self._zeros)
        # Sums over queries, in float64: the order of adding is not fixed.
        self.by_query, self.maps = self.found.by_query.double(), self.found.maps.double()
        self.shifts = self._zeros(tuple(self.query.shape[:-1]), torch.float32)

    def _zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.query.device)

    def sum_rows_and_columns(self, logsumexp: Tensor) -> bool:
        """Sum rows and columns in one pass, and return whether the logsumexp is that of the rows.

        Rows where it is 0 or infinite are those that see nothing, of which kernels tell that.
        """
        known = logsumexp.reshape(self.query.shape[:-1]).to(torch.float32).contiguous()
        launches = self._launches()
        for stripe in self._stripes():
            self._launch(stripe, known, launches[0], rows=True, shifted=True)
        own, factor = (self.found.rows[:, :, row] for row in (LOG_SUM, FACTOR))
        nothing = own.isneginf() & ((known == 0) | known.isinf())
        # The sums themselves, as a large logsumexp is rounded; the comparison is False for NaN.
        agrees = ((factor - 1.0).abs() <= _AGREES) | nothing
        if not bool(agrees.all()):
            for sums in (self.by_query, self.maps):
                sums.zero_()
            return False
        self.shifts.copy_(known)
        self.found.rows[:, :, FACTOR] = torch.where(nothing, 0.0, 1.0)
        self._rest(launches[1:])
        return True

    def alone(self) -> None:
        """Sum rows in one pass, and columns, which take whole rows, in a second."""
        first, *others = self._launches()
        of_rows = first._replace(left=slice(0, 0), map=None)
        for stripe in self._stripes():
            self._launch(stripe, self.shifts, of_rows, rows=True, shifted=False)
        of_columns = first._replace(right=slice(0, 0))
        self._rest([of_columns, *others] if of_columns != _NONE else others)

    def _rest(self, launches: Sequence[_Columns]) -> None:
        for columns in launches:
            for stripe in self._stripes():
                self._launch(stripe, self.shifts, columns, rows=False, shifted=True)

    def _launches(self) -> list[_Columns]:
        """Divide columns and maps among launches, of which the first sums along rows, too."""
        spec = self.spec
        right, left = (0 if x is None else x.shape[2] for x in (spec.per_key, spec.per_query))
        maps = len(spec.maps) // 2
        count = max(1, -(-right // COLUMNS), -(-left // COLUMNS), maps)
        return [
            _Columns(
                slice(n * COLUMNS, min((n + 1) * COLUMNS, right)) if n * COLUMNS < right else _NO,
                slice(n * COLUMNS, min((n + 1) * COLUMNS, left)) if n * COLUMNS < left else _NO,
                n if n < maps else None,
            )
            for n in range(count)
        ]

    def _stripes(self) -> Iterator[_Stripe]:
        """Yield all queries, or, of a mask's rule, some at a time with what it shows of them."""
        recipe, (queries, keys) = self.recipe, self.problem.scores_shape[-2:]
        if recipe.rule is None:
            yield _Stripe(0, queries, recipe.bounds, recipe.visible, 0)
            return
        height = max(128, _PAIRS // keys // 128 * 128)
        for first in range(0, queries, height):
            last = min(first + height, queries)
            starts, stops = recipe.bounds[:, :, first:last].unbind(1)
            seeing = starts < stops
            if not bool(seeing.any()):
                start = stop = 0
            else:
                start, stop = int(starts[seeing].min()), int(stops[seeing].max())
            pairs = recipe.rule(range(first, last), range(start, max(stop, start + 1)))
            yield _Stripe(first, last, recipe.bounds, pairs, start)

    def _launch(
        self, stripe: _Stripe, shifts: Tensor, columns: _Columns, *, rows: bool, shifted: bool
    ) -> None:
        """Launch the kernel once: `ROWS` and `SHIFTED` are `rows` and `shifted`."""
        spec, recipe, found = self.spec, self.recipe, self.found
        batch, heads, queries, dim = self.query.shape
        keys = self.key.shape[2]
        right, left = (
            None if operand is None or part == _NO else operand[:, :, part].contiguous()
            for operand, part in ((spec.per_key, columns.right), (spec.per_query, columns.left))
        )
        spans = None if right is None else spans_of(right)
        # The kernel's results of these columns are a tensor of their own.
        width = 0 if right is None else power_of_two(right.shape[2])
        if right is not None and spans is not None:
            right, spans = (padded(x, width) for x in (right, spans))
        by_key = self._zeros((batch, heads, width, queries), torch.float32)
        height = 0 if left is None else left.shape[2]
        by_query = self._zeros((batch, heads, height, keys), torch.float64)
        map_rows, map_columns, kind, cells = 0, 0, 0, self.maps[..., :0]
        if columns.map is not None:
            map_rows, map_columns = spec.maps[2 * columns.map : 2 * columns.map + 2]
            cells = self._zeros((batch, heads, map_rows, map_columns), torch.float64)
        top = power_of_two(spec.top) if spec.top and rows else 0
        sorted_top = self._zeros((batch, heads, queries, top), torch.float32)
        sorted_keys = self._zeros((batch, heads, queries, top), torch.int32)
        read = (stripe.visible, recipe.bias, recipe.table)
        pairs = any(one is not None for one in read)
        block = blocks_for(self.query.dtype, dim, top=bool(top), pairs=pairs)
        if columns.map is not None:
            kind = 1 if map_columns * block.keys <= 4 * keys else 2
        table, sink = recipe.table, recipe.sink
        grid = (-(-(stripe.last - stripe.first) // block.queries) * batch * heads,)
        with on_device(self.query.device):
            KERNEL[grid](
                self.query,
                self.key,
                stripe.bounds,
                recipe.offsets,
                stripe.visible if stripe.visible is None else stripe.visible.view(torch.uint8),
                recipe.bias,
                table,
                sink,
                right,
                spans,
                left,
                shifts,
                found.rows,
                by_key,
                sorted_top,
                sorted_keys,
                by_query,
                cells,
                heads,
                heads // self.key.shape[1],
                queries,
                keys,
                stripe.first,
                stripe.last,
                stripe.first if recipe.rule is not None else 0,
                stripe.first_key,
                map_rows,
                map_columns,
                recipe.scale,
                recipe.softcap,
                *self.query.stride()[:3],
                *self.key.stride()[:3],
                _step(stripe.bounds, 0),
                _step(recipe.offsets, 0),
                *_steps(stripe.visible, 4),
                *_steps(recipe.bias, 4),
                *_steps(table, 2),
                *_steps(sink, 1),
                *_steps(right, 2),
                *_steps(spans, 2),
                *_steps(left, 2),
                *NOT_PAGED,
                DIM=dim,
                BLOCK_DIM=max(16, power_of_two(dim)),
                BLOCK_QUERIES=block.queries,
                BLOCK_KEYS=block.keys,
                HAS_VISIBLE=stripe.visible is not None,
                HAS_BIAS=recipe.bias is not None,
                HAS_TABLE=table is not None,
                HAS_SOFTCAP=recipe.softcap > 0,
                HAS_SINK=sink is not None,
                ROWS=rows,
                SHIFTED=shifted,
                KEYED=bool(spec.keyed) and rows,
                FAR=bool(spec.far) and rows,
                RIGHT=width,
                LEFT=height,
                TOP=top,
                MAP=kind,
                PAGED=False,
                SIZE=1,
                STEP=1,
                ALIGNED=False,
                WIDEN=INTERPRETED,
                **options_of(block),
            )
        some = slice(stripe.first, stripe.last)
        if width:
            count = columns.right.stop - columns.right.start
            found.by_key[:, :, columns.right, some] = by_key[:, :, :count, some]
        if height:
            self.by_query[:, :, columns.left] += by_query
        if columns.map is not None:
            self._map(columns.map).add_(cells)
        if top:
            self._sort(sorted_top[:, :, some], sorted_keys[:, :, some], some)

    def _map(self, number: int) -> Tensor:
        """Return the numbers of one map, `[batch, heads, rows, columns]`, as a view."""
        sizes = list(zip(self.spec.maps[::2], self.spec.maps[1::2], strict=True))
        first = sum(rows * columns for rows, columns in sizes[:number])
        rows, columns = sizes[number]
        return self.maps[..., first : first + rows * columns].unflatten(-1, (rows, columns))

    def _sort(self, weights: Tensor, keys: Tensor, some: slice) -> None:
        """Store the largest weights of some rows, sorted."""
        weights, keys = largest_first(weights, keys, self.spec.top)
        width = weights.shape[-1]
        self.found.top[:, :, some, :width] = weights
        self.found.keys[:, :, some, :width] = keys

    def results(self) -> list[tuple[Tensor, ...]]:
        """Return the results of each reduction."""
        found = self.found._replace(by_query=self.by_query, maps=self.maps)
        exact = self.found.rows.dtype
        return [
            tuple(part.to(exact) if part.is_floating_point() else part for part in parts)
            for parts in results_of(found, self.problem, self.reductions)
        ]


KERNEL: Any = reduce_weights
_NO = slice(0, 0)
_NONE = _Columns(_NO, _NO, None)


def largest_first(weights: Tensor, keys: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return so many of the weights along the last axis, and their keys.

    The largest come first; of equals, the lower key first.
    """
    last = torch.iinfo(keys.dtype).max
    keys, order = keys.masked_fill(keys < 0, last).sort(dim=-1)
    weights, by_weight = weights.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    keys, weights = keys.gather(-1, by_weight)[..., :count], weights[..., :count]
    # NaN and 0 are no weights that a key could be named for.
    return weights, keys.where(weights > 0, -1).long()


def options_of(block: Blocks) -> dict[str, Any]:
    """Return the options of a launch."""
    # Versions of Triton differ in what they take for granted.
    return {"num_warps": block.warps, "num_stages": block.stages, "enable_fp_fusion": True}


def power_of_two(number: int) -> int:
    """Return the least power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


def _contiguous(vectors: Tensor) -> Tensor:
    """Return vectors whose numbers follow each other in memory."""
    vectors = vectors.detach()
    return vectors if vectors.stride(-1) == 1 else vectors.contiguous()


def _step(tensor: Tensor, axis: int) -> int:
    """Return the stride of an axis, 0 if it broadcasts."""
    return tensor.stride(axis) if tensor.shape[axis] > 1 else 0


def _steps(tensor: Tensor | None, axes: int) -> list[int]:
    """Return the strides of the first axes, 0 if they broadcast or there is no tensor."""
    return [0] * axes if tensor is None else [_step(tensor, axis) for axis in range(axes)]


def spans_of(right: Tensor) -> Tensor:
    """Return where each row of `[…, r, keys]` begins and ends to be other than 0, `[…, r, 2]`."""
    keys = right.shape[-1]
    places = torch.arange(keys, device=right.device, dtype=torch.int32)
    present = right != 0
    starts = places.where(present, keys).amin(-1)
    stops = (places + 1).where(present, 0).amax(-1)
    return torch.stack([starts, stops], -1).to(torch.int32).contiguous()


def padded(rows: Tensor, count: int) -> Tensor:
    """Append rows of 0 to `[…, r, n]`."""
    missing = count - rows.shape[-2]
    return torch.nn.functional.pad(rows, (0, 0, 0, missing)).contiguous() if missing else rows


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which kernels are launched on this device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
