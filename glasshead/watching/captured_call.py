"""A captured attention call, the result of the second of the stages of a call.

Here its inputs become a `Problem`, masks of other libraries are read, and its output is compared.
What captures the call of a function is next to what intercepts it, in interception/.
"""

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.engines import REFERENCE
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import Mask, dense
from glasshead.recipe.normalizers import Softmax, SoftmaxOne
from glasshead.recipe.problem import Problem, Trace
from glasshead.recipe.scores import ScaledDot
from glasshead.recipe.tile import Span, Tile
from glasshead.watching.module_calls import ModuleCall, ModuleRun
from glasshead.watching.one_pass import OnePass
from glasshead.watching.sharding import Shard
from glasshead.watching.single_query import RowRule, ScoreRow, operands_of


def position_among(
    queries: int, keys: int, visible: Bool[Tensor, "... #queries #keys"] | None
) -> int:
    """Return the position of query 0 among the keys, from the mask of a causal attention.

    In a growing text a query sees no key after its own, so the last visible key is its own, unless
    the text is shorter than others of its batch. A static cache has room for later keys, so fewer
    than keys - queries may precede the first query; never more.

    >>> position_among(1, 7, None)
    6
    >>> position_among(1, 7, torch.tensor([[True, True, True, True, False, False, False]]))
    3
    """
    last = keys - queries
    if visible is None or last <= 0:
        return max(last, 0)
    visible = visible.expand(*visible.shape[:-2], queries, keys)
    places = torch.arange(keys, device=visible.device)
    own = torch.where(visible, places, -1).amax(-1) - torch.arange(queries, device=visible.device)
    return max(0, min(last, int(own.max())))


@dataclass(frozen=True, eq=False)
class OutputGradient:
    """The place where the gradient of an attention's output arrives in a backward pass.

    Attributes:
        output: The output as autograd knows it.
        of_heads: Returns the gradient of the context of each head, from that of the output.
        values: Returns the values, `[*batch, kv_heads, keys, value_dim]`.
        drops: Whether weights were dropped, so that the context is not of them.
    """

    output: Tensor
    of_heads: Callable[[Tensor], Tensor]
    values: Callable[[], Tensor]
    drops: bool = False


class SiteCall(NamedTuple):
    """A call of `F.scaled_dot_product_attention` in compiled code, by its tensors.

    Attributes:
        place: Where it is in that code, which fixes all its other arguments.
        query, key, value: As given, `[batch, heads, length, dim]`.
        mask: Its mask, as given; None: it has none.
    """

    place: object
    query: Float[Tensor, "..."]
    key: Float[Tensor, "..."]
    value: Float[Tensor, "..."]
    mask: Tensor | None

    @property
    def metadata(self) -> tuple[Any, ...]:
        """Shapes, dtypes and device, which calls share that are computed alike."""
        query, key = self.query, self.key
        return query.shape, key.shape, query.dtype, key.dtype, query.device, self.mask is None


