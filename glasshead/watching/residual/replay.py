"""Compute what each leaf adds to a node at some tokens: one pass forward, and one back.

A node is a linear function y = Σ_c J_c x_c of its leaves, token by token. For any vector g then
g·y = Σ_c (J_cᵀ g)·x_c: a pass back from g gives the share of every leaf at once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.watching.residual.nodes import (
    At,
    Axes,
    Leaf,
    Node,
    Rows,
    Text,
    axes_of,
    has_tokens,
    reachable,
)


@dataclass(frozen=True, eq=False)
class Share:
    """The share of a leaf in a product with a node.

    Attributes:
        leaf: The leaf.
        of_rows: Its share at each row, `[rows]`; of the output of heads `[rows, heads]`.
        pulled: J_cᵀ g of each head, `[rows, heads, value_dim]`; None: it is not of heads.
    """

    leaf: Leaf
    of_rows: Float[Tensor, "*rows_heads"]
    pulled: Float[Tensor, "rows heads value_dim"] | None = None


def shares(
    node: Node, axes: Axes, rows: Rows, pulling: Float[Tensor, "..."]
) -> tuple[list[Share], Float[Tensor, " rows"]]:
    """Compute what each leaf adds to g·y at some rows, and g·y itself.

    Args:
        node: The node y.
        axes: Its axes.
        rows: The rows.
        pulling: g, in the layout of the node at these rows.

    Errors: an `UnfollowedError` if an operator mixes tokens.
    """
    dtype = torch.promote_types(pulling.dtype, torch.float32)
    with torch.inference_mode(mode=False), torch.enable_grad():
        output, leaves, known = _forward(node, axes, rows, dtype)
        g = pulling.to(output).expand_as(output)
        found = torch.autograd.grad(output, [x for _, x in leaves], g, allow_unused=True)
    total = _by_rows(output.detach() * g, axes, len(rows.tokens))
    result = []
    for (leaf, x), gradient in zip(leaves, found, strict=True):
        if gradient is not None:
            result.append(_share(leaf, x.detach(), gradient, known[id(leaf)], rows))
    return result, total


def value_of(node: Node, axes: Axes, rows: Rows, dtype: torch.dtype) -> Tensor:
    """Compute a node at some rows, in its own layout.

    Errors: an `UnfollowedError` if an operator mixes tokens.
    """
    return _forward(node, axes, rows, dtype)[0].detach()


def part_of(node: Node, axes: Axes, order: int, head: int | None, like: Tensor) -> Tensor:
    """Compute what one leaf, or one head, adds to a node at all tokens, in the layout of a tensor.

    Args:
        node, axes: The node.
        order: The order of the leaf.
        head: The head; None: it is not of heads.
        like: The tensor of the run, `[batch, heads, length, dim]`.

    Errors: an `UnfollowedError` if an operator mixes tokens.
    """
    batch, _, length, _ = like.shape
    places = torch.cartesian_prod(torch.arange(batch), torch.arange(length)).T
    rows = Rows(places[0], places[1])
    dtype = torch.promote_types(like.dtype, torch.float32)
    heads = None if head is None else torch.full_like(rows.tokens, head)
    made = alone(node, axes, rows, order, heads, dtype)
    return made.reshape(like.shape[1], batch, length, -1).movedim(0, 1)


def alone(
    node: Node,
    axes: Axes,
    rows: Rows,
    order: int,
    heads: Int[Tensor, " rows"] | None,
    dtype: torch.dtype,
) -> Tensor:
    """Compute what one leaf adds to a node at some rows, in the layout of the node.

    Args:
        node, axes, rows, dtype: As of `value_of`.
        order: The order of the leaf.
        heads: The head that is taken at each row; None: it is not of heads.

    Errors: an `UnfollowedError` if an operator mixes tokens.
    """

    def only(leaf: Leaf, x: Tensor) -> Tensor:
        if leaf.order != order:
            return torch.zeros_like(x)
        if heads is None:
            return x
        count = x.shape[-3] if x.ndim > 2 else 1
        chosen = (heads == torch.arange(count)[:, None]).to(x)
        return x * chosen.reshape(*(count,) * (x.ndim > 2), -1, 1)

    return _forward(node, axes, rows, dtype, only)[0].detach()


def _forward(
    node: Node,
    axes: Axes,
    rows: Rows,
    dtype: torch.dtype,
    change: Callable[[Leaf, Tensor], Tensor] | None = None,
) -> tuple[Tensor, list[tuple[Leaf, Tensor]], dict[int, Axes]]:
    """Compute a node from its leaves; return it, the leaves and the axes by the ids of nodes.

    Args:
        node, axes, rows, dtype: As of `value_of`.
        change: Changes the leaves; None: they stay.
    """
    nodes = reachable(node)
    known = axes_of(nodes, axes)
    made: dict[int, Tensor] = {}
    leaves: list[tuple[Leaf, Tensor]] = []
    for one in nodes:
        own = known[id(one)]
        if isinstance(one, Leaf):
            value = rows.of(one.held.tensor.detach(), own).to(dtype)
            # A leaf that is the same for all tokens has a share at each.
            whole = [
                size if has_tokens(axis) else had
                for size, had, axis in zip(rows.shape(own), value.shape, own, strict=True)
            ]
            value = value.expand(whole).clone()
            value = value if change is None else change(one, value)
            x = made[id(one)] = value.requires_grad_()
            leaves.append((one, x))
        elif one.operation is not None:
            inputs = [made[id(each)] for each in one.inputs]
            made[id(one)] = one.operation.run(At(rows, own), *inputs)
    return made[id(node)], leaves, known


def _share(leaf: Leaf, x: Tensor, gradient: Tensor, axes: Axes, rows: Rows) -> Share:
    count = len(rows.tokens)
    if leaf.kind != "heads":
        return Share(leaf, _by_rows(x * gradient, axes, count))
    apart = [y.movedim(-2, 0).reshape(count, *_heads(y), y.shape[-1]) for y in (x, gradient)]
    return Share(leaf, (apart[0] * apart[1]).sum(-1), apart[1])


def _heads(y: Tensor) -> tuple[int, ...]:
    return (y.shape[-3],) if y.ndim > 2 else (1,)


def _by_rows(x: Tensor, axes: Axes, count: int) -> Float[Tensor, " rows"]:
    """Sum over all axes but the rows."""
    place = next((i for i, axis in enumerate(axes) if any(type(a) is Text for a in axis)), None)
    if place is None or x.shape[place] % count:
        # A parameter that no token changes is the same at each.
        return x.sum().expand(count)
    return x.movedim(place, 0).reshape(count, -1).sum(-1)
