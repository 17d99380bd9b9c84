"""The streaming engine: one pass over blocks of scores, never the full matrix."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial, reduce
from hashlib import blake2b
from operator import add
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.engines.direct import ORDINARY, Direct, is_softmax_of_products
from glasshead.engines.reference import (
    IN_FULL,
    SOFTMAX,
    Cost,
    Observed,
    Price,
    by_rows,
    bytes_by_rows,
)
from glasshead.engines.streaming.operands import (
    LONGEST,
    LoweredProblem,
    RecipeTensors,
    asked_for,
    knows,
    operations_of,
    results_of,
)
from glasshead.engines.streaming.operator import run
from glasshead.recipe.biases import ALiBi, Bias, by_diagonal
from glasshead.recipe.masks.base import Mask, combined
from glasshead.recipe.masks.kinds import LengthMask
from glasshead.recipe.problem import (
    Problem,
    bias_values,
    clear_hidden,
    sees_and_seen,
    visible_pairs,
)
from glasshead.recipe.tile import Intervals, Tile, four_axes
from glasshead.recipe.validation import is_traced, is_transformed, without_autocast
from glasshead.statistics.reductions import Reduction


class Streaming:
    """Engine that computes blocks of queries, each with the keys between its mask's bounds only.

    The products, the softmax and every sum over the weights happen while a block is near the core.
    What the mask hides at either end of a row is not computed.

    Source: Dao et al. 2022 (FlashAttention), section 3.1: blocks, and weights recomputed
    from each row's normalizer in the backward pass.
    """

    name = "streaming"
    about = "compiled blocks of queries on every core, only the keys that they see"

    def refusal(self, problem: Problem) -> str | None:  # noqa: PLR0911 - a reason each
        """Return why the kernels cannot compute it: they need inner products, exp and a CPU."""
        if not problem.score.is_inner_product:
            return f"the score {type(problem.score).__name__} is not an inner product"
        if not problem.normalizer.exponential:
            return f"the weights of {type(problem.normalizer).__name__} are not exponentials"
        if problem.dropout:
            return "it keeps no weights that could be dropped"
        if problem.query.device.type not in ("cpu", "meta"):
            return f"it runs on the CPU, and the inputs are on {problem.query.device.type}"
        if is_differentiated_otherwise(problem):
            return "it has no derivative forwards, nor under the transforms of torch.func"
        if 0 in problem.query.shape or 0 in problem.key.shape or 0 in problem.value.shape:
            return "an axis is empty"
        return None

    def cost(self, problem: Problem) -> Cost:
        """Estimate the cost from the pairs within the mask's bounds, and a few blocks of memory."""
        pairs = seen_pairs(problem)
        pairs = math.prod(problem.scores_shape) if pairs is None else pairs
        keys = problem.scores_shape[-1]
        width, value_width = problem.query.shape[-1], problem.value.shape[-1]
        size = problem.dtype.itemsize
        rows = math.prod(problem.query.shape[:-1])
        # Each thread holds the packed keys of a head, and a block of scores.
        block = min(2**21, 64 * (keys + 64))
        threads = torch.get_num_threads()
        extra = rows * (value_width + 8) * size + threads * (keys * width + block) * size
        return Cost(2 * pairs * (width + value_width), extra + _bias_bytes(problem))

    def price(self, problem: Problem, cost: Cost, reductions: Sequence[Reduction]) -> Price:
        """Estimate what reductions cost: sums within the pass, or rows for those of a user."""
        whole, width = math.prod(problem.scores_shape), problem.query.shape[-1]
        pairs = cost.flops // (2 * (width + problem.value.shape[-1]))
        own, sums = sum(not knows(one) for one in reductions), sum(map(operations_of, reductions))
        plain, sums = SOFTMAX * pairs, sums * pairs
        if not own:
            return Price(plain, 0, sums, 0, 1)
        sums += IN_FULL * (2 + own) * whole
        return Price(plain, 2 * whole * width, sums, bytes_by_rows(problem), 2)

    def is_plain(self, problem: Problem) -> bool:
        """Return whether the context of all heads is one call of machine code, without Python.

        That is where scores are products, a number, a softcap and biases by distance, and what a
        query sees is one range of keys, the same in all batch rows, or cut off by their lengths.
        """
        if (
            self.refusal(problem) is not None
            or not is_softmax_of_products(problem)
            or not all(isinstance(one, Bias) and one.by_distance for one in problem.biases)
            or not _is_ordinary(_sink_of(problem))
            or problem.dtype != torch.float32
            or isinstance(problem.offset, Tensor)
            # Longer calls are to end at Ctrl-C.
            or math.prod(problem.scores_shape) * problem.query.shape[-1] > LONGEST
        ):
            return False
        # llvmlite, which loads machine code, is slow to import.
        from glasshead.engines.streaming.plain_calls import are_there

        if not are_there():
            return False
        lengths, rest = without_lengths(problem)
        if not all(map(_is_readable, lengths)) or len(lengths) > 1:
            return False
        spans = _spans(rest)
        return rest.simplified_mask() is None or (spans is not None and spans.show_all)

    def direct(self, problem: Problem) -> Direct | None:
        """Return what computes the problem in machine code alone, from its inputs as they are.

        It computes all inputs of the same shapes, dtype and device, with a mask that is the same or
        has other lengths, and a sink that is the same or given.
        """
        if problem.query.device.type != "cpu" or not self.is_plain(problem):
            return None
        from glasshead.engines.streaming.plain_calls import PlainCall

        scale, softcap = float(cast("float", problem.scale)), problem.softcap or 0.0
        lengths, rest = without_lengths(problem)
        name = bounds = None
        if rest.simplified_mask() is not None:
            bounds = cast("_Spans", _spans(rest)).bounds
            name = blake2b(bounds.numpy().tobytes()).digest()
        table = _table(problem)
        if isinstance(table, Tensor) and bool(table.isneginf().any()):
            # A pair that is hidden alone may be the only one of a query or a key.
            return None
        by_lengths, sink = bool(lengths), _sink(problem)
        return PlainCall(
            name, bounds, scale, softcap, by_lengths=by_lengths, table=table, sink=sink
        )

    def run(self, problem: Problem) -> Float[Tensor, "*batch heads queries value_dim"]:
        """Compute the context, differentiably."""
        direct = self.direct(problem)
        if direct is not None:
            mask = problem.simplified_mask()
            context = direct(problem.query, problem.key, problem.value, mask)
            if context is not None:
                return context
        return self.observe(problem, ()).context

    def observe(
        self,
        problem: Problem,
        reductions: Sequence[Reduction],
        *,
        gradient: bool = True,
        context: bool = True,
        logsumexp: Tensor | None = None,
    ) -> Observed:
        """Compute context and built-in reductions in one pass; custom reductions take a second.

        Given about the logsumexp of each row, `[*batch, heads, queries]`, it need not find the
        largest scores before the weights.
        """
        with without_autocast(problem.query.device):
            taken = [reduction for reduction in reductions if knows(reduction)]
            lowered, spec = lower(problem), asked_for(problem, taken)
            if not context:
                lowered = lowered._replace(value=None)
            if logsumexp is not None and not spec.keyed:
                lowered = _with_known(lowered, logsumexp)
            results = run(lowered, spec)
            reduced = results_of(results, problem, taken)
            found = dict(zip(map(id, taken), reduced, strict=True))
            if len(taken) < len(reductions):
                others = [reduction for reduction in reductions if not knows(reduction)]
                found |= zip(map(id, others), by_rows(problem, others), strict=True)
        shape = (*problem.query.shape[:-1], results.context.shape[-1])
        made = results.context.reshape(shape).to(problem.query.dtype)
        return Observed(made, [found[id(reduction)] for reduction in reductions])


