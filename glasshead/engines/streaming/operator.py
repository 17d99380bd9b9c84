"""The passes as `torch.library` operators that compile, export and differentiate."""

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.streamed import (
    ARRAYS,
    ENTROPY,
    FACTOR,
    LOG_SUM,
    MAX_SCORE,
    SCHEMA,
    OutputSpec,
    Results,
)
from glasshead.engines.streaming.operands import (
    GradInputs,
    GradOutputs,
    LoweredProblem,
    RecipeTensors,
    VisibleRule,
    allocated,
    check_backward,
    check_forward,
)

_numbers = itertools.count(1)
_rules: weakref.WeakValueDictionary[int, VisibleRule] = weakref.WeakValueDictionary()


def number_of(rule: VisibleRule | None) -> int:
    """Register a rule, since an operator takes no objects, and return its number; 0 for none.

    It holds for as long as the rule lives.
    """
    if rule is None:
        return 0
    number = next(_numbers)
    _rules[number] = rule
    return number


def _rule(number: int) -> VisibleRule | None:
    """Return the rule with this number; without it nothing would be hidden."""
    if number and number not in _rules:
        raise RuntimeError(
            "the streaming operator needs the mask that it was traced with, which no longer "
            "exists. Pass the mask as a boolean tensor."
        )
    return _rules[number] if number else None


# The fields of a `LoweredProblem`, a rule by its number.
_PROBLEM = (
    "Tensor query, Tensor key, Tensor? value, Tensor bounds, Tensor offsets, Tensor? visible, "
    "Tensor? bias, Tensor? table, Tensor? sink, Tensor? known, float scale, float softcap, int rule"
)
_FIELDS = 3 + len(RecipeTensors._fields)


def _problem(
    operands: tuple[Any, ...], *, with_rule: bool = True
) -> tuple[LoweredProblem, tuple[Any, ...]]:
    """Take the problem from an operator's operands, and return the others too."""
    query, key, value, *parts, rule = operands[:_FIELDS]
    recipe = RecipeTensors._make([*parts, _rule(rule) if with_rule else None])
    return LoweredProblem(query, key, value, recipe), operands[_FIELDS:]


def _request(asked: Sequence[Any]) -> OutputSpec:
    """Take the request from an operator's last operands: its lists are tuples."""
    return OutputSpec(*(tuple(one) if isinstance(one, list) else one for one in asked))


torch.library.define(
    "glasshead::streaming",
    f"({_PROBLEM}, {SCHEMA}) -> ({', '.join(['Tensor'] * len(ARRAYS))})",
)


# `torch.library.custom_op` would be equivalent, but imports the compiler on the first call.
@torch.library.impl("glasshead::streaming", "cpu")
def _(*operands: Any) -> tuple[Tensor, ...]:
    # Numba is slow to import, and needed here only.
    from glasshead.engines.streaming.passes import forward

    problem, asked = _problem(operands)
    spec = _request(asked)
    check_forward(problem, spec)
    return tuple(forward(problem, spec))


@torch.library.register_fake("glasshead::streaming")
def _(*operands: Any) -> tuple[Tensor, ...]:
    problem, asked = _problem(operands, with_rule=False)

    def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return problem.query.new_zeros(shape, dtype=dtype)

    results = allocated(problem, _request(asked), zeros)
    return tuple(results._replace(context=results.context.to(problem.query.dtype)))


torch.library.define(
    "glasshead::streaming_backward",
    f"({_PROBLEM}, bool[] wanted, Tensor row_stats, "
    "Tensor? of_context, Tensor? of_logsumexp, Tensor? of_entropy, Tensor? of_by_key, "
    "Tensor? per_key) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)


@torch.library.impl("glasshead::streaming_backward", "cpu")
def _(*operands: Any) -> tuple[Tensor, ...]:
    from glasshead.engines.streaming.passes import backward

    problem, (wanted, row_stats, *others) = _problem(operands)
    gradients = GradOutputs(*others)
    check_backward(problem, row_stats, gradients, wanted)
    return tuple(backward(problem, row_stats, gradients, wanted))


@torch.library.register_fake("glasshead::streaming_backward")
def _(*operands: Any) -> tuple[Tensor, ...]:
    problem, (wanted, *_) = _problem(operands, with_rule=False)
    return tuple(GradInputs.allocate(problem, wanted))


def _keep(ctx: Any, inputs: tuple, output: tuple) -> None:
    ctx.set_materialize_grads(False)
    (*tensors, scale, softcap, rule), asked = inputs[:_FIELDS], inputs[_FIELDS:]
    row_stats = Results(*output).rows[..., [MAX_SCORE, FACTOR], :]
    ctx.save_for_backward(*tensors, _request(asked).per_key, row_stats)
    ctx.numbers = scale, softcap, rule
    # Keep the rule alive as long as the graph.
    ctx.rule = _rule(rule)


def _gradient(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
    *inputs, per_key, row_stats = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[6:9])
    of = Results(*grad_outputs)
    context, rows, by_key = of.context, of.rows, of.by_key
    if inputs[2] is None or context is None or not context.shape[-1]:
        context = None
    result = streaming_backward(
        *inputs,
        *ctx.numbers,
        wanted,
        row_stats,
        context,
        None if rows is None else rows[..., LOG_SUM, :],
        None if rows is None else rows[..., ENTROPY, :],
        by_key if by_key is not None and by_key.shape[2] else None,
        per_key,
    )
    gradients: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
    places, required = (0, 1, 2, 6, 7, 8), (True, True, True, *wanted)
    for place, gradient, is_required in zip(places, result, required, strict=True):
        tensor = inputs[place]
        if tensor is not None and is_required:
            gradients[place] = gradient.to(tensor.dtype)
    return tuple(gradients)


def no_second_gradient(ctx: Any, *grad_outputs: Tensor | None) -> None:
    """Refuse to differentiate a gradient."""
    del ctx, grad_outputs
    raise RuntimeError(
        "the streaming engine has no gradient of its gradient. Use Attention(engine='reference')."
    )


torch.library.register_autograd("glasshead::streaming", _gradient, setup_context=_keep)
torch.library.register_autograd("glasshead::streaming_backward", no_second_gradient)
streaming = torch.ops.glasshead.streaming.default
streaming_backward = torch.ops.glasshead.streaming_backward.default


def run(problem: LoweredProblem, spec: OutputSpec) -> Results:
    """Call the operator with a problem and an output specification."""
    *inputs, (*parts, rule) = problem
    return Results(*streaming(*inputs, *parts, number_of(rule), *spec))
