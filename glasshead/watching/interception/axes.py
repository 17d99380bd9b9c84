"""Axes of tensors followed by their strides, and axes of matrix products by their labels."""

import itertools
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

from torch import Tensor


class AxisPart(NamedTuple):
    """A part of an axis of a tensor: `size` indices, `inner` apart.

    Attributes:
        axis: The axis of the tensor; negative for an axis that was added by broadcasting.
        inner: Step between two of its indices; above 1 for the outer part of a split axis.
        size: Number of indices.
    """

    axis: int
    inner: int
    size: int


# The parts that an axis consists of, outermost first; none for an axis of size 1.
Axis = tuple[AxisPart, ...]
_added = itertools.count(1)


@lru_cache(maxsize=256)
def whole(shape: tuple[int, ...]) -> tuple[Axis, ...]:
    """Return each axis of a tensor as one part.

    >>> whole((2, 1, 5))
    ((AxisPart(axis=0, inner=1, size=2),), (), (AxisPart(axis=2, inner=1, size=5),))
    """
    return tuple((AxisPart(axis, 1, size),) if size > 1 else () for axis, size in enumerate(shape))


def broadcast(axes: Sequence[Axis], shape: Sequence[int], made: Sequence[int]) -> list[Axis] | None:
    """Return the axes of an elementwise result by those of an input; None if it has fewer.

    Args:
        axes, shape: The axes and the shape of the input.
        made: The shape of the result.
    """
    missing = len(made) - len(shape)
    if missing < 0:
        return None
    found: list[Axis] = []
    for place, size in enumerate(made):
        own = shape[place - missing] if place >= missing else 1
        if own == size:
            found.append(axes[place - missing] if place >= missing else ())
        elif own == 1:
            found.append((AxisPart(-next(_added), 1, size),))
        else:
            return None
    return found