@dataclass(frozen=True, eq=False)
class CapturedCall:
    """A captured attention call: inputs, mask, scale and output.

    Attributes:
        problem: The computation, without dropout.
        position: Position of the first query in the text, where a cache gives it.
        sliding: Whether the keys are the last of those given to the module so far, as with a
            sliding-window cache.
        crossing: Whether it is cross-attention: its keys belong to another text than its queries.
        compressed: Number of its last keys that each stand for several earlier tokens.
        over_features: Whether its queries and keys are the features of a head, and not tokens.
        real: Which queries are real tokens, `[batch, queries]`, and not padding, where its module
            was told; None: that is to be found.
        logsumexp: Logsumexp of each row, `[*batch, heads, queries]`, where the kernel returned it.
        output: The model's own output, to compare ours with; None if dropout or a projection
            comes between.
        follows: Compares the model's own output with ours, where the problem has not its values;
            None: `output` is compared.
        gradient: Where the gradient of its output arrives; None if that is not to be had.
        context: Returns the output of its heads, dropout included; None if it is not to be had.
        by_hand: The steps of attention that is written by hand, in words.
        trace: Computes every step of it; None if it was not asked for, or is not by hand.
        shards: Which of its heads and queries this rank computes, where its inputs tell.
        site: Where it is in compiled code; None if it is not, or takes other arguments.
        one_pass: The statistics that were computed with its output; None: the model's kernel ran.
    """

    problem: Problem
    position: int | None = None
    sliding: bool = False
    crossing: bool = False
    compressed: int = 0
    over_features: bool = False
    real: Bool[Tensor, "batch queries"] | None = None
    logsumexp: Float[Tensor, "*batch heads queries"] | None = None
    output: Float[Tensor, "*batch heads queries value_dim"] | None = None
    follows: Callable[[], bool] | None = None
    gradient: OutputGradient | None = None
    context: Callable[[], Tensor] | None = None
    by_hand: str | None = None
    trace: Callable[[], Trace] | None = None
    shards: tuple[Shard, ...] = ()
    site: SiteCall | None = None
    one_pass: OnePass | None = None

    @property
    def queries(self) -> int:
        """Number of queries."""
        return self.problem.query.shape[-2]

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape of the axes before heads and queries."""
        return self.problem.query.shape[:-3]

    @property
    def rows(self) -> int:
        """Number of rows of the batch."""
        return math.prod(self.batch)


class ComparableCall:
    """Capture of a call, whose arguments can be compared with those of another call."""

    def __call__(self) -> CapturedCall:
        """Capture the call."""
        raise NotImplementedError

    def fingerprint(self, captured: CapturedCall) -> Any:
        """Return a fingerprint of its arguments, without its tensors; None if there is none.

        Args:
            captured: The call as it was captured.
        """
        raise NotImplementedError

    def captured_like(self, fingerprint: Any, first: CapturedCall) -> CapturedCall | None:
        """Capture the call as another one; None if their arguments differ.

        Args:
            fingerprint: Of the other one.
            first: The other one as it was captured, without numbers.
        """
        raise NotImplementedError


class CapturedOnce:
    """Capture of a call, made once for all who ask.

    Attributes:
        comparable: The same, if the call can be compared with others; else None.
    """

    __slots__ = ("_capture", "_captured", "comparable")

    def __init__(self, capture: Callable[[], CapturedCall]) -> None:
        self._capture = capture
        self._captured: CapturedCall | None = None
        self.comparable = capture if isinstance(capture, ComparableCall) else None

    def __call__(self) -> CapturedCall:
        """Capture the call, unless that was done."""
        if self._captured is None:
            self._captured = self._capture()
        return self._captured


class AttentionCall(NamedTuple):
    """A captured call, and where it is in the run of the model.

    Attributes:
        name: Name of its attention.
        captured: The captured call.
        calls: The module calls in progress, innermost first.
        run: The run of its module.
    """

    name: str
    captured: CapturedCall
    calls: Sequence[ModuleCall]
    run: ModuleRun


# Nobody writes to these, and making a module takes longer than a step of attention.
_scaled_dot = lru_cache(maxsize=64)(ScaledDot)
_SOFTMAX = Softmax()


def problem_from_inputs(
    query: Float[Tensor, "... queries dim"],
    key: Float[Tensor, "... keys dim"],
    value: Float[Tensor, "... keys value_dim"],
    *,
    scale: float | None,
    offset: int,
    mask: Mask | None = None,
    bias: Bias | Tensor | None = None,
    softcap: float | None = None,
    sinks: Float[Tensor, " heads"] | None = None,
) -> Problem:
    """Build a problem, with heads, from the inputs of another library's softmax attention.

    Args:
        query, key, value: Tensors of two axes or more; batch axes broadcast.
        scale: Factor of the scores; 1/√dim if not given.
        offset: Position of query 0 among the keys.
        mask, bias, softcap, sinks: Parts of a recipe.
    """
    query, key, value = (x.detach() for x in (query, key, value))
    while query.ndim < 4:
        query, key, value = (x.unsqueeze(0 if x.ndim < 3 else -3) for x in (query, key, value))
    if not query.shape[:-3] == key.shape[:-3] == value.shape[:-3]:
        batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3])
        query, key, value = (x.expand(*batch, *x.shape[-3:]) for x in (query, key, value))
    problem = Problem(
        query=query,
        key=key,
        value=value,
        score=_scaled_dot(None if scale is None else float(scale)),
        softcap=softcap,
        biases=() if bias is None else (bias.detach() if isinstance(bias, Tensor) else bias,),
        mask=mask,
        normalizer=_SOFTMAX if sinks is None else SoftmaxOne(sinks.detach()),
        dropout=0.0,
        offset=offset,
        axes=max(4, query.ndim),
    )
    problem.check()
    return problem


def first_keys(problem: Problem, count: int) -> Problem:
    """Drop all keys after the first `count`, if they are hidden."""
    mask, biases = problem.mask, problem.biases
    if count >= problem.scores_shape[-1] or mask is None:
        return problem
    visible = mask.visible(problem.tile())
    if visible.shape[-1] > 1:
        if bool(visible[..., count:].any()):
            # Keys that are not later tokens, such as compressed ones.
            return problem
        visible = visible[..., :count]
    mask = dense(visible)
    cut = tuple(
        bias[..., :count] if isinstance(bias, Tensor) and bias.shape[-1] > 1 else bias
        for bias in biases
    )
    key, value = (x[..., :count, :] for x in (problem.key, problem.value))
    return replace(problem, key=key, value=value, mask=mask, biases=cut)


@dataclass(eq=False)
class ConvertedMask:
    """The mask and bias of a mask tensor.

    Attributes:
        mask: The mask; None: all pairs are visible.
        bias: A tensor to add to the scores; None: no bias.
        visible: The mask as a boolean tensor, broadcastable to `[batch, heads, queries, keys]`.
    """

    mask: Mask | None = None
    bias: Tensor | None = None
    visible: Bool[Tensor, "..."] | None = None

    def __post_init__(self) -> None:
        # What follows for one layer follows for all that get the same mask.
        self._position: tuple[int, int, int] | None = None
        self._first: tuple[int, ConvertedMask] | None = None

    def position(self, queries: int, keys: int) -> int:
        """Return the position of query 0 among the keys, as of `position_among`."""
        if self._position is None or self._position[:2] != (queries, keys):
            self._position = queries, keys, position_among(queries, keys, self.visible)
        return self._position[2]

    def first(self, count: int) -> "ConvertedMask":
        """Return the mask and bias of the first `count` keys."""
        if self._first is None or self._first[0] != count:
            visible = _first(self.visible, count)
            mask = None if self.mask is None or visible is None else dense(visible)
            self._first = count, ConvertedMask(mask, _first(self.bias, count), visible)
        return self._first[1]


def _first(tensor: Tensor | None, count: int) -> Tensor | None:
    """Return a mask or bias of the first keys, unless it is the same for all."""
    if tensor is None or tensor.ndim == 0 or tensor.shape[-1] == 1:
        return tensor
    return tensor[..., :count]


# A mask with as many numbers is copied without a thought, such as that of a query in generation.
_SMALL = 2**14


class MaskReader:
    """Converts mask tensors, once for all layers that get the same few."""

    def __init__(self) -> None:
        # The last conversions: the tensor, a copy of its values, and the result.
        self.last: list[tuple[weakref.ref[Tensor], Tensor, ConvertedMask]] = []
        # Those of small masks: the copy, and the result.
        self._small: list[tuple[Tensor, ConvertedMask]] = []

    def read(self, tensor: Tensor | None) -> ConvertedMask:
        """Convert a mask tensor: boolean, True = may attend, or additive.

        Of an additive mask, -inf hides a pair, and so does a value near the lowest of the dtype,
        which libraries use instead; other values are a bias.

        A tensor with the same values as before is not converted again. The values are compared, as
        a model may write to its mask through `.data`, which leaves its version unchanged.
        """
        if tensor is None:
            return ConvertedMask()
        given = tensor.detach()
        if given.numel() <= _SMALL:
            return self._read_small(given)
        if given.dtype == torch.bool:
            return ConvertedMask(dense(given), None, given)
        for known, numbers, read in self.last:
            if known() is tensor and numbers.shape == given.shape and torch.equal(numbers, given):
                return read
        read = _read(given)
        others = [one for one in self.last if one[0]() is not tensor]
        self.last[:] = [(weakref.ref(tensor, self._forget_one), given.clone(), read), *others[:3]]
        return read

    def _read_small(self, given: Tensor) -> ConvertedMask:
        """Convert a mask of few pairs, whose copy takes no memory worth the name."""
        for place, (known, read) in enumerate(self._small):
            alike = known.shape == given.shape and known.dtype == given.dtype
            if alike and known.device == given.device and torch.equal(known, given):
                # That of a window stays the same while those of other layers grow.
                self._small.insert(0, self._small.pop(place))
                return read
        own = given.clone()
        read = ConvertedMask(dense(own), None, own) if own.dtype == torch.bool else _read(own)
        self._small[:] = [(own, read), *self._small[:3]]
        return read

    def forget(self) -> None:
        """Drop all conversions."""
        self.last.clear()
        self._small.clear()

    def _forget_one(self, gone: "weakref.ref[Tensor]") -> None:
        """Drop the conversion of a tensor that has been freed."""
        self.last[:] = [one for one in self.last if one[0] is not gone]


def _read(tensor: Tensor) -> ConvertedMask:
    # Half of it, as the lowest number of bfloat16 may have been cast to float32.
    hidden = tensor <= torch.finfo(tensor.dtype).min / 2
    bias = tensor.masked_fill(hidden, 0.0)
    visible = ~hidden
    return ConvertedMask(
        None if bool(visible.all()) else dense(visible), bias if bool(bias.any()) else None, visible
    )


def hiding_limit(lowest: torch.dtype) -> float:
    """Return the largest score that hides a key, by -inf or by the lowest number of a type.

    A mask of that number may have been scaled since.
    """
    return torch.finfo(lowest).min / (2 if lowest == torch.float16 else 1e6)


# Tolerances of a model's output, relative to the largest value.
_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 1e-2}
_COARSE = 4e-2


def tolerance_of(dtype: torch.dtype) -> float:
    """Return how far rounding may take an output from what follows from its inputs.

    Relative to the largest value.
    """
    return _TOLERANCES.get(dtype, _COARSE)


def within(theirs: Tensor, ours: Tensor, limit: Tensor | float) -> bool:
    """Return whether all numbers are within a limit of others; NaN is within none.

    Args:
        theirs, ours: The numbers.
        limit: The largest difference; an infinite one compares nothing, and holds for nothing.
    """
    return math.isfinite(limit) and bool(((theirs - ours).abs() <= limit).all())


def agrees(theirs: Tensor, ours: Tensor) -> bool:
    """Return whether a model's output is ours, within the rounding of its dtype."""
    largest = float(ours.abs().amax()) if ours.numel() else 0.0
    return within(theirs, ours, tolerance_of(theirs.dtype) * max(largest, 1e-30))


