"""The context of a trace: the model's own, where the steps lead to it."""

from dataclasses import replace

import torch
from torch import Tensor

from glasshead.recipe.problem import Trace
from glasshead.watching.captured_call import tolerance_of


def with_own_context(trace: Trace, made: Tensor | None) -> Trace | None:
    """Return a trace whose context is NaN where the model's is; None where that is another.

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
