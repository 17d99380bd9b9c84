"""Forward and backward pass: a problem as a program, its arrays, and the sums of its stripes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.streamed import ARRAYS, ASKED, OutputSpec, Results
from glasshead.engines.streaming.lowering import backward_program, forward_program
from glasshead.engines.streaming.operands import (
    LONGEST,
    GradInputs,
    GradOutputs,
    LoweredProblem,
    allocated,
)
from glasshead.engines.streaming.programs import Program, Schedule, kept

_CPU = torch.device("cpu")
# The pairs of a rule that are evaluated at a time, but for one block of each stripe at least.
_PAIRS = 2**24
_NUMBERS = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.int64: np.int64,
    torch.int16: np.int16,
}


@torch.no_grad()
def forward(problem: LoweredProblem, spec: OutputSpec) -> Results:
    """Compute the context and the requested sums in one pass over the scores."""
    problem = problem.laid_out()
    # A compiler may have laid them out otherwise.
    spec = OutputSpec(*(x.contiguous() if isinstance(x, Tensor) else x for x in spec))
    cut = Schedule.forward(problem)
    results = allocated(problem, spec, _zeros)
    if cut.tiled:
        # Tiles round it themselves.
        halves = _zeros(results.context.shape, torch.int16)
        results = results._replace(context=halves.view(torch.bfloat16))
    # Sums over the queries, of each stripe by itself.
    stripes: dict[str, Tensor] = {}
    for array, result in zip(ARRAYS, results, strict=True):
        if array.empty:
            result.fill_(array.empty)
        if array.merged:
            dtype = torch.float64 if array.dtype == "float64" else result.dtype
            stripes[array.name] = torch.zeros(cut.stripes, *result.shape, dtype=dtype, device=_CPU)
    operands = {
        one.name: value for one, value in zip(ASKED, spec, strict=True) if one.kind == "rows"
    }
    _run(forward_program, problem, cut, spec, given=results._asdict() | stripes | operands)
    for array, result in zip(ARRAYS, results, strict=True):
        if array.merged and result.numel():
            first, *others = stripes[array.name]
            merge = torch.maximum if array.merged == "max" else torch.add
            result.copy_(reduce(merge, others, first))
    return results._replace(context=results.context.to(problem.query.dtype))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Allocate zeros with NumPy, whose pages are cleared by the thread that first writes them."""
    return torch.from_numpy(np.zeros(shape, _NUMBERS[dtype]))


def _run(
    make: Callable[..., Program],
    problem: LoweredProblem,
    cut: Schedule,
    *parts: tuple,
    given: dict[str, Tensor | None],
) -> None:
    """Run the program of a pass, of a rule for as many queries as it is evaluated for at a time."""
    parts_of_unit = 1 + cut.operations // (4 * LONGEST)
    for rows, one in _shown(problem, cut):
        program = kept(lambda one=one: make(one, cut, *parts), make, one, cut, *parts)
        inputs, visible = one._asdict() | one.recipe._asdict(), one.recipe.visible
        first_pair = 0
        if visible is not None and problem.recipe.rule is not None:
            first_pair = -rows.start * visible.stride(2)
        program.run(
            {name: x for name, x in inputs.items() if isinstance(x, Tensor)} | given,
            first_row=rows.start,
            last_row=rows.stop,
            first_pair=first_pair,
            parts=parts_of_unit,
        )


