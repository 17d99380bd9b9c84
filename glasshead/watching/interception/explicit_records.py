"""Records of the tensors of explicit attention, and their origins.

A tensor has no name, and a view of it is another object: so a record is found by the memory that
holds the numbers, `TensorRecords`. It says three things.

- The role, `TensorRole`.
- The layout: which part of which axis of its origin each step in memory is, so that a view that is
  split, joined or transposed can be read by its strides (`axes.py`). None: it cannot be told.
- The origin: of scores the `ScoreProduct` that made them, of weights their softmax, `HandWeights`;
  and the steps since then, one `Change` each.

For example, q @ k.mT of [2, 3, 11, 5], two texts of three heads, is one product of six matrices:

    bmm(q, k.mT)          [6, 11, 11]     SCORES   ScoreProduct: axis 1 is of queries, 2 of keys
      .view(2, 3, 11, 11) [2, 3, 11, 11]  the same record; its first two axes are parts of axis 0
    / 2.2                 [2, 3, 11, 11]  SCORES   the same ScoreProduct, "divided by 2.2"
      .softmax(-1)        [2, 3, 11, 11]  WEIGHTS  HandWeights: axis 3 is of keys, 2 of queries
    bmm(weights, v)       [6, 11, 5]      `TakenWeights`: weights, values and output, by these axes

`HandWeights` and `LateWeights` are open until a product takes them, or nobody can any more. While
they are, `HandSoftmax`, which the watchers hold, says that it waits; then whether it was taken, and
why not.
"""

import weakref
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.watching.interception.axes import Axis, AxisLayout, Labels, Product
from glasshead.watching.missed import HandSoftmax

MIXED = "heads mixed by a learned product"


class HeadMixing(NamedTuple):
    """A product that mixes the heads of scores or weights, as talking heads do.

    Attributes:
        matrix: The factor of each head in each head that is made, `[heads, heads]`.
        bias: What is added to each head that is made, if anything.

    Source: Shazeer et al. 2020 (Talking-Heads Attention), section 4.
    """

    matrix: Float[Tensor, "heads heads"]
    bias: Float[Tensor, " heads"] | None = None

    def of(
        self, weights: Float[Tensor, "*batch heads queries keys"]
    ) -> Float[Tensor, "*batch heads queries keys"]:
        """Return the weights mixed."""
        mixed = torch.einsum("gh,...hqk->...gqk", self.matrix.to(weights), weights)
        return mixed if self.bias is None else mixed + self.bias.to(weights)[:, None, None]


class Change(NamedTuple):
    """A change of scores or weights.

    Attributes:
        words: What is done, such as "times 0.5".
        other: The tensor that is added, if any.
        keeps: Whether it keeps the numbers, but for rounding.
        factor: What it multiplies the numbers by; None if it does anything but that, adding
            numbers and hiding some.
        exponential: Whether it is the exponential, which may be half of a softmax.
        scores: The numbers that it is of, where its result does not show them: some have become
            infinite, or 0 without being -inf.
        mixing: How it mixes the heads of weights, if it does.
    """

    words: str
    other: "weakref.ref[Tensor] | None" = None
    keeps: bool = False
    factor: float | None = 1.0
    exponential: bool = False
    scores: Tensor | None = None
    mixing: HeadMixing | None = None


@dataclass(eq=False)
class ScoreProduct:
    """A product that may be one of queries and keys.

    Attributes:
        sides: The axes of its result that come from the first and from the second operand.
        dtype: Its type, the lowest number of which hides a key.
        features: Those of the axes that are features of a projection.
        found: The product itself, where its operands are kept.
    """

    sides: tuple[frozenset[int], frozenset[int]]
    dtype: torch.dtype
    features: frozenset[int]
    found: Product | None = None

    def side(self, axis: Axis) -> int | None:
        """Return from which operand an axis comes; None if from both or neither."""
        own = {part.axis for part in axis}
        return next((n for n, side in enumerate(self.sides) if own and own <= side), None)


