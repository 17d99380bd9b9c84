"""Lowering of a problem to the tensors that the passes read."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.base import clear_unseen, four_axes, scaled_features
from glasshead.recipe.biases import Bias, bias_values
from glasshead.recipe.masks import Mask
from glasshead.recipe.masks.base import Intervals, split
from glasshead.recipe.masks.kinds import Dense
from glasshead.recipe.normalizers import SoftmaxOne
from glasshead.recipe.problem import Problem, sees_and_seen, visible_pairs
from glasshead.recipe.tile import Span, Tile

VisibleRule = Callable[[range, range], Tensor]


class RecipeTensors(NamedTuple):
    """Tensors and numbers of the recipe that the passes read beside query, key and value.

    Attributes:
        bounds: The first key that each query sees, and the one after the last,
            `[#batch, 2, queries]`; `visible`, `rule` and `bias` hide more of them.
        offsets: The position of query 0 among the keys, `[#batch]`.
        visible: Which pairs are visible, `[#batch, #heads, #queries, #keys]`.
        rule: A function of some queries and keys that returns `visible` for them.
        bias: Added to the scores, `[#batch, #heads, #queries, #keys]`; -inf hides.
        table: Added along the diagonals, `[#batch, #heads, queries + keys - 1]`: pair
            (i, j) reads place queries - 1 - i + j.
        sink: A score without a key for each head, `[#heads]`.
        scale: β.
        softcap: Scores become softcap · tanh(score / softcap); 0 leaves them.
    """

    bounds: Tensor
    offsets: Tensor
    visible: Tensor | None = None
    rule: VisibleRule | None = None
    bias: Tensor | None = None
    table: Tensor | None = None
    sink: Tensor | None = None
    scale: float = 1.0
    softcap: float = 0.0


class Wanted(NamedTuple):
    """Output specification: the sums to compute beside the context.

    Attributes:
        keyed: The key of each row's maximum.
        far: Each row's sum of weights times distance.
        diagonal: The sums along the diagonals.
        top: The number of each row's largest weights.
        maps: The rows and columns of block maps, one map after the other.
        per_key: Right operand R of P·R, `[#batch, #heads, r, keys]`.
        per_query: Left operand L of Pᵀ·L, `[#batch, #heads, l, queries]`.
    """

    keyed: bool = False
    far: bool = False
    diagonal: bool = False
    top: int = 0
    maps: tuple[int, ...] = ()
    per_key: Tensor | None = None
    per_query: Tensor | None = None

    def sizes(self) -> list[tuple[int, int]]:
        """Return the rows and columns of each map."""
        return list(zip(self.maps[::2], self.maps[1::2], strict=True))


def real_of(tensor: Tensor) -> np.dtype:
    """Return the NumPy dtype in which a tensor is computed."""
    return np.dtype(np.float64 if tensor.dtype == torch.float64 else np.float32)


# Queries per block for which a rule's key range is evaluated.
_ROWS = 64


class LoweredProblem(NamedTuple):
    """Query and key whose inner product times β is the score, the values, and the recipe."""

    query: Tensor
    key: Tensor
    value: Tensor
    structure: RecipeTensors


def _is_traced() -> bool:
    """Return whether the call is being traced, so that no mask object can be called later."""
    return torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # type: ignore[reportPrivateImportUsage]


class Rule:
    """A mask without a simpler form, evaluated for one block of pairs at a time."""

    def __init__(self, mask: Mask, tile: Tile, batch: tuple[int, ...]) -> None:
        self.mask, self.tile, self.batch = mask, tile, batch

    def __call__(self, queries: range, keys: range) -> Tensor:
        tile = replace(self.tile, queries=queries, keys=keys)
        return four_axes(visible_pairs(self.mask, tile), self.batch)


def lower(problem: Problem) -> LoweredProblem:
    """Lower a problem to tensors of four axes."""
    batch = tuple(problem.scores_shape[:-3])
    tile = problem.tile()
    mask = None if problem.mask is None else problem.mask.simplified(tile)
    intervals, rest = split(mask, tile)
    bounds = _bounds(problem, intervals, batch)
    visible, rule = None, None
    if rest is not None:
        if isinstance(rest, Dense) or _is_traced():
            visible = _full_keys(four_axes(visible_pairs(rest, tile), batch), problem)
        else:
            rule = Rule(rest, tile, batch)
            bounds = _narrow_bounds(bounds, rest, tile)
    biases, table = _biases(problem, batch)
    query, key, value = _clear_unseen(
        problem, bounds, simple=rest is None and biases is None and table is None
    )
    query, key, scale = scaled_features(problem, query, key)
    query, key, value = (four_axes(x, tuple(x.shape[:-3])) for x in (query, key, value))
    structure = RecipeTensors(
        bounds=bounds,
        offsets=_offsets(problem, batch),
        visible=visible,
        rule=rule,
        bias=biases,
        table=table,
        sink=_sink(problem),
        scale=scale,
        softcap=_softcap(problem),
    )
    return LoweredProblem(query, key, value, structure)


def seen_pairs(problem: Problem) -> int | None:
    """Count the pairs within each query's first and last visible key, over batch and heads.

    None where that cannot be known without evaluating every pair of the mask.
    """
    # A problem on the meta device has no numbers, but a mask has its own.
    device = problem.query.device
    tile = replace(problem.tile(), device=torch.device("cpu") if device.type == "meta" else device)
    mask = None if problem.mask is None else problem.mask.simplified(tile)
    intervals, rest = split(mask, tile)
    *batch, heads, queries, keys = problem.scores_shape
    whole = heads
    for size in batch:
        whole *= size
    if intervals is None:
        return None if rest is not None else whole * queries * keys
    seen = (intervals.stops - intervals.starts).double()
    rows = seen.expand(*seen.shape[:-2], queries, 1)
    return int(rows.sum(-2).mean() * whole)


def _bounds(problem: Problem, intervals: Intervals | None, batch: tuple[int, ...]) -> Tensor:
    queries, keys = problem.scores_shape[-2:]
    device = problem.query.device
    if intervals is None:
        starts = torch.zeros(1, queries, dtype=torch.int64, device=device)
        return torch.stack([starts, starts + keys], 1)
    sides = [_rows(side, queries, batch) for side in intervals]
    return torch.stack(torch.broadcast_tensors(*sides), 1).contiguous()


def _rows(side: Tensor, queries: int, batch: tuple[int, ...]) -> Tensor:
    """Reshape `[*leading, #queries, 1]` to `[#batch, queries]`."""
    return four_axes(side, batch)[:, 0, :, 0].expand(-1, queries)


def _narrow_bounds(bounds: Tensor, rest: Mask, tile: Tile) -> Tensor:
    """Narrow the bounds to the keys that a rule shows to each few queries."""
    queries = tile.shape[0]
    bounds = bounds.clone()
    for first in range(0, queries, _ROWS):
        rows = range(first, min(first + _ROWS, queries))
        seen = rest.key_range(replace(tile, queries=rows))
        bounds[:, :, rows.start : rows.stop].clamp_(seen.start, max(seen.start, seen.stop))
    return bounds


def _full_keys(tensor: Tensor, problem: Problem) -> Tensor:
    """Expand the last axis to every key, contiguous in memory."""
    keys = problem.scores_shape[-1]
    if tensor.shape[-1] != keys:
        tensor = tensor.expand(*tensor.shape[:-1], keys)
    if torch.compiler.is_compiling() or tensor.stride(-1) != 1:
        tensor = tensor.contiguous()
    return tensor


def _biases(problem: Problem, batch: tuple[int, ...]) -> tuple[Tensor | None, Tensor | None]:
    """Sum the biases given pair by pair, and those given by distance."""
    tile, pairs, tables = problem.tile(), [], []
    queries, keys = problem.scores_shape[-2:]
    for bias in problem.biases:
        if isinstance(bias, Bias) and bias.by_distance:
            # The last query's row, drawn out, has each distance once.
            row = replace(
                tile, queries=Span(queries - 1, queries), keys=Span(0, queries + keys - 1)
            )
            tables.append(four_axes(bias(row).to(tile.dtype), batch)[..., 0, :])
        else:
            pairs.append(four_axes(bias_values(bias, tile).to(tile.dtype), batch))
    total = reduce(add, pairs) if pairs else None
    if len(pairs) > 1:
        hidden = reduce(torch.logical_or, [x.isneginf() for x in pairs])
        total = cast("Tensor", total).masked_fill(hidden, -torch.inf)
    table = reduce(add, tables) if tables else None
    return (
        None if total is None else _full_keys(total, problem),
        None if table is None else table.contiguous(),
    )


def _softcap(problem: Problem) -> float:
    """Return the softcap, or 0 for none or one so large that it changes no finite score."""
    softcap = problem.softcap
    return 0.0 if softcap is None or softcap > 1e30 else softcap


def _offsets(problem: Problem, batch: tuple[int, ...]) -> Tensor:
    offset, device = problem.offset, problem.query.device
    if not isinstance(offset, Tensor):
        return torch.full((1,), offset, dtype=torch.int64, device=device)
    offset = offset.to(device, torch.int64)
    return offset.reshape(1) if not offset.ndim else offset.expand(batch).flatten()


def _sink(problem: Problem) -> Tensor | None:
    normalizer = problem.normalizer
    if not isinstance(normalizer, SoftmaxOne):
        return None
    sink = torch.as_tensor(normalizer.sink, device=problem.query.device).to(problem.dtype)
    return sink.reshape(-1)


def _clear_unseen(
    problem: Problem, bounds: Tensor, *, simple: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Clear queries that see no key and keys that no query sees, where that is needed."""
    query, key, value = problem.query, problem.key, problem.value
    if problem.mask is None and not problem.biases:
        return query, key, value
    tracing = torch.compiler.is_compiling()
    batch = problem.scores_shape[:-3]
    if simple:
        sees, seen = _seen_by_bounds(bounds, key.shape[-2])
        if not tracing and bool(sees.all() & seen.all()):
            return query, key, value
        shape = batch if len(bounds) > 1 else ()
        sees, seen = (x.reshape(*shape, 1, -1, 1) for x in (sees, seen))
    elif not tracing and all(
        bool(x.detach().sum(dtype=problem.dtype).isfinite()) for x in (query, key, value)
    ):
        # Checking that all inputs are finite is faster than evaluating every pair.
        return query, key, value
    elif tracing:
        _, visible = problem.bias_and_visible(problem.mask, problem.tile())
        if visible is None:
            return query, key, value
        sees, seen = sees_and_seen(visible)
    else:
        sees, seen = _seen_by_blocks(problem)
    return clear_unseen(query, key, value, sees, seen)