STREAMING = Streaming()


def is_differentiated_otherwise(problem: Problem) -> bool:
    """Return whether forward-mode autodiff or a transform of torch.func is active."""
    if torch.compiler.is_compiling():
        return False
    level = getattr(torch.autograd.forward_ad, "_current_level", None)
    if level is not None:
        return level >= 0 or is_transformed()
    # A tangent of anything else the operator refuses itself.
    inputs = problem.query, problem.key, problem.value
    tangents = (torch.autograd.forward_ad.unpack_dual(x).tangent for x in inputs)
    return any(tangent is not None for tangent in tangents) or is_transformed()


def _table(problem: Problem) -> Tensor | Callable[[], Tensor] | None:
    """Return the biases along the diagonals; what makes them if that is all that they depend on."""
    if not problem.biases:
        return None
    slopes = [bias for bias in problem.biases if isinstance(bias, ALiBi) and type(bias) is ALiBi]
    if len(slopes) == len(problem.biases):
        return partial(_slopes, tuple(one.heads for one in slopes), problem.tile())
    return _biases(problem, problem.scores_shape[:-3])[1]


@lru_cache(maxsize=8)
def _slopes(heads: tuple[int, ...], tile: Tile) -> Tensor:
    """Return the biases of some `ALiBi` along the diagonals."""
    with torch.inference_mode(mode=False):
        rows = (four_axes(by_diagonal(ALiBi(one), tile), ())[..., 0, :] for one in heads)
        return reduce(add, rows).contiguous()