@dataclass(eq=False)
class HandWeights:
    """A softmax of scores, whose weights no product has taken so far.

    Attributes:
        scores: Its input, until it is closed.
        shape: The shape of that.
        axis: The axis of the keys.
        queries: The axis of the queries, where the product of the scores tells.
        axes: The axes of the product that its axes are made of; None if that is not to be told.
        of_features: Whether its queries or its keys are features of a projection.
        over_features: Whether both are, as in cross-covariance attention.
        product: The product that made the scores.
        steps: What was done to the scores.
        found: What the watchers know of it.
        made: Weak references to the memory of its weights, and of what is made of them.
        open: Whether a product may still take its weights.
    """

    scores: Tensor | None
    shape: torch.Size
    axis: int
    queries: int | None
    axes: Sequence[Axis] | None
    of_features: bool
    over_features: bool
    product: ScoreProduct
    steps: tuple[Change, ...]
    found: HandSoftmax
    made: "list[weakref.ref[torch.UntypedStorage]]" = field(default_factory=list)
    open: bool = True

    def close(self, why: str | None = None) -> None:
        """Wait no longer for a product, and keep nothing alive."""
        self.open, self.scores = False, None
        self.found.why = why or self.found.why
        self.found.waits = False


@dataclass(eq=False)
class LateWeights:
    """A softmax in a pass that was not followed from its beginning: of what is not known.

    Attributes:
        found: What the watchers know of it.
        made: Weak references to the memory of its weights, and of what is made of them.
        open: Whether a product may still take its weights.
    """

    found: HandSoftmax
    made: "list[weakref.ref[torch.UntypedStorage]]" = field(default_factory=list)
    open: bool = True

    def close(self, why: str | None = None) -> None:
        """Wait no longer for a product."""
        self.open = False
        self.found.why = why or self.found.why
        self.found.waits = False


class TensorRole(IntEnum):
    """Role of a tensor in attention; one made of several tensors has the greatest of theirs."""

    STATIC = auto()  # a parameter, or made of parameters alone
    FEATURES = auto()  # a product with a parameter, such as a projection
    SCORES = auto()  # a product of two other tensors, and what is made of it
    WEIGHTS = auto()  # the output of a softmax, and what is made of it


@dataclass(slots=True, eq=False)
class Record:
    """Record of the tensor in a storage.

    Attributes:
        storage: A weak reference to the storage, which drops the record with it.
        kind: The part of attention that it is.
        layout: Where its axes are; None if that is not to be told.
        origin: The product or the softmax that it comes from; of features their axes.
        steps: What was done to it since.
        lost: The operator after which the axes were not to be told.
    """

    storage: "weakref.ref[torch.UntypedStorage]"
    kind: TensorRole
    layout: AxisLayout | None = None
    origin: Any = None
    steps: tuple[Change, ...] = ()
    lost: str = ""

    def axes(self, tensor: Tensor) -> list[Axis] | None:
        """Return the parts of each axis of a view; None if they are not to be told."""
        return self.layout and self.layout.axes(tensor.shape, tensor.stride())


class TensorRecords:
    """The records of tensors, by the memory that holds their numbers.

    A view has the record of its tensor. A record lasts as long as the memory, which it refers to
    weakly, so that a tensor lives no longer than it would.

    PyTorch's `StorageWeakRef` would keep a small object of each freed storage. Malloc cannot join
    the free memory on both sides of it.

    Attributes:
        follows: Whether tensors are followed: nobody has stopped it.
    """

    def __init__(self) -> None:
        self.follows = True
        self._known: dict[int, Record] = {}
        # The storages of parameters, which last as long as the watch.
        self._parameters: set[int | None] = set()

    def of(self, tensor: Tensor) -> Record | None:
        """Return what is known of a tensor."""
        try:
            return self._known.get(tensor.untyped_storage()._cdata)  # noqa: SLF001 - no other name
        except (RuntimeError, NotImplementedError):
            # A sparse or a nested tensor has no memory of one layout.
            return None

    def is_parameter(self, tensor: Tensor) -> bool:
        """Return whether a tensor is a parameter, and not made of some."""
        return tensor.untyped_storage()._cdata in self._parameters  # noqa: SLF001 - no other name

    def know(self, parameters: Iterable[Tensor]) -> None:
        """Remember the parameters of a model."""
        for one in parameters:
            if self.of(one) is None:
                self._parameters.add(self.remember(one, TensorRole.STATIC))

    def remember(
        self,
        tensor: Any,
        kind: TensorRole,
        axes: Sequence[Axis] | None = None,
        origin: Any = None,
        steps: tuple[Change, ...] = (),
        lost: str = "",
    ) -> int | None:
        """Remember what a tensor is; the other arguments are those of `Record`.

        Returns: what identifies its memory; None if nothing is remembered.
        """
        try:
            storage = tensor.untyped_storage()
            layout = None if axes is None else AxisLayout(axes, tensor.stride())
        except (RuntimeError, NotImplementedError):
            return None
        key = storage._cdata  # noqa: SLF001 - no other name
        # It calls pop(key, reference), without an error if the key is gone.
        alive = weakref.ref(storage, partial(self._known.pop, key))
        self._known[key] = Record(alive, kind, layout, origin, steps, lost)
        if kind is TensorRole.WEIGHTS:
            origin.made.append(alive)
        return key

    def stop(self) -> None:
        """Know nothing any more."""
        self.follows = False
        self._known.clear()


