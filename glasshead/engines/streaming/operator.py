"""The passes as `torch.library` operators that compile, export and differentiate."""

import itertools
import weakref
from typing import Any

import torch
from torch import Tensor

from glasshead.engines.streaming.arrays import (
    GradInputs,
    GradOutputs,
    PassResults,
    room_for_gradients,
    room_for_sums,
)
from glasshead.engines.streaming.kernels.arguments import ENTROPY, FACTOR, LOG_SUM, MAX_SCORE
from glasshead.engines.streaming.lower import RecipeTensors, VisibleRule, Wanted

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
            "the streaming operator takes the mask that it was traced with, which is no more: give "
            "the mask as a boolean tensor."
        )
    return _rules[number] if number else None


torch.library.define(
    "glasshead::streaming",
    "(Tensor query, Tensor key, Tensor? value, Tensor bounds, Tensor offsets, Tensor? visible, "
    "Tensor? bias, Tensor? table, Tensor? sink, Tensor? per_key, Tensor? per_query, float scale, "
    "float softcap, bool keyed, bool far, bool diagonal, int top, int[] maps, int rule) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)


# `torch.library.custom_op` would be equivalent, but imports the compiler on the first call.
@torch.library.impl("glasshead::streaming", "cpu")
def _(  # noqa: PLR0913, PLR0917 - an operator takes no objects
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    bounds: Tensor,
    offsets: Tensor,
    visible: Tensor | None,
    bias: Tensor | None,
    table: Tensor | None,
    sink: Tensor | None,
    per_key: Tensor | None,
    per_query: Tensor | None,
    scale: float,
    softcap: float,
    keyed: bool,
    far: bool,
    diagonal: bool,
    top: int,
    maps: list[int],
    rule: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run `forward` on the operator's flat arguments; `rule` is a registered number."""
    # Numba is slow to import, and needed here only.
    from glasshead.engines.streaming.passes import forward

    structure = RecipeTensors(
        bounds, offsets, visible, _rule(rule), bias, table, sink, scale, softcap
    )
    wanted = Wanted(keyed, far, diagonal, top, tuple(maps), per_key, per_query)
    return tuple(forward(query, key, value, structure, wanted))  # type: ignore[return-value]


@torch.library.register_fake("glasshead::streaming")
def _(query: Tensor, key: Tensor, value: Tensor | None, *others: Any) -> tuple[Tensor, ...]:
    *_, per_key, per_query, _, _, keyed, far, diagonal, top, maps, _ = others
    wanted = Wanted(keyed, far, diagonal, top, tuple(maps), per_key, per_query)

    def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return query.new_zeros(shape, dtype=dtype)

    sums = room_for_sums(query, key, value, wanted, zeros)
    return tuple(sums._replace(context=sums.context.to(query.dtype)))


torch.library.define(
    "glasshead::streaming_backward",
    "(Tensor query, Tensor key, Tensor? value, Tensor bounds, Tensor offsets, Tensor? visible, "
    "Tensor? bias, Tensor? table, Tensor? sink, Tensor? per_key, Tensor row_stats, "
    "Tensor? of_context, Tensor? of_logsumexp, Tensor? of_entropy, Tensor? of_by_key, "
    "float scale, float softcap, bool[] wanted, int rule) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)


@torch.library.impl("glasshead::streaming_backward", "cpu")
def _(  # noqa: PLR0913, PLR0917
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    bounds: Tensor,
    offsets: Tensor,
    visible: Tensor | None,
    bias: Tensor | None,
    table: Tensor | None,
    sink: Tensor | None,
    per_key: Tensor | None,
    row_stats: Tensor,
    of_context: Tensor | None,
    of_logsumexp: Tensor | None,
    of_entropy: Tensor | None,
    of_by_key: Tensor | None,
    scale: float,
    softcap: float,
    wanted: list[bool],
    rule: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run `backward` on the operator's flat arguments; `rule` is a registered number."""
    from glasshead.engines.streaming.passes import backward

    structure = RecipeTensors(
        bounds, offsets, visible, _rule(rule), bias, table, sink, scale, softcap
    )
    grad_outputs = GradOutputs(of_context, of_logsumexp, of_entropy, of_by_key, per_key)
    some = wanted[0], wanted[1], wanted[2]
    return tuple(backward(query, key, value, structure, row_stats, grad_outputs, some))  # type: ignore[return-value]


@torch.library.register_fake("glasshead::streaming_backward")
def _(query: Tensor, key: Tensor, value: Tensor | None, *others: Any) -> tuple[Tensor, ...]:
    bounds, offsets, visible, bias, table, sink, *_, wanted, _ = others
    structure = RecipeTensors(bounds, offsets, visible, None, bias, table, sink)
    return tuple(room_for_gradients(query, key, value, structure, tuple(wanted)))


def _keep(ctx: Any, inputs: tuple, output: tuple) -> None:
    ctx.set_materialize_grads(False)
    *tensors, scale, softcap, _, _, _, _, _, rule = inputs
    tensors.pop()  # The left operand has no gradient.
    sums = PassResults(*output)
    ctx.save_for_backward(*tensors, sums.rows[..., [MAX_SCORE, FACTOR], :])
    ctx.scale, ctx.softcap, ctx.number = scale, softcap, rule
    # Keep the rule alive as long as the graph.
    ctx.rule = _rule(rule)


def _gradient(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
    *inputs, row_stats = ctx.saved_tensors
    (query, key, value, *_), (bias, table, sink) = inputs, inputs[6:9]
    of = PassResults(*grad_outputs)  # type: ignore[arg-type]
    rows = of.rows
    wanted = list(ctx.needs_input_grad[6:9])
    if value is None or of.context is None or not of.context.shape[-1]:
        of = of._replace(context=None)  # type: ignore[arg-type]
    result = GradInputs(
        *streaming_backward(
            *inputs,
            row_stats,
            of.context,
            None if rows is None else rows[..., LOG_SUM, :],
            None if rows is None else rows[..., ENTROPY, :],
            of.by_key if of.by_key is not None and of.by_key.shape[2] else None,
            ctx.scale,
            ctx.softcap,
            wanted,
            ctx.number,
        )
    )

    def given(gradient: Tensor, tensor: Tensor | None, *, want: bool = True) -> Tensor | None:
        return gradient.to(tensor.dtype) if tensor is not None and want else None

    return (
        given(result.query, query),
        given(result.key, key),
        given(result.value, value),
        None,
        None,
        None,
        given(result.bias, bias, want=wanted[0]),
        given(result.table, table, want=wanted[1]),
        given(result.sink, sink, want=wanted[2]),
        *(None,) * 10,
    )


def _no_second_gradient(ctx: Any, *grad_outputs: Tensor | None) -> None:
    del ctx, grad_outputs
    raise RuntimeError(
        "the streaming engine has no gradient of its gradient: take Attention(engine='reference')."
    )


torch.library.register_autograd("glasshead::streaming", _gradient, setup_context=_keep)
torch.library.register_autograd("glasshead::streaming_backward", _no_second_gradient)
streaming = torch.ops.glasshead.streaming.default
streaming_backward = torch.ops.glasshead.streaming_backward.default


def run(
    query: Tensor, key: Tensor, value: Tensor | None, structure: RecipeTensors, wanted: Wanted
) -> PassResults:
    """Call the operator with the recipe's tensors and an output specification."""
    of = structure
    return PassResults(
        *streaming(
            query,
            key,
            value,
            of.bounds,
            of.offsets,
            of.visible,
            of.bias,
            of.table,
            of.sink,
            wanted.per_key,
            wanted.per_query,
            of.scale,
            of.softcap,
            wanted.keyed,
            wanted.far,
            wanted.diagonal,
            wanted.top,
            list(wanted.maps),
            number_of(of.rule),
        )
    )