class AxisLayout:
    """The places of the parts of a tensor in its memory, by which its views are read.

    Args:
        axes: The parts of each of its axes.
        strides: The stride of each axis.

    >>> import torch
    >>> scores = torch.zeros(2, 3, 5, 7)
    >>> layout = AxisLayout(whole(scores.shape), scores.stride())
    >>> view = scores.view(6, 5, 7).transpose(1, 2)
    >>> axes = layout.axes(view.shape, view.stride())
    >>> [[(part.axis, part.size) for part in axis] for axis in axes]
    [[(0, 2), (1, 3)], [(3, 7)], [(2, 5)]]
    """

    def __init__(self, axes: Sequence[Axis], strides: Sequence[int]) -> None:
        self._given = axes, strides

    @cached_property
    def _places(self) -> list[tuple[AxisPart, int]]:
        # Few layouts are ever read.
        places = []
        for parts, stride in zip(*self._given, strict=True):
            for part in reversed(parts):
                places.append((part, stride))
                stride *= part.size  # noqa: PLW2901 - outer parts follow
        return places

    def axes(self, shape: Sequence[int], strides: Sequence[int]) -> list[Axis] | None:
        """Return the parts of each axis of a view; None if they are not to be told."""
        found = []
        for size, stride in zip(shape, strides, strict=True):
            axis = self._axis(size, stride)
            if axis is None:
                return None
            found.append(axis)
        return found

    def _axis(self, size: int, stride: int) -> Axis | None:
        parts: list[AxisPart] = []
        if size > 1 and stride == 0:
            return (AxisPart(-next(_added), 1, size),)
        while size > 1:
            part = self._at(stride)
            if part is None:
                return None
            if part.size > size:
                part = part._replace(size=size)
            elif size % part.size:
                return None
            size //= part.size
            stride *= part.size
            parts.append(part)
        return merged(reversed(parts))

    def _at(self, stride: int) -> AxisPart | None:
        """Return the part, or the outer rest of one, whose indices are a stride apart."""
        for part, own in self._places:
            step, rest = divmod(stride, own) if own else (0, 1)
            if not rest and 0 < step < part.size and part.size % step == 0:
                return AxisPart(part.axis, part.inner * step, part.size // step)
        return None


def reshaped(axes: Sequence[Axis], shape: Sequence[int], made: Sequence[int]) -> list[Axis] | None:
    """Return the axes of a tensor that was copied into another shape."""
    return AxisLayout(axes, _row_major(shape)).axes(made, _row_major(made))


def _row_major(shape: Sequence[int]) -> list[int]:
    return [prod(shape[place + 1 :]) for place in range(len(shape))]


def merged(parts: Iterable[AxisPart]) -> Axis:
    """Join the neighboring parts of one axis, outermost first.

    >>> merged([AxisPart(0, 3, 2), AxisPart(0, 1, 3), AxisPart(1, 1, 5)])
    (AxisPart(axis=0, inner=1, size=6), AxisPart(axis=1, inner=1, size=5))
    """
    found: list[AxisPart] = []
    for part in parts:
        last = found[-1] if found else None
        if last and last.axis == part.axis and last.inner == part.inner * part.size:
            found[-1] = AxisPart(part.axis, part.inner, last.size * part.size)
        else:
            found.append(part)
    return tuple(found)


Labels = tuple[Hashable, ...]


class Product(NamedTuple):
    """A matrix product: a label for each axis of its operands and of its result.

    Attributes:
        operands: Both operands.
        labels: The labels of the axes of each.
        made: The labels of the result. A label of both operands that is not among these is summed.
        added: Whether another tensor is added to the product.
    """

    operands: tuple[Tensor, Tensor]
    labels: tuple[Labels, Labels]
    made: Labels
    added: bool = False

    @property
    def summed(self) -> list[Hashable]:
        """The labels that are summed over."""
        left, right = self.labels
        return [label for label in left if label in right and label not in self.made]

    def own(self, side: int) -> Labels:
        """Return the labels of the result that only one of the operands has."""
        return _own(self.labels, self.made, side)

    def places(self, side: int) -> frozenset[int]:
        """Return the axes of the result that only one of the operands has."""
        return _places(self.labels, self.made, side)


@lru_cache(maxsize=256)
def _own(labels: tuple[Labels, Labels], made: Labels, side: int) -> Labels:
    return tuple(one for one in made if one in labels[side] and one not in labels[1 - side])


@lru_cache(maxsize=256)
def _places(labels: tuple[Labels, Labels], made: Labels, side: int) -> frozenset[int]:
    return frozenset(map(made.index, _own(labels, made, side)))


_BMM: tuple[Labels, Labels, Labels] = ("b", "m", "k"), ("b", "k", "n"), ("b", "m", "n")
_MM: tuple[Labels, Labels, Labels] = ("m", "k"), ("k", "n"), ("m", "n")
_MV: tuple[Labels, Labels, Labels] = ("m", "k"), ("k",), ("m",)
# The labels of each operator, and the argument that its operands begin with.
_PRODUCTS = {
    "aten::bmm": (_BMM, 0),
    "aten::mm": (_MM, 0),
    "aten::mv": (_MV, 0),
    "aten::baddbmm": (_BMM, 1),
    "aten::baddbmm_": (_BMM, 1),
    "aten::addmm": (_MM, 1),
    "aten::addmm_": (_MM, 1),
    "aten::addmv": (_MV, 1),
}
# Composite ones, which arrive in inference mode.
_WHOLE = {"aten::matmul", "aten::linear", "aten::einsum"}
PRODUCTS = {*_PRODUCTS, *_WHOLE}


def product(name: str, inputs: Sequence[Any]) -> Product | None:
    """Return the labels of a product; None if they are not to be told.

    Args:
        name: The name of the operator, one of `PRODUCTS`.
        inputs: Its arguments.
    """
    if name in _PRODUCTS:
        (left, right, made), first = _PRODUCTS[name]
        return Product((inputs[first], inputs[first + 1]), (left, right), made, added=first > 0)
    if name == "aten::einsum":
        return _einsum(*inputs[:2])
    left, right = inputs[:2]
    if name == "aten::linear":
        leading = tuple(range(left.ndim - 1))
        made = (*leading, "n") if right.ndim > 1 else leading
        return Product((left, right), ((*leading, "k"), (*made[left.ndim - 1 :], "k")), made)
    return _matmul(left, right)


def _matmul(left: Tensor, right: Tensor) -> Product:
    """Label the axes of `torch.matmul`, whose leading axes broadcast."""
    leading = tuple(range(-max(left.ndim, right.ndim) + 2, 0))
    first = () if left.ndim < 3 else leading[-(left.ndim - 2) :]
    second = () if right.ndim < 3 else leading[-(right.ndim - 2) :]
    # An axis of size 1 broadcasts, and is none of the other's.
    sizes = dict(zip(first, left.shape, strict=False))
    others = dict(zip(second, right.shape, strict=False))
    one = tuple(
        ("left", at) if size == 1 != others.get(at, 1) else at for at, size in sizes.items()
    )
    two = tuple(
        ("right", at) if size == 1 != sizes.get(at, 1) else at for at, size in others.items()
    )
    rows, columns = ("m",) if left.ndim > 1 else (), ("n",) if right.ndim > 1 else ()
    return Product(
        (left, right), ((*one, *rows, "k"), (*two, "k", *columns)), (*leading, *rows, *columns)
    )


def _einsum(equation: str, operands: Sequence[Tensor]) -> Product | None:
    """Label the axes of `torch.einsum` with two operands."""
    if len(operands) != 2:
        return None
    given, arrow, made = equation.replace(" ", "").partition("->")
    sides = given.split(",")
    dots = [
        operand.ndim - len(side.replace("...", ""))
        for operand, side in zip(operands, sides, strict=True)
    ]
    left, right = (_letters(side, number) for side, number in zip(sides, dots, strict=True))
    if not arrow:
        letters = given.replace(",", "").replace(".", "")
        once = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        made = ("..." if "..." in given else "") + "".join(once)
    labels = left, right
    # Letters of one operand that are not in the result are summed, and repeated ones are diagonals.
    result = _letters(made, max(dots))
    alone = any(
        x not in result and x not in other for a, other in (labels, labels[::-1]) for x in a
    )
    if alone or any(len(set(side)) < len(side) for side in labels):
        return None
    return Product((operands[0], operands[1]), labels, result)


def _letters(side: str, dots: int) -> Labels:
    """Return the letters of a term, an ellipsis as numbers that count from its end."""
    before, ellipsis, after = side.partition("...")
    return (*before, *(range(-dots, 0) if ellipsis else ()), *after)
