"""The tape: which tensors of a running model are followed, and as which node."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakSet, ref

import torch
from torch import Tensor, nn

from glasshead.watching.errors import BudgetError, UnfollowedError
from glasshead.watching.module_calls import calling
from glasshead.watching.residual.nodes import (
    HEADS,
    At,
    Axes,
    Held,
    Leaf,
    Node,
    Operation,
    has_tokens,
    leaves_of,
)

_Layout = tuple[Any, ...]


class Output(NamedTuple):
    """The logits of a model.

    Attributes:
        node: Their node.
        last: Those of the last token of each row, `[batch, vocab]`, as the model gave them.
        shape: Their shape, `[batch, tokens, vocab]`.
    """

    node: Node
    last: Tensor
    shape: tuple[int, ...]


class Score(NamedTuple):
    """Scores of explicit attention: queries · keys · scale.

    Attributes:
        query, key: The inputs of the product, `[batch · heads, queries, dim]` and `[…, dim, keys]`.
        nodes: Their nodes.
        scale: The factor so far.
        before: The scores without the last factor; None: there is none.
    """

    query: Held
    key: Held
    nodes: tuple[Node | None, Node | None]
    scale: float = 1.0
    before: "Score | None" = None


class Written:
    """Sum of what the heads of a call wrote, as their projection gave it.

    Attributes:
        node: Its node; None: nothing is followed that comes from these heads alone.
        last: The vector of the last token of the last text, as the model gave it.
        projection: Name of the module that projected it first; "" if it is a function.
    """

    __slots__ = ("last", "node", "projection")

    def __init__(self) -> None:
        self.node: Node | None = None
        self.last: Tensor | None = None
        self.projection = ""


class _Memory:
    """The followed tensors in a piece of memory, by their layouts.

    Attributes:
        alive: A weak reference to it.
        nodes, labels, scores: The nodes, the modules that returned them, and scores.
        held: What is to be copied before the model writes to it.
    """

    __slots__ = ("alive", "held", "labels", "nodes", "scores")

    def __init__(self, tensor: Tensor) -> None:
        self.alive = ref(tensor.untyped_storage())
        self.nodes: dict[_Layout, Node] = {}
        self.labels: dict[_Layout, str] = {}
        self.scores: dict[_Layout, Score] = {}
        self.held: WeakSet[Held] = WeakSet()


class Tape:
    """The nodes of the tensors that are in memory while a model runs.

    A tensor is known by its memory and layout, whatever object stands for it.

    Args:
        names: The modules of the model, and their names.
        charge: Called with the bytes of each tensor that is kept; it may raise.

    Attributes:
        spent: Why nothing more is followed; None while all is.
        scores: The last scores of explicit attention; None: there are none.
        output: What the model has returned last; None: it is not followed.
    """

    def __init__(self, names: dict[nn.Module, str], charge: Callable[[int], None]) -> None:
        self.charge, self._names = charge, names
        self.spent: str | None = None
        self.scores: Score | None = None
        self.output: Output | None = None
        self._memories: dict[int, _Memory] = {}
        self._most, self._order = 256, 0
        self._written: dict[int, Written] = {}
        self._parameters: dict[int, list[tuple[int, int, str]]] = {}
        for module, name in names.items():
            for own, tensor in module.named_parameters(recurse=False):
                path = name if own == "weight" and name else f"{name}.{own}".removeprefix(".")
                place = int(tensor.storage_offset()), tensor.numel(), path
                self._parameters.setdefault(_address(tensor), []).append(place)

    def node(self, tensor: Any) -> Node | None:
        """Return the node of a tensor; None if it is not followed."""
        memory = self._memory(tensor) if isinstance(tensor, Tensor) else None
        if memory is None or not memory.nodes:
            return None
        layout = _layout(tensor)
        return memory.nodes.get(layout) or self._joined(tensor, memory.nodes, layout)

    def _joined(self, tensor: Tensor, nodes: "dict[_Layout, Node]", layout: _Layout) -> Node | None:
        """Return the node of a tensor whose features were written in parts."""
        (start, shape, stride, dtype), parts, width = layout, [], 0
        if not shape:
            return None
        while width < shape[-1]:
            first = start + width * stride[-1]
            part = next(
                (
                    one
                    for (at, own, step, kind), one in nodes.items()
                    if (at, own[:-1], step, kind) == (first, shape[:-1], stride, dtype)
                    and 0 < own[-1] <= shape[-1] - width
                ),
                None,
            )
            if part is None:
                return None
            parts.append(part)
            width += part.shape[-1]
        node = self.concatenated(tensor, parts, tensor.ndim - 1)
        nodes[layout] = node
        return node

    def follow(self, tensor: Tensor, node: Node) -> None:
        """Follow a tensor as a node."""
        self._memory_of(tensor).nodes[_layout(tensor)] = node

    def label(self, tensor: Tensor, name: str) -> None:
        """Record which module has returned a tensor."""
        self._memory_of(tensor).labels[_layout(tensor)] = name

    def labelled(self, tensor: Tensor) -> str | None:
        """Return the name of the module that has returned a tensor, if any."""
        memory = self._memory(tensor)
        return None if memory is None else memory.labels.get(_layout(tensor))

    def parameter(self, tensor: Tensor) -> str | None:
        """Return the name of a parameter, or of the one that a tensor is a view of."""
        start = tensor.storage_offset()
        for first, count, name in self._parameters.get(_address(tensor), ()):
            if first <= start < first + count:
                return name
        return None

    def is_positions(self, tensor: Tensor) -> bool:
        """Return whether a tensor is a parameter with a vector for each of several places."""
        return tensor.ndim > 1 and tensor.shape[-2] > 1 and self.parameter(tensor) is not None

    def leaf(
        self, tensor: Tensor, role: str, *, kind: str | None = None, name: str | None = None
    ) -> Leaf:
        """Make a leaf of a tensor that is not followed.

        Args:
            tensor: The tensor.
            role: What it is added to.
            kind: See `Leaf`; None: "parameter" or "module".
            name: Its name; None: of the parameter, or of the module that has made it.
        """
        own = self.parameter(tensor)
        if own is None:
            self.charge(tensor.numel() * tensor.itemsize)
            name = name or self.labelled(tensor) or self._names.get(calling(self._names), "")  # type: ignore[arg-type]
        kind = kind or ("module" if own is None else "parameter")
        self._order += 1
        leaf = Leaf(name or own or "", kind, self.kept(tensor), role, self._order)
        if own is None:
            # How it was computed would hold what it was computed from.
            self._memory_of(tensor).nodes = {_layout(tensor): leaf}
        return leaf

    def kept(self, tensor: Tensor) -> Held:
        """Keep the numbers of a tensor, which is copied only if the model writes to it."""
        held = Held(tensor.detach())
        if self.parameter(tensor) is None:
            self._memory_of(tensor).held.add(held)
        return held

    def made(
        self,
        output: Tensor,
        role: str,
        inputs: Sequence[Node],
        run: Callable[..., Tensor],
        back: Callable[[Axes], Sequence[Axes]],
    ) -> Node:
        """Make the node of an operator's output."""
        self._order += 1
        operation = Operation(run, back)
        return Node(inputs, operation, output.shape, role, self._order, output.dtype)

    def heads(self, tensor: Tensor, name: str) -> tuple[Leaf, Written]:
        """Make a leaf of the output of heads, and what will hold what they write together."""
        leaf, written = self.leaf(tensor, HEADS, kind="heads", name=name), Written()
        self._written[leaf.order] = written
        return leaf, written

    def projected(self, node: Node, name: str | None) -> None:
        """Record that a module projects the output of heads."""
        for written in self._written_by(node):
            written.projection = written.projection or name or ""

    def wrote(self, tensor: Tensor, node: Node, other: Node | None = None) -> None:
        """Record what heads wrote together, where something else is added to it.

        Args:
            tensor: It.
            node: Its node.
            other: The node of what is added; from the same heads, it is a part of it.
        """
        found = self._written_by(node)
        same = self._written_by(other) if found and other is not None else []
        for written in found:
            if written not in same:
                written.node, written.last = node, tensor.reshape(-1, tensor.shape[-1])[-1].clone()

    def _written_by(self, node: Node) -> list[Written]:
        """Return what is open of the heads that a node is computed from."""
        orders = [leaf.order for leaf in leaves_of(node)]
        found = [self._written[order] for order in orders if order in self._written]
        return [one for one in found if one.node is None]

    def permuted(self, output: Tensor, node: Node, order: Sequence[int]) -> Node:
        """Make the node of a tensor with its axes in another order."""

        def back(axes: Axes) -> list[Axes]:
            return [tuple(axes[order.index(place)] for place in range(len(order)))]

        return self.made(output, node.role, [node], lambda _, x: x.permute(*order), back)

    def concatenated(self, output: Tensor, inputs: Sequence[Node], dim: int) -> Node:
        """Make the node of tensors side by side along an axis of features."""

        def run(at: At, *xs: Tensor) -> Tensor:
            sizes = at.shape
            return torch.cat([x.expand(*sizes[:dim], -1, *sizes[dim + 1 :]) for x in xs], dim)

        def back(axes: Axes) -> list[Axes]:
            if has_tokens(axes[dim]):
                raise UnfollowedError("joins the tokens of several texts")
            return [(*axes[:dim], (one.shape[dim],), *axes[dim + 1 :]) for one in inputs]

        return self.made(output, inputs[0].role, inputs, run, back)

    def guarded(self, follow: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Follow something, and follow nothing more if that fails, as the model runs on."""
        try:
            return follow(*args, **named)
        except BudgetError as error:
            self.spent = str(error)
        except Exception as error:  # noqa: BLE001 - the model runs on
            self.spent = f"following the residual stream failed ({type(error).__name__}: {error})"
        return None

    def forget_freed(self) -> None:
        """Forget the nodes of tensors that the model has freed, and what these hold."""
        known = [*self._memories.items()]
        self._memories = {key: one for key, one in known if one.alive() is not None}
        self._most = 2 * len(self._memories) + 256

    def close(self) -> None:
        """Forget the tensors in memory, and release the model."""
        self._memories.clear()
        self._parameters.clear()
        self._written.clear()
        self._names = {}

    def score(self, output: Tensor, query: Tensor, key: Tensor, scale: float = 1) -> None:
        """Record a product of matrices, which may be the scores of explicit attention."""
        nodes = self.node(query), self.node(key)
        if nodes != (None, None) and self.parameter(key) is None:
            made = Score(self.kept(query), self.kept(key), nodes, float(scale))
            self._memory_of(output).scores[_layout(output)] = self.scores = made

    def rescored(self, output: Tensor, x: Any, y: Any, *, divides: bool = False) -> None:
        """Record scores that are multiplied by a number, or have another layout."""
        memory = self._memory(x) if isinstance(x, Tensor) else None
        known = None if memory is None else memory.scores.get(_layout(x))
        if known is None or (isinstance(y, Tensor) and y.numel() != 1):
            return
        factor = 1 / float(y) if divides else float(y)
        if factor != 1:
            known = self.scores = known._replace(scale=known.scale * factor, before=known)
        self._memory_of(output).scores[_layout(output)] = known

    def capped(self, x: Tensor) -> None:
        """Record that scores are capped: what they were divided by before belongs to the cap."""
        memory = self._memory(x)
        known = None if memory is None else memory.scores.get(_layout(x))
        if known is not None and known.before is not None:
            self.scores = known.before

    def overwritten(self, tensors: Sequence[Tensor]) -> None:
        """Keep what is held before an operator writes to the memory of some tensors."""
        for tensor in tensors:
            memory = self._memory(tensor)
            if memory is None:
                continue
            for held in [*memory.held]:
                held.tensor = held.tensor.clone()
            written = _layout(tensor)
            kept = [pair for pair in memory.nodes.items() if _are_apart(pair[0], written)]
            memory.nodes = dict(kept)
            memory.held.clear()
            memory.labels.clear()
            memory.scores.clear()

    def _memory(self, tensor: Any) -> _Memory | None:
        memory = self._memories.get(_address(tensor))
        return None if memory is None or memory.alive() is None else memory

    def _memory_of(self, tensor: Tensor) -> _Memory:
        address = _address(tensor)
        memory = self._memories.get(address)
        if memory is None or memory.alive() is None:
            if len(self._memories) > self._most:
                self.forget_freed()
            memory = self._memories[address] = _Memory(tensor)
        return memory


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata  # noqa: SLF001 - it has no other name


def _are_apart(one: _Layout, other: _Layout) -> bool:
    """Return whether two layouts are different features of one tensor."""
    (at, own, step, _), (start, shape, stride, _) = one, other
    if step != stride or own[:-1] != shape[:-1] or not own:
        return False
    return at + own[-1] <= start or start + shape[-1] <= at


def _layout(tensor: Tensor) -> _Layout:
    # The stride of an axis of one number says nothing.
    shape, strides = tensor.shape, tensor.stride()
    if 1 in shape:
        strides = tuple(0 if n == 1 else stride for n, stride in zip(shape, strides, strict=True))
    return tensor.storage_offset(), shape, strides, tensor.dtype
