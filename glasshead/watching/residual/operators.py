"""Linear operators of PyTorch: what each makes of nodes, by its name.

An operator that is not here, or that multiplies two nodes, gives a tensor that is not followed. If
that is added to the residual stream later, it becomes a leaf, such as the output of an MLP.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from glasshead.watching.errors import UnfollowedError
from glasshead.watching.residual.nodes import (
    HEADS,
    PROJECTED,
    STREAM,
    At,
    Axes,
    Node,
    broadcast,
    has_tokens,
    regrouped,
)
from glasshead.watching.residual.tape import Tape

# Takes a tape, the output of an operator and its arguments; returns the node of the output.
Rule = Callable[..., Node | None]


def take(tape: Tape, name: str, output: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Follow what an operator has returned, which wrote to none of its inputs.

    Args:
        tape: The tape.
        name: Name of the operator, such as "aten::add".
        output: What it returned.
        args, kwargs: Its arguments.
    """
    rule = _rule_of(name)
    node = None if rule is None else rule(tape, output, *args, **kwargs)
    if node is not None:
        tape.follow(output[0] if isinstance(output, tuple | list) else output, node)


def before_writing(
    tape: Tape, name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Node | None:
    """Return what the first input of an operator becomes, which is about to write to it."""
    written = kwargs["out"] if "out" in kwargs else args[0]
    rule, node = _rule_of(name), None
    if rule is not None and "out" not in kwargs and isinstance(written, Tensor):
        node = rule(tape, written, *args, **kwargs)
    tape.overwritten(written if isinstance(written, tuple | list) else [written])
    return node


def _rule_of(name: str) -> Rule | None:
    """Return the rule of an operator, the same whether it writes to its input or not."""
    library, _, own = name.partition("::")
    return _RULES.get(own.partition(".")[0].removesuffix("_")) if library == "aten" else None


# Copies.


def _copied(tape: Tape, output: Tensor, x: Tensor, *_: Any, **__: Any) -> Node | None:
    node = tape.node(x)
    if node is None:
        tape.rescored(output, x, 1)
    elif output.dtype != x.dtype:
        return tape.made(output, node.role, [node], lambda _, x: x, lambda axes: [axes])
    return node


def _copied_to(tape: Tape, output: Tensor, x: Tensor, other: Tensor, *_: Any) -> Node | None:
    del output
    return tape.node(other) if x.shape == other.shape else None


def _dropped(tape: Tape, output: Any, x: Tensor, p: float, *_: Any) -> Node | None:
    node = tape.node(x)
    if node is None or p >= 1:
        return None
    return _scaled(tape, output[0], node, output[1].to(x.dtype) / (1 - p))


# Sums.


def _add(tape: Tape, output: Tensor, x: Any, y: Any, *, alpha: float = 1) -> Node | None:
    return _sum(tape, output, [x, y], [1, alpha])


def _sub(tape: Tape, output: Tensor, x: Any, y: Any, *, alpha: float = 1) -> Node | None:
    return _sum(tape, output, [x, y], [1, -alpha])


def _rsub(tape: Tape, output: Tensor, x: Any, y: Any, *, alpha: float = 1) -> Node | None:
    return _sum(tape, output, [y, x], [1, -alpha])


def _sum(tape: Tape, output: Tensor, terms: Sequence[Any], factors: Sequence[float]) -> Node | None:
    """Return the node of a sum; what enters the residual stream from elsewhere becomes a leaf."""
    given = [x if isinstance(x, Tensor) else output.new_full((1,), x) for x in terms]
    known = [tape.node(x) for x in given]
    roles = {node.role for node in known if node is not None}
    if not roles:
        # Positions that are added to patches or to sound begin the stream.
        if not any(map(tape.is_positions, given)):
            return None
        roles = {STREAM}
    role = next(one for one in (STREAM, HEADS, PROJECTED) if one in roles)
    for x, node, y, other in zip(given, known, given[::-1], known[::-1], strict=True):
        # A bias belongs to the projection.
        if node is not None and node.role == HEADS and tape.parameter(y) is None:
            tape.wrote(x, node, other)
    inputs = [
        tape.leaf(x, role) if node is None or node.role == PROJECTED != role else node
        for x, node in zip(given, known, strict=True)
    ]
    first, second = factors

    def run(at: At, x: Tensor, y: Tensor) -> Tensor:
        del at
        return (x if first == 1 else x * first) + (y if second == 1 else y * second)

    return tape.made(
        output, role, inputs, run, lambda axes: [broadcast(one, axes) for one in inputs]
    )


# Factors.


def _mul(tape: Tape, output: Tensor, x: Any, y: Any) -> Node | None:
    first, second = tape.node(x), tape.node(y)
    if first is not None and second is not None:
        return None
    if first is None and second is None:
        tape.rescored(output, x, y)
        return None
    return _scaled(tape, output, first, y) if first else _scaled(tape, output, second, x)


def _div(tape: Tape, output: Tensor, x: Any, y: Any, **rounding: Any) -> Node | None:
    node = tape.node(x)
    if node is None and not rounding:
        tape.rescored(output, x, y, divides=True)
    if node is None or rounding or tape.node(y) is not None:
        return None
    return _scaled(tape, output, node, y, divides=True)


def _neg(tape: Tape, output: Tensor, x: Tensor) -> Node | None:
    return _scaled(tape, output, tape.node(x), -1)


def _scaled(
    tape: Tape, output: Tensor, node: Node | None, factor: Any, *, divides: bool = False
) -> Node | None:
    """Return the node of a product with what stays as it is: a number, or a tensor."""
    if node is None:
        return None
    role, held = node.role, tape.kept(factor) if isinstance(factor, Tensor) else None
    if role == STREAM and held is not None and _is_gate(held.tensor):
        role = PROJECTED

    def run(at: At, x: Tensor) -> Tensor:
        by = factor if held is None else at.of(held.tensor)
        if isinstance(by, Tensor) and not by.is_complex():
            by = by.to(x.dtype)
        return x / by if divides else x * by

    return tape.made(output, role, [node], run, lambda axes: [broadcast(node, axes)])


def _is_gate(factor: Tensor) -> bool:
    """Return whether a factor differs in each feature of each token, and is no scale of a norm."""
    return factor.ndim > 1 and 1 < factor.shape[-1] < factor.numel()


# Products with a weight, and scores.


def _mm(tape: Tape, output: Tensor, x: Tensor, weight: Tensor) -> Node | None:
    return _projected(tape, output, x, weight, None)


def _addmm(
    tape: Tape, output: Tensor, bias: Tensor, x: Tensor, weight: Tensor, **factors: float
) -> Node | None:
    if any(factor != 1 for factor in factors.values()):
        return None
    return _projected(tape, output, x, weight, bias)


def _projected(
    tape: Tape, output: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Node | None:
    node = tape.node(x)
    if node is None or tape.node(weight) is not None:
        return None
    held, width = tape.kept(weight), node.shape[-1]
    inputs = [node] if bias is None else [node, tape.leaf(bias, PROJECTED)]

    def run(at: At, x: Tensor, *bias: Tensor) -> Tensor:
        del at
        return sum(bias, x @ held.tensor.to(x.dtype))

    def back(axes: Axes) -> list[Axes]:
        return [(*axes[:-1], (width,)), *(broadcast(one, axes) for one in inputs[1:])]

    role = HEADS if node.role == HEADS else PROJECTED
    if role == HEADS:
        tape.projected(node, tape.parameter(weight))
    return tape.made(output, role, inputs, run, back)


def _bmm(tape: Tape, output: Tensor, x: Tensor, y: Tensor) -> None:
    tape.score(output, x, y)


def _baddbmm(
    tape: Tape, output: Tensor, bias: Tensor, x: Tensor, y: Tensor, *, alpha: float = 1, **_: Any
) -> None:
    del bias
    tape.score(output, x, y, alpha)


def _tanh(tape: Tape, output: Tensor, x: Tensor) -> None:
    del output
    tape.capped(x)


# Norms, at the scale of the run.


def _layer_norm(
    tape: Tape,
    output: Any,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    *_: Any,
) -> Node | None:
    node = tape.node(x)
    if node is None:
        return None
    last, scale = tuple(range(-len(shape), 0)), tape.kept(output[2])
    by = None if weight is None else tape.kept(weight)
    inputs = [node] if bias is None else [node, tape.leaf(bias, node.role)]

    def run(at: At, x: Tensor, *bias: Tensor) -> Tensor:
        made = (x - x.mean(last, keepdim=True)) * at.of(scale.tensor).to(x.dtype)
        return sum(bias, made if by is None else made * by.tensor.to(x.dtype))

    return tape.made(
        output[0], node.role, inputs, run, lambda axes: [broadcast(one, axes) for one in inputs]
    )


def _rms_norm(
    tape: Tape, output: Any, x: Tensor, shape: Sequence[int], weight: Tensor | None, *_: Any
) -> Node | None:
    node = tape.node(x)
    if node is None:
        return None
    del shape
    scale, by = tape.kept(output[1]), None if weight is None else tape.kept(weight)

    def run(at: At, x: Tensor) -> Tensor:
        made = x * at.of(scale.tensor).to(x.dtype)
        return made if by is None else made * by.tensor.to(x.dtype)

    return tape.made(output[0], node.role, [node], run, lambda axes: [axes])


def _mean(tape: Tape, output: Tensor, x: Tensor, *given: Any, **_: Any) -> Node | None:
    return _reduced(tape, output, x, Tensor.mean, *given)


def _summed(tape: Tape, output: Tensor, x: Tensor, *given: Any, **_: Any) -> Node | None:
    return _reduced(tape, output, x, Tensor.sum, *given)


def _reduced(
    tape: Tape, output: Tensor, x: Tensor, reduce: Any, dims: Any = (), keepdim: bool = False
) -> Node | None:
    """Return the node of a sum or mean over features, as norms subtract one."""
    node = tape.node(x)
    dims = tuple(one % x.ndim for one in ([dims] if isinstance(dims, int) else dims or ()))
    if node is None or not keepdim or x.ndim - 1 not in dims:
        return None

    def back(axes: Axes) -> list[Axes]:
        return [tuple((node.shape[i],) if i in dims else axis for i, axis in enumerate(axes))]

    return tape.made(output, node.role, [node], lambda _, x: reduce(x, dims, keepdim=True), back)


# Layouts.


def _view(tape: Tape, output: Tensor, x: Tensor, *_: Any, **__: Any) -> Node | None:
    node = tape.node(x)
    if node is None:
        tape.rescored(output, x, 1)
        return None
    return tape.made(
        output,
        node.role,
        [node],
        lambda at, x: x.reshape(at.shape),
        lambda axes: [regrouped(axes, node.shape)],
    )


def _expand(tape: Tape, output: Tensor, x: Tensor, *_: Any, **__: Any) -> Node | None:
    node = tape.node(x)
    if node is None:
        return None
    return tape.made(
        output,
        node.role,
        [node],
        lambda at, x: x.expand(at.shape),
        lambda axes: [broadcast(node, axes)],
    )


def _permute(tape: Tape, output: Tensor, x: Tensor, dims: Sequence[int]) -> Node | None:
    node = tape.node(x)
    return None if node is None else tape.permuted(output, node, [one % x.ndim for one in dims])


def _transpose(tape: Tape, output: Tensor, x: Tensor, first: int, second: int) -> Node | None:
    order = [*range(x.ndim)]
    order[first], order[second] = order[second], order[first]
    return _permute(tape, output, x, order)


def _t(tape: Tape, output: Tensor, x: Tensor) -> Node | None:
    return _permute(tape, output, x, [*range(x.ndim)][::-1])


# Parts of tensors.


def _slice(
    tape: Tape,
    output: Tensor,
    x: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Node | None:
    node = tape.node(x)
    if node is None or output.shape == x.shape:
        return node
    return _cut(tape, output, node, dim, slice(start, end, step))


def _split(tape: Tape, outputs: Sequence[Tensor], x: Tensor, _: Any, dim: int = 0) -> None:
    node, start = tape.node(x), 0
    if node is None:
        return
    for output in outputs:
        stop = start + output.shape[dim]
        tape.follow(output, _cut(tape, output, node, dim, slice(start, stop)))
        start = stop


def _index_select(tape: Tape, output: Tensor, x: Tensor, dim: int, index: Tensor) -> Node | None:
    node = tape.node(x)
    return None if node is None else _cut(tape, output, node, dim, index.clone())


def _index(tape: Tape, output: Tensor, x: Tensor, indices: Sequence[Any]) -> Node | None:
    known = [(dim, one) for dim, one in enumerate(indices) if one is not None]
    if len(known) != 1 or known[0][1].ndim != 1 or known[0][1].dtype == torch.bool:
        return None
    return _index_select(tape, output, x, *known[0])


def _cut(tape: Tape, output: Tensor, node: Node, dim: int, part: Any) -> Node:
    """Return the node of some features."""
    dim %= len(node.shape)

    def back(axes: Axes) -> list[Axes]:
        if has_tokens(axes[dim]):
            raise UnfollowedError("takes some tokens of a text")
        return [(*axes[:dim], (node.shape[dim],), *axes[dim + 1 :])]

    places = (*(slice(None),) * dim, part)
    return tape.made(output, node.role, [node], lambda _, x: x[places], back)


def _select(tape: Tape, output: Tensor, x: Tensor, dim: int, index: int) -> Node | None:
    node, dim = tape.node(x), dim % x.ndim
    if node is None:
        return None
    return tape.made(
        output,
        node.role,
        [node],
        lambda _, x: x.select(dim, index),
        lambda axes: [(*axes[:dim], (node.shape[dim],), *axes[dim:])],
    )


def _unbind(tape: Tape, outputs: Sequence[Tensor], x: Tensor, dim: int = 0) -> None:
    for index, output in enumerate(outputs):
        if (node := _select(tape, output, x, dim, index)) is not None:
            tape.follow(output, node)


# Tensors side by side.


def _cat(tape: Tape, output: Tensor, parts: Sequence[Tensor], dim: int = 0) -> Node | None:
    # A cache begins with a tensor of no numbers.
    parts = [x for x in parts if x.numel()]
    known = [tape.node(x) for x in parts]
    role = next((node.role for node in known if node is not None), None)
    if role is None or len(parts) == 1:
        return known[0] if parts else None
    inputs = [node or tape.leaf(x, role) for x, node in zip(parts, known, strict=True)]
    return tape.concatenated(output, inputs, dim % output.ndim)


def _stack(tape: Tape, output: Tensor, parts: Sequence[Tensor], dim: int = 0) -> Node | None:
    inputs = [node for node in map(tape.node, parts) if node is not None]
    if len(inputs) < len(parts):
        return None
    dim %= output.ndim
    return tape.made(
        output,
        inputs[0].role,
        inputs,
        lambda _, *xs: torch.stack(xs, dim),
        lambda axes: [(*axes[:dim], *axes[dim + 1 :])] * len(inputs),
    )


# Pairs of numbers as complex ones, as some rotary positions turn them.


def _as_complex(tape: Tape, output: Tensor, x: Tensor) -> Node | None:
    node = tape.node(x)
    if node is None:
        return None
    return tape.made(
        output,
        node.role,
        [node],
        lambda _, x: torch.complex(x[..., 0], x[..., 1]),
        lambda axes: [(*axes, (2,))],
    )


def _as_real(tape: Tape, output: Tensor, x: Tensor) -> Node | None:
    node = tape.node(x)
    if node is None:
        return None
    return tape.made(
        output,
        node.role,
        [node],
        lambda _, x: torch.stack((x.real, x.imag), -1),
        lambda axes: [axes[:-1]],
    )


def _embedding(tape: Tape, output: Tensor, weight: Tensor, *_: Any) -> Node:
    return tape.leaf(output, STREAM, kind="embedding", name=tape.parameter(weight))


_COPIES = ("_to_copy", "alias", "clone", "contiguous", "detach", "lift_fresh", "positive")
_VIEWS = ("_reshape_alias", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "view", "view_copy")
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_COPIES, _copied),
    **dict.fromkeys(_VIEWS, _view),
    "_fused_rms_norm": _rms_norm,
    "add": _add,
    "addmm": _addmm,
    "baddbmm": _baddbmm,
    "bmm": _bmm,
    "cat": _cat,
    "copy": _copied_to,
    "div": _div,
    "embedding": _embedding,
    "expand": _expand,
    "index": _index,
    "index_select": _index_select,
    "mean": _mean,
    "mm": _mm,
    "mul": _mul,
    "native_dropout": _dropped,
    "native_layer_norm": _layer_norm,
    "neg": _neg,
    "permute": _permute,
    "rsub": _rsub,
    "select": _select,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split,
    "stack": _stack,
    "sub": _sub,
    "sum": _summed,
    "t": _t,
    "tanh": _tanh,
    "transpose": _transpose,
    "unbind": _unbind,
    "view_as_complex": _as_complex,
    "view_as_real": _as_real,
}
