"""Softmaxes written otherwise: exponentials of scores whose sums over the keys are 1."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glasshead.watching.captured_call import tolerance_of
from glasshead.watching.interception.explicit_operators import Operator
from glasshead.watching.interception.explicit_records import Change, Record, TensorRole

_QUOTIENTS = {"aten::div", "aten::divide", "aten::true_divide"}
_PRODUCTS = {"aten::mul", "aten::multiply"}


class NormalizedScores(NamedTuple):
    """Scores whose softmax an operator has completed.

    Attributes:
        record: What is known of the scores.
        scores: The scores.
        axis: The axis of the keys.
    """

    record: Record
    scores: Tensor
    axis: int


def normalized(
    operator: Operator,
    known: Sequence[tuple[Record, Tensor]],
    args: Sequence[Any],
    output: Any,
) -> NormalizedScores | None:
    """Return the scores whose softmax an operator completes; None if it completes none.

    These are the exponential of scores less their logsumexp, and exponentials divided by their
    sums.

    Args:
        operator, args, output: The operator.
        known: What is known of its inputs.
    """
    found = next((one for one in known if one[0].kind is TensorRole.SCORES), None)
    if found is None or not isinstance(output, Tensor) or not output.is_floating_point():
        return None
    record, source = found
    if operator.exponential:
        axis = _axis_of_ones(output, range(output.ndim), tolerance_of(output.dtype))
        natural = operator.name == "aten::exp" and not operator.mutates
        scores = source if natural else output.detach().log()
        return None if axis is None else NormalizedScores(record, scores, axis)
    others = [one for one in args if isinstance(one, Tensor) and one is not source]
    divides = operator.name in _QUOTIENTS and source is args[0]
    if len(others) != 1 or not (divides or operator.name in _PRODUCTS):
        return None
    place = next((n for n, step in enumerate(record.steps) if step.exponential), None)
    if place is None:
        return None
    # Sums are rounded to the type of the exponentials.
    rounding = 64 * torch.finfo(torch.float32).eps + 4 * torch.finfo(output.dtype).eps
    axis = _axis_of_ones(output, _constant_axes(others[0], output), rounding)
    if axis is None:
        return None
    scores = _scores(record.steps[place:], output if operator.mutates else source, output, axis)
    steps = *record.steps[:place], *map(_in_exponents, record.steps[place + 1 :])
    return None if scores is None else NormalizedScores(replace(record, steps=steps), scores, axis)


def _scores(steps: Sequence[Change], powers: Tensor, output: Tensor, axis: int) -> Tensor | None:
    """Return the scores of exponentials that were normalized; None if these do not show them.

    Args:
        steps: The exponential, and what was done to its result.
        powers: What came of these.
        output, axis: The weights, and the axis of the keys.
    """
    (first, *after), powers = steps, powers.detach()
    if first.scores is None:
        # A factor is a number that is added to the logarithm.
        known = bool((powers >= 0).all()) and all(one.words.startswith(_FACTORS) for one in after)
        return powers.log() if known else None
    if after:
        return None
    # They may have been written to since.
    weights, limit = first.scores.softmax(axis).to(output.dtype), tolerance_of(output.dtype)
    same = torch.allclose(weights, output.detach(), rtol=limit, atol=1e-6)
    return first.scores if same else None


_FACTORS = "times", "divided by", "masked"


def _in_exponents(step: Change) -> Change:
    """Describe a factor of exponentials as a change of their scores."""
    return step if step.words == "masked" else Change(f"exponentials {step.words}")


def _constant_axes(other: Tensor, output: Tensor) -> list[int]:
    """Return the axes along which the other factor of a product is the same."""
    missing = output.ndim - other.ndim
    return [
        axis
        for axis in range(output.ndim)
        if axis < missing or other.shape[axis - missing] == 1 or not other.stride(axis - missing)
    ]


def _axis_of_ones(made: Tensor, axes: Iterable[int], rounding: float) -> int | None:
    """Return the last of some axes along which numbers sum to 1; None if there is none.

    Rows in which all is hidden hold 0 or NaN, and show nothing.
    """
    made = made.detach().to(torch.promote_types(made.dtype, torch.float32))
    # Along an axis of size 1 each weight is 1, as long as a text is of one token.
    for axis in sorted(axes, key=lambda axis: (made.shape[axis] == 1, -axis)):
        sums = made.sum(axis)
        near = (sums - 1).abs() <= rounding
        if bool(near.any()) and bool((near | (sums == 0) | sums.isnan()).all()):
            return axis
    return None