def _shown(problem: LoweredProblem, cut: Schedule) -> Iterator[tuple[range, LoweredProblem]]:
    """Yield the problem with all queries, or with as many as a rule is evaluated for at a time."""
    recipe = problem.recipe
    if recipe.rule is None:
        yield range(cut.queries), problem
        return
    step = cut.stripes * cut.height
    height = step * max(1, _PAIRS // (step * cut.batch * cut.heads * cut.keys))
    some = problem._replace(recipe=recipe._replace(rule=None))
    for first in range(0, cut.queries, height):
        rows = range(first, min(first + height, cut.queries))
        starts, stops = recipe.bounds[:, :, rows.start : rows.stop].unbind(1)
        seeing = starts < stops
        if seeing.any():
            keys = range(int(starts[seeing].min()), int(stops[seeing].max()))
            shown = recipe.rule(rows, keys)
            visible = some.recipe.visible
            if visible is None:
                # Two rows at least, so that they have a stride.
                most = max(2, min(height, cut.queries))
                visible = torch.empty(
                    *shown.shape[:2], most, cut.keys, dtype=torch.bool, device=_CPU
                )
                some = some._replace(recipe=some.recipe._replace(visible=visible))
            visible[:, :, : len(rows), keys.start : keys.stop] = shown
        yield rows, some


@torch.no_grad()
def backward(
    problem: LoweredProblem,
    row_stats: Tensor,
    grad_outputs: GradOutputs,
    wanted: Sequence[bool],
) -> GradInputs:
    """Compute the gradients of all inputs in O(T) memory.

    Args:
        problem: As given to `forward`.
        row_stats: The largest score and the factor of each row, `[batch, heads, 2, queries]`.
        grad_outputs: The incoming gradients of its results.
        wanted: Whether bias, table and sink require gradients.
    """
    # Of key and value the shapes are enough.
    grads = GradInputs.allocate(problem._replace(key=None, value=None), wanted)
    grads = grads._replace(key=problem.key)
    if problem.value is not None:
        grads = grads._replace(value=problem.value)
    problem = problem.laid_out()
    if grad_outputs.context is None:
        problem = problem._replace(value=None)
    arriving = grad_outputs.laid_out()
    cut = Schedule.backward(problem)
    if wanted[0]:
        # Heads may share a bias, whose gradients are then added one after the other.
        cut = replace(cut, threads=1)
    given = {
        "row_stats": row_stats.contiguous(),
        "of_context": arriving.context,
        "of_logsumexp": arriving.logsumexp,
        "of_entropy": arriving.entropy,
        "of_by_key": arriving.by_key,
        "per_key": arriving.per_key,
    }
    sums = stripe_sums(grads, cut)
    _run(backward_program, problem, cut, arriving, grads, given=given | sums)
    return summed(grads, sums)


def stripe_sums(grads: GradInputs, cut: Schedule | Program) -> dict[str, Tensor]:
    """Return the arrays that a program writes gradients to, by name.

    What several queries add to is summed over the queries of each stripe by itself, from zero on.

    Args:
        grads: Arrays for the gradients, zeros except the query's, and without numbers if none is
            required. Of key and value the shapes alone are read.
        cut: The program, or its schedule.
    """
    dtype, exact = grads.query.dtype, torch.float64
    heads = cut.stripes, *grads.query.shape[:2]
    given = {"grad_query": grads.query, "grad_bias": grads.bias}
    for name, one in (("grad_key", grads.key), ("grad_value", grads.value)):
        if one.numel():
            # In whole panels.
            *rows, keys, dim = one.shape
            panels = cut.stripes, *rows, cut.padded(keys), cut.padded(dim)
            given[name] = torch.zeros(panels, dtype=dtype, device=_CPU)
    if grads.table.numel():
        diagonals = grads.query.shape[2] + grads.key.shape[2] - 1
        given["grad_table"] = torch.zeros(*heads, diagonals, dtype=exact, device=_CPU)
    if grads.sink.numel():
        given["grad_sink"] = torch.zeros(*heads, 1, dtype=exact, device=_CPU)
    return given


def summed(grads: GradInputs, sums: Mapping[str, Tensor]) -> GradInputs:
    """Return the gradients, with what `stripe_sums` made for a program that has run."""
    if grads.table.numel():
        grads.table.copy_(sums["grad_table"].sum(0).sum_to_size(grads.table.shape))
    if grads.sink.numel():
        grads.sink.copy_(sums["grad_sink"][..., 0].sum((0, 1)).sum_to_size(grads.sink.shape))
    key, value = (
        _summed(sums[name], *one.shape[2:])
        if one.numel()
        else torch.zeros(one.shape, dtype=grads.query.dtype, device=_CPU)
        for name, one in (("grad_key", grads.key), ("grad_value", grads.value))
    )
    return grads._replace(key=key, value=value)


def _summed(sums: Tensor, keys: int, dim: int) -> Tensor:
    """Add the sums of stripes in their order, so that they have the same bits in every run."""
    is_whole = sums.shape[-2:] == (keys, dim)
    if is_whole and len(sums) == 1:
        # No view, which autograd would not let a caller change.
        return sums.squeeze_(0)
    sums = sums if is_whole else sums[..., :keys, :dim]
    if len(sums) == 1:
        return sums[0].clone(memory_format=torch.contiguous_format)
    first, second, *others = sums.unbind()
    total = first + second
    for part in others:
        total += part
    return total
