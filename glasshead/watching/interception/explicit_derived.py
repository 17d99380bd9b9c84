"""Derive the role, axes and steps of tensors that operators compute in explicit attention.

First products: whether one takes weights to values, or mixes heads. Then all other operators.
"""

import math
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from glasshead.watching.errors import FEATURES
from glasshead.watching.interception.axes import Axis, Product, broadcast, reshaped, whole
from glasshead.watching.interception.explicit_operators import Operator
from glasshead.watching.interception.explicit_records import (
    Change,
    HandWeights,
    HeadMixing,
    LateWeights,
    Record,
    TakenWeights,
    TensorRecords,
    TensorRole,
)

TOGETHER = "combines the weights of several softmaxes"
_LOST = "passes its weights on through {}, after which nothing shows which key one belongs to"
_OTHER_AXIS = "multiplies its weights along another axis than its softmax, axis {axis} of {shape}"
_PARTLY = "takes only a part of the weights of its softmax"
_OWN_VALUES = "gives each query keys of its own, or has heads that look so"


def taken_by(
    record: Record, records: Sequence[Record | None], found: Product, output: Tensor
) -> TakenWeights | None:
    """Return the weights of a softmax that a product took, where it is one with values."""
    weights: HandWeights = record.origin
    side = 0 if records[0] is record else 1
    other = records[1 - side]
    axes = record.axes(found.operands[side])
    if axes is None:
        weights.found.why = _LOST.format(record.lost or "a view")
        return None
    parts = dict(zip(found.labels[side], axes, strict=True))
    own = [part.axis for label in found.own(side) for part in parts[label] if part.axis >= 0]
    queries = _queries(weights, own)
    why = _unlike_values(weights, found, side, parts, queries)
    summed = set(found.summed) & set(features_of(other, found, 1 - side))
    if why is None and (weights.of_features or summed) and not weights.over_features:
        why = FEATURES
    if why is not None:
        weights.found.why = why
        return None
    if other is not None and other.kind is TensorRole.STATIC:
        # Classes or experts, maybe.
        return None
    return TakenWeights(
        scores=weights.scores,  # type: ignore[arg-type] - the softmax is open
        weights=weights,
        after=record.steps,
        found=found,
        side=side,
        parts=parts,
        queries=queries,
        output=output,
    )


def _unlike_values(
    weights: HandWeights,
    found: Product,
    side: int,
    parts: dict[Hashable, Axis],
    queries: int | None,
) -> str | None:
    """Return why a product is not one of each query's weights with values; None where it is.

    Args:
        weights: The softmax.
        found, side: The product, and which of its operands the weights are.
        parts: The axes of the softmax that each label of the weights stands for.
        queries: The axis of the queries.
    """
    whole_axes = whole(weights.shape)
    summed = [part for label in found.summed for part in parts[label]]
    if tuple(summed) != whole_axes[weights.axis]:
        return (
            _PARTLY
            if any(part.axis == weights.axis for part in summed)
            else _OTHER_AXIS.format(axis=weights.axis, shape=list(weights.shape))
        )
    kept = [parts[label] for label in found.labels[side] if label not in found.summed]
    others = [axis for n, axis in enumerate(whole_axes) if n != weights.axis]
    if sorted(p for axis in kept for p in axis if p.axis >= 0) != [p for x in others for p in x]:
        return _PARTLY
    if queries is None and (weights.queries is not None or len(weights.shape) > 2):
        return _OWN_VALUES
    return None


def _queries(weights: HandWeights, own: Sequence[int]) -> int | None:
    """Return the axis of the queries, one of those that the values lack; None without any."""
    if weights.queries is not None:
        return weights.queries if weights.queries in own else None
    if own:
        return own[-1]
    sizes = enumerate(weights.shape)
    return max((n for n, size in sizes if size == 1 and n != weights.axis), default=None)