# Larger scores are rounded so much that weights depend on the order of their operations.
_PRECISE = 256.0


def _with_known(lowered: LoweredProblem, logsumexp: Tensor) -> LoweredProblem:
    """Add about the logsumexp of each row, if the kernels read it and scores are not too large."""
    query, *_, recipe = lowered
    others = recipe.visible, recipe.bias, recipe.table, recipe.rule
    if any(one is not None for one in others) or not bool((logsumexp.abs() <= _PRECISE).all()):
        return lowered
    dtype = torch.promote_types(query.dtype, torch.float32)
    known = logsumexp.detach().to(dtype).reshape(query.shape[:3])
    return lowered._replace(recipe=recipe._replace(known=known))


def without_lengths(problem: Problem) -> tuple[list[Tensor], Problem]:
    """Split a problem into the lengths of its batch rows, and the problem without them."""
    mask = problem.simplified_mask()
    parts = () if mask is None else mask.conjuncts or (mask,)
    lengths = [part.lengths for part in parts if type(part) is LengthMask]
    if not lengths:
        return lengths, problem
    rest = combined([part for part in parts if type(part) is not LengthMask])
    return lengths, problem._once(  # noqa: SLF001
        "without lengths", lambda: problem.with_part_of_mask(rest)
    )


def _is_readable(lengths: Tensor) -> bool:
    """Return whether the lengths of each call can be read, as no transform wraps them."""
    return type(lengths) is Tensor and lengths.device.type == "cpu"


def _bias_bytes(problem: Problem) -> int:
    """Estimate the bytes of biases that the recipe expands pair by pair."""
    total = 0
    for bias in problem.biases:
        if isinstance(bias, Bias) and not bias.by_distance:
            tile = replace(problem.tile(), device=torch.device("meta"))
            total += bias(tile).numel() * problem.dtype.itemsize
    return total


# Queries per block for which a rule's key range is evaluated.
_ROWS = 64


class Rule:
    """A mask without a simpler form, evaluated for one block of pairs at a time."""

    def __init__(self, mask: Mask, tile: Tile, leading: tuple[int, ...]) -> None:
        self.mask, self.tile, self.leading = mask, tile, leading

    def __call__(self, queries: range, keys: range) -> Tensor:
        tile = replace(self.tile, queries=queries, keys=keys)
        return four_axes(visible_pairs(self.mask, tile, self.leading), self.leading[:-1])