def with_own_context(trace: Trace, made: Tensor | None) -> Trace | None:
    """Return a trace whose context is NaN where the model's is; None if that is another.

    For a query that sees no key, models give 0, NaN or the mean of the values; any of these is
    taken as it is.

    Args:
        trace: The steps that follow from the model's inputs.
        made: The output of the model's heads, laid out as the context; None: it does not show.
    """
    if made is None:
        return trace
    tolerance, made = tolerance_of(made.dtype), made.to(trace.context)
    empty = trace.weights.sum(-1, keepdim=True) == 0
    # Kernels multiply a hidden value by 0, which is NaN where that is.
    given = bool(trace.values.isfinite().all())
    undefined = made.isnan() & (trace.context.isnan() | (not given))
    finite = trace.context.masked_fill(undefined | empty, 0.0)
    largest = finite.abs().amax() if finite.numel() else finite.new_zeros(())
    limit = tolerance * largest.clamp(min=1e-30)
    same = ((made - trace.context).abs() <= limit) | undefined | empty
    if not bool(same.all()):
        return None
    return replace(trace, context=torch.where(undefined | empty, made, trace.context))


def output_mismatch(captured: CapturedCall) -> str | None:
    """Return what the model gave other than what its inputs should give; None for the same.

    Only the first and the last row are compared: a misread mask, scale or bias changes one of them.
    Empty rows are skipped, as libraries fill them in different ways.
    """
    if captured.follows is not None:
        return None if captured.follows() else _ANOTHER
    if captured.output is None or not captured.output.numel():
        return None
    if 0 in captured.problem.scores_shape:
        return None
    problem, output = captured.problem, captured.output
    tolerance = tolerance_of(output.dtype)
    for row in sorted({0, captured.queries - 1}):
        tile, theirs = _tile_of(problem, row), output[..., row, :].to(problem.dtype)
        rule = RowRule.of(problem, tile)
        operands = operands_of(problem, tile)
        kernels = None if rule is None else rule.by_kernel(*operands)
        # It is the faster look, which a context that is NaN or of hidden keys does not pass.
        if kernels is not None and _is_near(theirs, kernels.to(theirs.dtype), tolerance):
            continue
        ours, sees = _row(problem, tile, None if rule is None else rule.row(*operands[:2]))
        if _is_near(theirs, ours, tolerance):
            continue
        difference = (ours - theirs).abs()
        near = difference <= (tolerance * _largest(problem, tile)).unsqueeze(-1)
        if not bool((near.all(-1) | ~sees).all()):
            wrong = ~near & sees.unsqueeze(-1) & ~_undefined(problem, theirs, ours)
            if bool(wrong.any()):
                return "NaN" if bool((theirs.isnan() & wrong).any()) else _ANOTHER
    return None