def mixes(scores: Record, found: Product, side: int) -> bool:
    """Return whether a product with a parameter sums over neither queries nor keys."""
    axes = scores.axes(found.operands[side])
    if axes is None or scores.origin is None:
        return False
    parts = dict(zip(found.labels[side], axes, strict=True))
    summed = {part.axis for label in found.summed for part in parts[label]}
    return summed.isdisjoint(frozenset().union(*scores.origin.sides))


def mixed_axes(record: Record, found: Product, side: int) -> list[Axis] | None:
    """Return the axes of a product with a matrix that mixes one axis, which stays what it was.

    None if it does more than that, or the axes are not to be told.
    """
    axes, own = record.axes(found.operands[side]), found.own(1 - side)
    if axes is None or len(found.summed) != 1 or len(own) != 1:
        return None
    parts = dict(zip(found.labels[side], axes, strict=True))
    sizes = dict(zip(found.labels[1 - side], found.operands[1 - side].shape, strict=True))
    mixed = sizes[found.summed[0]]
    if sizes[own[0]] != mixed or prod(sizes.values()) != mixed**2:
        return None
    parts[own[0]] = parts[found.summed[0]]
    return [parts[label] for label in found.made]


def head_mixing(
    name: str,
    record: Record,
    records: Sequence[Record | None],
    found: Product,
    args: Sequence[Any],
) -> tuple[list[Axis], HeadMixing] | None:
    """Return how a product with a parameter mixes the heads of weights, and the axes of its result.

    None if it is no such product, or does more than that.

    Args:
        name, args: The operator.
        record: What is known of the weights.
        records, found: What is known of both operands, and the product of them.
    """
    side = 0 if records[0] is record else 1
    other, weights = records[1 - side], record.origin
    if other is None or other.kind is not TensorRole.STATIC or weights.queries is None:
        return None
    axes, parts = mixed_axes(record, found, side), record.axes(found.operands[side])
    if axes is None or parts is None:
        return None
    heads = dict(zip(found.labels[side], parts, strict=True))[found.summed[0]]
    if not are_heads(weights, heads):
        return None
    bias = args[0] if found.added else None
    if name == "aten::linear" and len(args) > 2:
        bias = args[2]
    labels, size = found.labels[1 - side], heads[0].size
    # Its other axes are of size 1.
    matrix = found.operands[1 - side].detach().reshape(size, size)
    summed, own = found.summed[0], found.own(1 - side)[0]
    return axes, HeadMixing(matrix.mT if labels.index(summed) < labels.index(own) else matrix, bias)


def are_heads(weights: HandWeights, axis: Axis) -> bool:
    """Return whether an axis of weights is a whole one of their softmax, of no tokens."""
    of_tokens = weights.axis, weights.queries
    return bool(axis) and axis in whole(weights.shape) and axis[0].axis not in of_tokens


def convolved_heads(
    args: Sequence[Any], named: Mapping[str, Any], output: Tensor
) -> HeadMixing | None:
    """Return how a convolution mixes channels; None if it mixes neighbors, or makes others.

    Args:
        args, named: Its arguments.
        output: Its result.
    """
    given, kernel, bias = args[0], args[1].detach(), named.get("bias", (*args, None)[2])
    if kernel[0, 0].numel() != 1 or given.shape != output.shape:
        return None
    groups = len(given.movedim(output.ndim - kernel.ndim + 1, 0)) // kernel.shape[1]
    blocks = kernel.reshape(groups, -1, kernel.shape[1])
    return HeadMixing(torch.block_diag(*blocks), bias)


def sums_over_keys(name: str, record: Record, source: Tensor, args: Sequence[Any]) -> bool:
    """Return whether an operator sums weights over their keys.

    Args:
        name: The operator.
        record: What is known of the weights.
        source: The weights.
        args: The arguments.
    """
    weights, axes = record.origin, record.axes(source)
    summed = args[1] if name == "aten::sum" and len(args) > 1 else None
    if not isinstance(summed, list | tuple) or len(summed) != 1 or axes is None:
        return False
    if not isinstance(weights, HandWeights):
        return False
    return axes[summed[0]] == whole(weights.shape)[weights.axis]


