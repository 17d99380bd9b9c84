"""Nodes: what linear operators make of parts, and how to compute it again for a few tokens.

A node is a tensor of the model as a linear function of leaves: of embeddings, the outputs of heads,
of other modules, and parameters that are added. Factors such as the scale of a norm stay as they
were in the run, so that each leaf has an exact share.

    leaf ──▶ operator ──▶ operator ──▶ query of an attention
             y = y(x₁) + y(x₂) + …     inputs are nodes, factors are tensors

The axes of a node say which are of the batch, of tokens, and of features. They are known of the
last node, and follow for its inputs. An axis may be several, such as batch · heads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple
from weakref import ReferenceType

import torch
from jaxtyping import Int
from torch import Tensor, nn

from glasshead.watching.errors import UnfollowedError

Axis = tuple[int, ...]
Axes = tuple[Axis, ...]


class Marked(int):
    """The size of an axis that is not of features."""


class Batch(Marked):
    """The number of rows of a batch."""


class Text(Marked):
    """The number of tokens of a text."""


# What a node is a part of: the residual stream, the output of heads on its way there, or what is
# projected from the stream, such as queries.
STREAM, HEADS, PROJECTED = "stream", "heads", "projected"


@dataclass(frozen=True, eq=False)
class Rows:
    """Tokens of a batch, each of which is computed alone, as a text of a batch of one.

    Attributes:
        batch, tokens: The row of the batch and the place of each.
    """

    batch: Int[Tensor, " rows"]
    tokens: Int[Tensor, " rows"]

    def shape(self, axes: Axes) -> list[int]:
        """Return the shape of a tensor at these rows."""
        return [prod(map(self._size, axis)) for axis in axes]

    def _size(self, atom: int) -> int:
        return len(self.tokens) if type(atom) is Text else 1 if type(atom) is Batch else atom

    def of(self, tensor: Tensor, axes: Axes) -> Tensor:
        """Return the numbers of a tensor of the run at these rows; it may broadcast.

        Args:
            tensor: The tensor.
            axes: The axes that it broadcasts to.
        """
        tensor = tensor.reshape((1,) * (len(axes) - tensor.ndim) + tensor.shape)
        marked = [any(isinstance(one, Marked) for one in axis) for axis in axes]
        if all(size == 1 for size, mark in zip(tensor.shape, marked, strict=True) if mark):
            return tensor
        # Each number of an axis gets an axis of its own, such as batch and heads of one of both.
        atoms = [
            axis if mark else (size,)
            for size, axis, mark in zip(tensor.shape, axes, marked, strict=True)
        ]
        tensor = tensor.expand([prod(own) for own in atoms])
        flat = [one for own in atoms for one in own]
        tensor, kinds = tensor.reshape(flat), [type(one) for one in flat]
        text, batch = kinds.index(Text), kinds.index(Batch) if Batch in kinds else None
        if batch is None:
            tensor = tensor.index_select(text, self.tokens.to(tensor.device))
        else:
            places = self.batch.to(tensor.device), self.tokens.to(tensor.device)
            tensor = tensor.movedim((batch, text), (0, 1))[places]
            tensor = tensor[None].movedim((0, 1), (batch, text))
        return tensor.reshape([prod(map(self._size, own)) for own in atoms])


@dataclass(frozen=True, eq=False)
class At:
    """Some rows, for a tensor with some axes.

    Attributes:
        rows: The rows.
        axes: The axes.
    """

    rows: Rows
    axes: Axes

    @property
    def shape(self) -> list[int]:
        """The shape of the tensor at these rows."""
        return self.rows.shape(self.axes)

    def of(self, tensor: Tensor) -> Tensor:
        """Return the numbers at these rows of another tensor, which broadcasts to it."""
        return self.rows.of(tensor, self.axes)


class Operation(NamedTuple):
    """A linear operator.

    Attributes:
        run: Computes its output at some rows from its inputs there.
        back: Returns the axes of each input from those of the output.
    """

    run: Callable[..., Tensor]
    back: Callable[[Axes], Sequence[Axes]]


class Node:
    """A tensor of the run as a linear function of others.

    Attributes:
        inputs: The nodes that it is computed from.
        operation: What computes it; None: it is a leaf.
        shape: Its shape in the run.
        role: STREAM, HEADS or PROJECTED.
        order: A number that grows during the run.
        eps: The rounding of the least precise dtype on its way.
    """

    __slots__ = ("eps", "inputs", "operation", "order", "role", "shape")

    def __init__(
        self,
        inputs: Sequence["Node"],
        operation: Operation | None,
        shape: Sequence[int],
        role: str,
        order: int,
        dtype: torch.dtype,
    ) -> None:
        self.eps = max([torch.finfo(dtype).eps, *(one.eps for one in inputs)])
        self.inputs, self.operation, self.shape = tuple(inputs), operation, tuple(shape)
        self.role, self.order = role, order


class Held:
    """A tensor of the run, which is copied before the model writes to its memory.

    Attributes:
        tensor: Its numbers in the run.
    """

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Routed(NamedTuple):
    """Inputs of experts in a run.

    Attributes:
        experts: Their module, which is not kept alive.
        hidden: What they read, `[tokens, width]`.
        chosen, weights: The experts of each token and their weights, `[tokens, chosen]`.
    """

    experts: ReferenceType[nn.Module]
    hidden: Held
    chosen: Held
    weights: Held


class Leaf(Node):
    """A component of the residual stream.

    Attributes:
        name: Of the module that made it, or of the parameter.
        kind: "embedding", "heads", "module", "parameter" or "input".
        held: Its numbers in the run.
        routed: What was given to the experts that made it; None: it is not made by experts.
    """

    __slots__ = ("held", "kind", "name", "routed")

    def __init__(self, name: str, kind: str, held: Held, role: str, order: int) -> None:
        super().__init__((), None, held.tensor.shape, role, order, held.tensor.dtype)
        self.name, self.kind, self.held = name, kind, held
        self.routed: Routed | None = None


def reachable(node: Node) -> list[Node]:
    """Return a node and all that it is computed from, each before what is computed from it."""
    found, waiting = {id(node): node}, [node]
    while waiting:
        for one in waiting.pop().inputs:
            if id(one) not in found:
                found[id(one)] = one
                waiting.append(one)
    return sorted(found.values(), key=lambda one: one.order)


def leaves_of(node: Node) -> list[Leaf]:
    """Return the leaves that a node is computed from, in order."""
    return [one for one in reachable(node) if isinstance(one, Leaf)]


def axes_of(nodes: Sequence[Node], last: Axes) -> dict[int, Axes]:
    """Return the axes of nodes by their ids, from the axes of the last.

    Errors: an `UnfollowedError` if an operator mixes tokens.
    """
    known = {id(nodes[-1]): last}
    for node in reversed(nodes):
        if node.operation is None:
            continue
        given = node.operation.back(known[id(node)])
        for one, axes in zip(node.inputs, given, strict=True):
            if not _alike(known.setdefault(id(one), tuple(axes)), axes):
                raise UnfollowedError("uses one tensor by several layouts")
    return known


def _alike(first: Axes, second: Axes) -> bool:
    kinds = [
        [(type(one), one) for axis in axes for one in axis if one != 1] for axes in (first, second)
    ]
    return kinds[0] == kinds[1]


def broadcast(node: Node, axes: Axes) -> Axes:
    """Return the axes of an input that broadcasts to an output's; a leaf has all of these."""
    if isinstance(node, Leaf):
        return axes
    own = axes[len(axes) - len(node.shape) :]
    return tuple((1,) if size == 1 else axis for size, axis in zip(node.shape, own, strict=True))


def regrouped(axes: Axes, shape: Sequence[int]) -> Axes:
    """Return the axes of a tensor before a view, from those after it.

    >>> regrouped(((2,), (6,), (Text(5),)), (2, 2, 3, 5))
    ((2,), (2,), (3,), (5,))

    Errors: an `UnfollowedError` if the view cuts tokens into pieces.
    """
    atoms = [one for axis in axes for one in axis if one != 1]
    found: list[Axis] = []
    for size in shape:
        own: list[int] = []
        left = size
        while left > 1:
            one = atoms.pop(0) if atoms else 0
            if one and left % one == 0:
                own.append(one)
                left //= one
            elif one and one % left == 0 and not isinstance(one, Marked):
                own.append(left)
                atoms.insert(0, one // left)
                left = 1
            else:
                raise UnfollowedError("cuts the tokens of a text into pieces")
        found.append(tuple(own) or (1,))
    return tuple(found)


def has_tokens(axis: Axis) -> bool:
    """Return whether an axis is of tokens, or of texts."""
    return any(isinstance(one, Marked) for one in axis)