def lower(problem: Problem) -> LoweredProblem:
    """Lower a problem to tensors of four axes, as the kernels take them."""
    recipe = lower_recipe(problem)
    visible, bias = (
        None if pairs is None else _full_keys(pairs, problem)
        for pairs in (recipe.visible, recipe.bias)
    )
    parts = recipe.visible, recipe.bias, recipe.table, recipe.rule
    query, key, value = _clear_hidden(
        problem, recipe.bounds, simple=all(part is None for part in parts)
    )
    query, key, scale = problem.scaled_features(query, key)
    query, key, value = (four_axes(x, tuple(x.shape[:-3])) for x in (query, key, value))
    # Not by `_replace`, which PyTorch 2.8 does not trace.
    recipe = RecipeTensors(
        recipe.bounds,
        recipe.offsets,
        visible,
        bias,
        recipe.table,
        recipe.sink,
        recipe.known,
        scale,
        recipe.softcap,
        recipe.rule,
    )
    return LoweredProblem(query, key, value, recipe)


class _Spans(NamedTuple):
    """Spans of keys that queries see by a mask of positions, the same in all heads.

    Attributes:
        bounds: The first key and the one after the last, `[1, 2, queries]`.
        pairs: The pairs of a head.
        show_all: Whether every query sees a key, and every key is seen.
    """

    bounds: Tensor
    pairs: int
    show_all: bool


# Layers and steps of a model have the same masks of positions: the last few are kept.
_SPANS: dict[tuple[object, ...], _Spans | None] = {}
_MOST_SPANS = 8


def _spans(problem: Problem) -> _Spans | None:
    """Return what the queries see, if that follows from positions alone."""
    mask, offset = problem.mask, problem.offset
    if (
        type(problem.query) not in ORDINARY
        or problem.query.device.type not in ("cpu", "meta")
        or type(offset) is not int
        or (mask is not None and mask.of_positions is None)
        or is_traced()
        or is_transformed()
    ):
        return None
    queries, keys = problem.scores_shape[-2:]
    name = mask and mask.of_positions, offset, queries, keys
    # Another thread may clear them at any time.
    with suppress(KeyError):
        return _SPANS[name]
    intervals, rest = problem.key_ranges(counted=True)
    made = None
    if rest is None:
        # Autograd saves no tensor of inference mode.
        with torch.inference_mode(mode=False):
            batch = tuple(problem.scores_shape[:-3])
            bounds = _bounds(problem, intervals, batch, torch.device("cpu")).clone()
            starts, stops = bounds.unbind(1)
            pairs, seen = int((stops - starts).sum()), _seen_by_bounds(bounds, keys)
            made = _Spans(bounds, pairs, all(bool(x.all()) for x in seen))
        if len(bounds) > 1 or type(bounds) is not Tensor:
            return None
    if len(_SPANS) >= _MOST_SPANS:
        _SPANS.clear()
    _SPANS[name] = made
    return made


def lower_recipe(problem: Problem) -> RecipeTensors:
    """Lower what a problem has beside its vectors, and their scale; axes of size 1 broadcast."""
    leading = tuple(problem.scores_shape[:-2])
    batch, tile = leading[:-1], problem.tile()
    spans = _spans(problem)
    intervals, rest = (None, None) if spans is not None else problem.key_ranges()
    if spans is None:
        bounds = _bounds(problem, intervals, batch, problem.query.device)
    else:
        bounds = spans.bounds.to(problem.query.device)
    visible, rule = None, None
    if rest is not None:
        if rest.is_dense or is_traced():
            visible = four_axes(visible_pairs(rest, tile, leading), batch)
        else:
            rule = Rule(rest, tile, leading)
            bounds = _narrow_bounds(bounds, rest, tile)
    bias, table = _biases(problem, batch)
    return RecipeTensors(
        bounds=bounds,
        offsets=_offsets(problem, batch),
        visible=visible,
        bias=bias,
        table=table,
        sink=_sink(problem),
        softcap=problem.softcap or 0.0,
        rule=rule,
    )


