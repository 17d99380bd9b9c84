"""Products of attention written by hand: whether one takes weights to values, or mixes heads."""

from collections.abc import Hashable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from glasshead.watching.errors import FEATURES
from glasshead.watching.interception.axes import Axis, Product, whole
from glasshead.watching.interception.by_hand_records import (
    HandWeights,
    HeadMixing,
    Record,
    TakenWeights,
    TensorRole,
)

_LOST = "passes its weights on through {}, after which nothing tells which key one belongs to"
_OTHER_AXIS = (
    "multiplies its weights along another axis than that of its softmax, axis {axis} of {shape}"
)
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

    None where it does more than that, or the axes are not to be told.
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

    None where it is no such product, or does more than that.

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
    """Return how a convolution mixes channels; None where it mixes neighbours, or makes others.

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