def weighed_values(record: Record | None, found: Product, side: int) -> str | None:
    """Return the steps of scores that a product takes to values without a softmax; None for others.

    Args:
        record: What is known of an operand.
        found, side: The product, and which of its operands that is.
    """
    if record is None or record.kind is not TensorRole.SCORES or record.origin is None:
        return None
    axes = record.axes(found.operands[side])
    if axes is None or len(found.summed) != 1:
        return None
    summed = dict(zip(found.labels[side], axes, strict=True))[found.summed[0]]
    if record.origin.side(summed) is None or record.origin.features & {p.axis for p in summed}:
        return None
    return ", ".join(["queries · keys", *(step.words for step in record.steps), "· values"])


def features_of(record: Record | None, found: Product, side: int) -> list[Hashable]:
    """Return the labels of an operand that stand for features of a projection."""
    if record is None or record.kind is not TensorRole.FEATURES:
        return []
    axes = record.axes(found.operands[side]) or []
    return [
        label
        for label, parts in zip(found.labels[side], axes, strict=False)
        if parts and all(part.axis in record.origin for part in parts)
    ]


def derive(
    records: TensorRecords,
    operator: Operator,
    known: Sequence[tuple[Record, Tensor]],
    args: Sequence[Any],
    output: Any,
    *,
    alone: bool,
) -> None:
    """Follow an operator on tensors of which something is known.

    Args:
        operator, args, output: The operator.
        known: What is known of its inputs.
        alone: Whether that is all of them.
    """
    record, source = max(known, key=lambda one: (one[0].kind, one[0].layout is not None))
    if record.kind is TensorRole.WEIGHTS:
        softmaxes = {one.origin for one, _ in known if one.kind is TensorRole.WEIGHTS}
        for origin in softmaxes if len(softmaxes) > 1 else ():
            origin.close(TOGETHER)
        if sums_over_keys(operator.name, record, source, args):
            # No key is left in it.
            return
    if _goes_on(operator, record, source, output, alone=alone):
        _remember(records, operator, record, source, args, output)


def _remember(
    records: TensorRecords,
    operator: Operator,
    record: Record,
    source: Tensor,
    args: Sequence[Any],
    output: Any,
) -> None:
    """Remember the results of an operator as made of one of its inputs."""
    step = _steps(operator, args, source, output) if record.kind >= TensorRole.SCORES else ()
    for made in tensors_among((output,)):
        if records.of(made) is record:
            # A view, or the same tensor with other numbers.
            record.steps += step if operator.mutates else ()
            continue
        axes = record.axes(source)
        if axes is not None:
            if operator.copies or operator.elementwise:
                axes = broadcast(axes, source.shape, made.shape)
                # A part of a larger tensor is written to.
                axes = axes if not operator.mutates or _fills(made) else None
            else:
                axes = reshaped(axes, source.shape, made.shape) if operator.reshapes else None
        lost = record.lost or ("" if axes is not None else operator.name)
        records.remember(made, record.kind, axes, record.origin, record.steps + step, lost)


def _goes_on(
    operator: Operator, record: Record, source: Tensor, output: Any, *, alone: bool
) -> bool:
    """Return whether the result of an operator is of the kind of its input.

    Args:
        operator: The operator.
        record: What is known of the greatest of its inputs.
        source: That input.
        output: The result.
        alone: Whether something is known of all of them.
    """
    if record.kind is TensorRole.STATIC:
        return alone
    if record.kind is TensorRole.FEATURES:
        # Normalized, too, and with a learned bias.
        moves = operator.copies or operator.reshapes or operator.scales
        return moves or (alone and operator.elementwise)
    if record.kind is TensorRole.SCORES:
        # Sums and norms of scores are none.
        return operator.copies or operator.reshapes or operator.moves or operator.elementwise
    if isinstance(record.origin, LateWeights) and not _keeps_all(operator, source, output):
        # A router chooses experts by its largest weights, and scales their outputs by them.
        return False
    return record.origin.open