@dataclass(frozen=True, eq=False, kw_only=True)
class TakenWeights:
    """The weights of a softmax that a product with values has taken.

    Attributes:
        scores, weights: The input of the softmax, and the softmax.
        after: What was done to its weights.
        found, side: The product, and which of its operands the weights are.
        parts: The axes of the softmax that each label of the weights stands for.
        queries: The axis of the queries; None if there is one query without an axis.
        output: The result of the product.
    """

    scores: Tensor
    weights: HandWeights
    after: tuple[Change, ...]
    found: Product
    side: int
    parts: dict[Hashable, Axis]
    queries: int | None
    output: Tensor

    @property
    def batch(self) -> list[int]:
        """The axes of the softmax before those of the queries and keys."""
        return [n for n in range(self.scores.ndim) if n not in (self.weights.axis, self.queries)]

    @property
    def rows(self) -> list[int]:
        """The axes of the softmax but that of the keys, the queries last."""
        return self.batch if self.queries is None else [*self.batch, self.queries]

    def of_scores(self) -> Tensor:
        """Return the scores, `[*batch, queries, keys]`."""
        scores = self.scores.detach().permute(*self.rows, self.weights.axis)
        return scores.unsqueeze(-2) if self.queries is None else scores

    def of_weights(self) -> Tensor:
        """Return the weights as the product took them, `[*batch, queries, keys]`."""
        tensor, labels = self.found.operands[self.side], self.found.labels[self.side]
        taken = self._laid_out(tensor, labels, [*self.rows, self.weights.axis])
        return taken.unsqueeze(-2) if self.queries is None else taken

    def of_values(self) -> Tensor:
        """Return the values, `[*batch, keys, value_dim]`."""
        tensor, labels = self.found.operands[1 - self.side], self.found.labels[1 - self.side]
        return self._laid_out(tensor, labels, [*self.batch, self.weights.axis])

    def of_output(self) -> Tensor:
        """Return the result of the product, `[*batch, queries, value_dim]`."""
        made = self._laid_out(self.output, self.found.made, self.rows)
        return made.unsqueeze(-2) if self.queries is None else made

    def _laid_out(self, tensor: Tensor, labels: Labels, axes: Sequence[int]) -> Tensor:
        """Return a tensor with these axes of the softmax, and those of the values as a last one."""
        sizes: list[int] = []
        places: list[Any] = []
        for label, size in zip(labels, tensor.shape, strict=True):
            parts = self.parts.get(label)
            # An axis of size 1 is none of the softmax's; neither is one of the values.
            known = parts is not None
            sizes += [part.size for part in parts] if parts else [size]
            places += [part.axis for part in parts] if parts else [-1 if known else (label,)]
        tensor = tensor.detach().reshape(sizes)
        for place in reversed(range(len(places))):
            # The same for all indices.
            if not isinstance(places[place], tuple) and places[place] < 0:
                tensor = tensor.select(place, 0)
                del places[place]
        own = [(label,) for label in self.found.own(1 - self.side) if (label,) in places]
        tensor = tensor.permute([places.index(at) for at in (*axes, *own) if at in places])
        for place, at in enumerate(axes):
            tensor = tensor if at in places else tensor.unsqueeze(place)
        if own:
            return tensor.flatten(len(axes))
        of_weights = labels == self.found.labels[self.side]
        return tensor if of_weights else tensor.unsqueeze(-1)