_ANOTHER = "another output"


def _is_near(theirs: Tensor, ours: Tensor, tolerance: float) -> bool:
    """Return whether a context is ours, relative to the largest number of each head.

    A mean is at most the largest of the values, which take longer to look through.
    """
    limit = tolerance * ours.abs().amax(-1, keepdim=True)
    return bool(((ours - theirs).abs() <= limit).all())


def _undefined(problem: Problem, theirs: Tensor, ours: Tensor) -> Tensor:
    """Return which numbers cannot be compared: NaN or infinite by the inputs, or by an overflow.

    Kernels multiply a hidden key or value by 0, which may be NaN where ours is not. Of finite
    inputs ours are NaN where scores overflow, and so are the statistics.
    """
    inputs = problem.query, problem.key, problem.value
    if all(bool(one.isfinite().all()) for one in inputs):
        return ~ours.isfinite()
    return ~theirs.isfinite()


def _tile_of(problem: Problem, row: int) -> Tile:
    """Return the tile of one query, and of the keys between the first and the last that it sees."""
    tile = replace(problem.tile(), queries=Span(row, row + 1))
    if problem.mask is None:
        return tile
    seen = problem.mask.key_range(tile)
    return replace(tile, keys=Span(seen.start, max(seen.stop, seen.start + 1)))


