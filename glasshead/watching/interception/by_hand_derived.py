"""What an operator makes of tensors of attention written by hand: their role, axes and steps."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from glasshead.watching.interception.axes import broadcast, reshaped
from glasshead.watching.interception.by_hand_capture import step_of
from glasshead.watching.interception.by_hand_operators import Operator
from glasshead.watching.interception.by_hand_products import sums_over_keys
from glasshead.watching.interception.by_hand_records import (
    Change,
    LateWeights,
    Record,
    TensorRecords,
    TensorRole,
)

TOGETHER = "combines the weights of several softmaxes"


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