def _keeps_all(operator: Operator, source: Tensor, output: Any) -> bool:
    """Return whether the result of an operator may still be weights for a product with values."""
    if operator.view or operator.copies or operator.reshapes:
        return True
    if not isinstance(output, Tensor):
        return False
    if operator.moves:
        return output.numel() >= source.numel()
    return output.numel() == source.numel()


def _steps(
    operator: Operator, args: Sequence[Any], source: Tensor, output: Any
) -> tuple[Change, ...]:
    """Describe what an operator does to scores or weights; nothing for a copy of the same type."""
    if operator.copies or operator.reshapes:
        same = not isinstance(output, Tensor) or output.dtype == source.dtype
        return () if same else (Change(f"in {str(output.dtype)[6:]}", keeps=True),)
    step = step_of(operator.name.rpartition("::")[2], args, source)
    return () if step is None else (step,)


def tensors_among(given: Sequence[Any]) -> Iterator[Tensor]:
    """Yield the tensors among arguments or results, those of lists included."""
    for one in given:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, list | tuple):
            for part in one:
                if isinstance(part, Tensor):
                    yield part


def _fills(tensor: Tensor) -> bool:
    """Return whether a tensor is all of its memory."""
    return tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()


def step_of(name: str, args: Sequence[Any], source: Tensor) -> Change | None:
    """Describe what an operator does to scores.

    Args:
        name: Its name, without that of its library.
        args: Its arguments.
        source: The one of them that is followed.
    """
    other = next((one for one in args if one is not source and not isinstance(one, bool)), None)
    number = f"{other:.4g}" if isinstance(other, int | float) else None
    if name in ("mul", "div"):
        several = "numbers" if isinstance(other, Tensor) and other.numel() > 1 else "a number"
        words = f"{'times' if name == 'mul' else 'divided by'} {number or several}"
        factor = None
        if isinstance(other, int | float) and other != 0:
            factor = other if name == "mul" else 1 / other
        return Change(words, factor=factor)
    if name in ("add", "sub"):
        if not isinstance(other, Tensor):
            return Change(f"{number or 'a number'} {_WORDS[name]}") if other else None
        return Change(f"a tensor {_WORDS[name]}", weakref.ref(other) if name == "add" else None)
    if name == "exp":
        known = _has_logarithm(source)
        return Change(
            "by exp", factor=None, exponential=True, scores=None if known else source.detach()
        )
    words = _WORDS.get(name, f"by {name}")
    return Change(
        words,
        factor=1.0 if words in _ADDING else None,
        exponential=name in ("exp2", "special_exp2") and _has_logarithm(source),
    )


# Steps that change scores by numbers that are added to them.
_ADDING = "masked", "log-softmax"


def _has_logarithm(scores: Tensor) -> bool:
    """Return whether the exponentials of scores tell these, and none is 0 by underflow."""
    if not scores.is_floating_point():
        return False
    scores, numbers = scores.detach(), torch.finfo(scores.dtype)
    in_range = (scores > math.log(numbers.tiny)) & (scores < math.log(numbers.max))
    return bool((in_range | scores.isneginf()).all())


_WORDS = {
    "_log_softmax": "log-softmax",
    "log_softmax": "log-softmax",
    "special_log_softmax": "log-softmax",
    "add": "added",
    "sub": "subtracted",
    "masked_fill": "masked",
    "where": "masked",
    "index_put": "masked",
    "masked_scatter": "masked",
    "tril": "masked",
    "triu": "masked",
    "tanh": "tanh",
    "clamp": "clamped",
    "clamp_min": "clamped",
    "maximum": "clamped",
    "cat": "joined with others",
}


def steps_of_product(
    found: Product, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Change, ...]:
    """Describe what a product of queries and keys does besides."""
    if not found.added:
        return ()
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    steps = () if alpha == 1 else (Change(f"times {alpha:.4g}", factor=alpha),)
    return (*steps, Change("a tensor added", weakref.ref(args[0]))) if beta else steps