def _seen_by_bounds(bounds: Tensor, keys: int) -> tuple[Tensor, Tensor]:
    """Return which queries see a key, and which keys a query sees, `[#batch, length]`."""
    starts, stops = bounds[:, 0].clamp(0, keys), bounds[:, 1].clamp(0, keys)
    sees = starts < stops
    stops = torch.maximum(starts, stops)
    edges = torch.zeros(len(bounds), keys + 1, dtype=torch.int64, device=bounds.device)
    one = torch.ones_like(starts)
    edges = edges.scatter_add(1, starts, one).scatter_add(1, stops, -one)
    return sees, edges.cumsum(1)[:, :keys] > 0


def _seen_by_blocks(problem: Problem) -> tuple[Tensor, Tensor]:
    """Find seeing queries and seen keys for any mask and bias, a few queries at a time."""
    *batch, heads, queries, keys = problem.scores_shape
    sees = torch.ones(*batch, heads, queries, 1, dtype=torch.bool)
    seen = torch.zeros(*batch, 1, keys, 1, dtype=torch.bool)
    for first in range(0, queries, _ROWS):
        last = min(first + _ROWS, queries)
        tile = replace(problem.tile(), queries=range(first, last))
        _, visible = problem.bias_and_visible(problem.mask, tile)
        if visible is None:
            seen[:] = True
            continue
        visible = visible.expand(*visible.shape[:-2], last - first, keys)
        these, those = sees_and_seen(visible)
        sees[..., first:last, :] &= these
        seen |= those
    return sees, seen