def _row(problem: Problem, tile: Tile, known: ScoreRow | None) -> tuple[Tensor, Tensor]:
    """Compute the context of one query.

    Args:
        problem: The problem.
        tile: The query, and the keys that it may see.
        known: Its row of scores; None: only the reference computes it.

    Returns: the context, `[*batch, heads, value_dim]`, and whether the query sees any key,
    `[*batch, heads]`.
    """
    if known is None:
        rows = REFERENCE.part(problem, tile)
        weights, sees = rows.weights, ~rows.empty()
    else:
        weights = problem.normalizer(known.scores, known.visible)
        every = weights.new_ones(weights.shape[:-1], dtype=torch.bool)
        sees = every if known.visible is None else every & known.visible.any(-1)
    value = _values_of(problem, tile).to(weights.dtype)
    context = _weighed(weights, value, problem.group)
    if not context.isfinite().all():
        # A hidden value may be NaN, and 0 · NaN is NaN.
        context = _weighed(weights, value.nan_to_num(0.0, 0.0, 0.0), problem.group)
    return context, sees[..., 0]


def _weighed(weights: Tensor, value: Tensor, group: int) -> Tensor:
    """Return the context of one query, `[*batch, heads, value_dim]`."""
    if group == 1:
        return (weights @ value)[..., 0, :]
    # The heads of a group read the same values, as queries of one head would.
    return (weights.squeeze(-2).unflatten(-2, (-1, group)) @ value).flatten(-3, -2)


def _largest(problem: Problem, tile: Tile) -> Tensor:
    """Return the largest magnitude among the finite values of a tile, `[*batch, heads]`."""
    value = _values_of(problem, tile).to(problem.dtype)
    # Many times as fast as a norm.
    largest = value.abs().amax((-2, -1)) if value.shape[-1] else value.new_zeros(value.shape[:-2])
    if not largest.isfinite().all():
        largest = value.nan_to_num(0.0, 0.0, 0.0).abs().amax((-2, -1))
    return largest if problem.group == 1 else largest.repeat_interleave(problem.group, -1)


def _values_of(problem: Problem, tile: Tile) -> Tensor:
    return problem.value[..., tile.keys.start : tile.keys.stop, :]