def seen_pairs(problem: Problem) -> int | None:
    """Count the pairs within each query's first and last visible key, over batch and heads.

    None if that cannot be known without evaluating every pair of the mask.
    """
    spans = _spans(problem)
    if spans is not None:
        return spans.pairs * math.prod(problem.scores_shape[:-2])
    intervals, rest = problem.key_ranges(counted=True)
    *leading, queries, keys = problem.scores_shape
    whole = math.prod(leading)
    if intervals is None:
        return None if rest is not None else whole * queries * keys
    seen = (intervals.stops - intervals.starts).double()
    rows = seen.expand(*seen.shape[:-2], queries, 1)
    return int(rows.sum(-2).mean() * whole)


def _bounds(
    problem: Problem, intervals: Intervals | None, batch: tuple[int, ...], device: torch.device
) -> Tensor:
    queries, keys = problem.scores_shape[-2:]
    if intervals is None:
        starts = torch.zeros(1, queries, dtype=torch.int64, device=device)
        return torch.stack([starts, starts + keys], 1)
    sides = [four_axes(side, batch)[:, 0, :, 0].expand(-1, queries) for side in intervals]
    return torch.stack(torch.broadcast_tensors(*sides), 1).contiguous()


def _narrow_bounds(bounds: Tensor, rest: Mask, tile: Tile) -> Tensor:
    """Narrow the bounds to the keys that a rule shows to each few queries."""
    queries, keys = tile.shape
    bounds = bounds.clone()
    for first in range(0, queries, _ROWS):
        rows = range(first, min(first + _ROWS, queries))
        seen = rest.key_range(replace(tile, queries=rows))
        start = min(max(seen.start, 0), keys)
        bounds[:, :, rows.start : rows.stop].clamp_(start, min(max(start, seen.stop), keys))
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
    leading, diagonals = problem.scores_shape[:-2], sum(problem.scores_shape[-2:]) - 1
    for bias in problem.biases:
        if isinstance(bias, Bias) and bias.by_distance:
            row = by_diagonal(bias, tile, leading).to(tile.dtype)
            row = row.expand(*row.shape[:-1], diagonals)
            tables.append(four_axes(row, batch)[..., 0, :])
        else:
            pairs.append(four_axes(bias_values(bias, tile, leading).to(tile.dtype), batch))
    total = reduce(add, pairs) if pairs else None
    if len(pairs) > 1:
        hidden = reduce(torch.logical_or, [x.isneginf() for x in pairs])
        total = cast("Tensor", total).masked_fill(hidden, -torch.inf)
    table = reduce(add, tables) if tables else None
    return total, None if table is None else table.contiguous()


def _offsets(problem: Problem, batch: tuple[int, ...]) -> Tensor:
    offset, device = problem.offset, problem.query.device
    if not isinstance(offset, Tensor):
        return torch.full((1,), offset, dtype=torch.int64, device=device)
    offset = offset.to(device, torch.int64)
    return offset.reshape(1) if not offset.ndim else offset.expand(batch).flatten()


def _sink_of(problem: Problem) -> float | Tensor | None:
    return None if problem.normalizer.is_softmax else problem.normalizer.sink_score()


def _is_ordinary(sink: float | Tensor | None) -> bool:
    """Return whether a sink is a number, or a tensor of such that dispatches nothing."""
    return not isinstance(sink, Tensor) or (type(sink) in ORDINARY and sink.device.type == "cpu")


def _sink(problem: Problem) -> Tensor | None:
    sink = _sink_of(problem)
    if sink is None:
        return None
    sink = torch.as_tensor(sink, device=problem.query.device).to(problem.dtype)
    return sink.reshape(-1)


def _clear_hidden(
    problem: Problem, bounds: Tensor, *, simple: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Clear queries that see no key and keys that no query sees, where that is needed."""
    query, key, value = problem.query, problem.key, problem.value
    if (problem.mask is None and not problem.biases) or query.device.type == "meta":
        return query, key, value
    tracing = torch.compiler.is_compiling()
    batch = problem.scores_shape[:-3]
    spans = _spans(problem) if simple else None
    if spans is not None and spans.show_all:
        return query, key, value
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
    return clear_hidden(query, key, value, sees, seen)


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
