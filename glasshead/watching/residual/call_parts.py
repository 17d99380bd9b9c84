"""Followed tensors of one attention call: its queries, keys and the output of its heads."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.residual.nodes import Axes, Batch, Held, Leaf, Node, Rows, Text
from glasshead.watching.residual.tape import Tape, Written

# A head, or one for each row.
Head = int | Int[Tensor, " rows"]


@dataclass(frozen=True, eq=False)
class Side:
    """The queries or the keys of a call, and their node.

    Attributes:
        node: The node; None: they are not followed.
        held: The tensor of the model.
        axes: Its axes.
        heads: The number of heads, an axis of its own or one with the batch.
    """

    node: Node | None
    held: Held
    axes: Axes
    heads: int

    @property
    def length(self) -> int:
        """The number of tokens."""
        return int(self.axes[self._place][0])

    @property
    def batch(self) -> int:
        """The number of texts."""
        return self.held.tensor.numel() // (self.heads * self.length * self.width)

    @property
    def width(self) -> int:
        """The width of a head."""
        return self.held.tensor.shape[-2 if self._place == len(self.axes) - 1 else -1]

    @property
    def _place(self) -> int:
        return next(i for i, axis in enumerate(self.axes) if any(type(a) is Text for a in axis))

    def vectors(self, rows: Rows, head: Head) -> Float[Tensor, "rows width"]:
        """Return the queries or keys of a head at some rows, as the model computed them."""
        shape = rows.shape(self.axes)
        found = rows.of(self.held.tensor, self.axes).expand(shape)
        apart = self._apart(found).reshape(self.heads, -1, self.width)
        return apart[head, torch.arange(apart.shape[1])]

    def pulling(self, rows: Rows, head: Head, g: Float[Tensor, "rows width"]) -> Tensor:
        """Return g for a head, and 0 for the others, in the layout of the node."""
        made = g.new_zeros(self.heads, len(rows.tokens), self.width)
        made[head, torch.arange(len(g))] = g
        return self._apart(made).reshape(rows.shape(self.axes))

    def _apart(self, tensor: Tensor) -> Tensor:
        return tensor.transpose(-1, -2) if self._place == len(self.axes) - 1 else tensor


@dataclass(frozen=True, eq=False)
class CallParts:
    """The tensors of a call that were followed.

    Attributes:
        name: Name of the attention.
        query, key: Its queries and keys, before the scale; None: they are not found.
        scale: The scale of the scores.
        context: The leaf of the output of its heads.
        written: What these wrote together.
        value: Its values, `[batch, kv_heads, keys, value_dim]`.
        why: Why nothing is followed; None: it is.
    """

    name: str
    query: Side | None
    key: Side | None
    scale: Tensor | float
    context: Leaf
    written: Written
    value: Held
    why: str | None


def parts_of(
    tape: Tape, name: str, captured: CapturedCall, context: Callable[[], Tensor]
) -> CallParts:
    """Return what is followed of a call, and follow the output of its heads from here on.

    Args:
        tape: The tape.
        name: Name of the attention.
        captured: The call.
        context: Returns the output of its heads.
    """
    problem = captured.problem
    made = context().detach()
    leaf, written = tape.heads(made, name)
    tape.follow(made, leaf)
    # Some functions return it with the tokens before the heads.
    order = [*range(made.ndim - 3), made.ndim - 2, made.ndim - 3, made.ndim - 1]
    other = made.permute(order)
    tape.follow(other, tape.permuted(other, leaf, order))
    value = problem.value.detach()
    tape.charge(value.numel() * value.itemsize)
    held, why = tape.kept(value), tape.spent
    if captured.by_hand is None:
        query, key = (_side(tape, x) for x in (problem.query, problem.key))
        return CallParts(name, query, key, problem.scale, leaf, written, held, why)
    if tape.scores is None:
        return CallParts(name, None, None, 1.0, leaf, written, held, why)
    scores, batch = tape.scores, made.shape[-4] if made.ndim > 3 else 1
    query, key = (
        _joined_side(node, of, batch, transposed=transposed)
        for node, of, transposed in zip(
            scores.nodes, (scores.query, scores.key), (False, True), strict=True
        )
    )
    return CallParts(name, query, key, scores.scale, leaf, written, held, why)


def _side(tape: Tape, tensor: Tensor) -> Side:
    """Return the side of a tensor `[batch, heads, length, dim]`."""
    batch, heads, length, dim = tensor.shape[-4:]
    axes = ((_batch(batch),), (heads,), (Text(length),), (dim,))
    tape.charge(tensor.numel() * tensor.itemsize)
    return Side(tape.node(tensor), tape.kept(tensor), axes, heads)


def _joined_side(node: Node | None, held: Held, batch: int, *, transposed: bool) -> Side:
    """Return the side of an input of a product, `[batch · heads, length, dim]`."""
    heads = held.tensor.shape[0] // batch
    length, dim = held.tensor.shape[1:][:: -1 if transposed else 1]
    last = ((Text(length),), (dim,))
    return Side(node, held, ((_batch(batch), heads), *last[:: -1 if transposed else 1]), heads)


def _batch(size: int) -> int:
    return Batch(size) if size > 1 else 1
