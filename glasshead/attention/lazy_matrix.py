"""The lazy matrix: rows, tiles, products and maps, each computed when it is read."""

# ruff: noqa: SLF001 - a matrix and its transpose are of one family

import operator
from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.validation import whole_number
from glasshead.statistics.reductions import membership

if TYPE_CHECKING:
    from glasshead.drawing import Block

_BUDGET = 2**31
Part = int | slice


class LazyMatrix(ABC):
    """A matrix `[..., rows, columns]` whose parts are computed when they are read.

    What is asked is checked here, against one budget; a subclass computes a tile and two products.
    """

    # For errors.
    _rows, _columns, _product = "queries", "keys", "W @ R"

    @property
    @abstractmethod
    def shape(self) -> torch.Size:
        """Return `[..., queries, keys]`."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Return the dtype of the weights: float32, or float64 if the inputs are."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Return the device on which the weights are computed."""

    @property
    @abstractmethod
    def numbers_a_pair(self) -> int:
        """Return how many numbers are held at once for each computed pair."""

    @property
    def T(self) -> "LazyMatrix":  # noqa: N802 - as a tensor's
        """Return the transpose, as lazy and with the same verbs: `W.T @ L`, `W.T[..., key, :]`.

        (Wᵀ)_ji = W_ij, of shape `[..., keys, queries]`; `W.T.T` is W itself.

        >>> import torch
        >>> import glasshead as gh
        >>> W = gh.Attention(mask=gh.causal()).weights(torch.randn(5, 3), torch.randn(7, 3))
        >>> W.T.shape, W.T[6].equal(W[:, 6]), W.T.seen(range(5, 7))
        (torch.Size([7, 5]), True, range(3, 5))
        """
        return Transposed(self)

    @torch.no_grad()
    def tile(self, rows: range, columns: range) -> Float[Tensor, "... rows columns"]:
        """Compute the weights of a range of queries on a range of keys.

        Errors: a TypeError or ValueError if these are not ranges of step 1 in the matrix.
        """
        rows = checked_range(rows, self.shape[-2], "tile(rows)")
        return self._tile(rows, checked_range(columns, self.shape[-1], "tile(columns)"))

    def seen(self, rows: range) -> range:
        """Return the range of keys that these queries may see; others have weight 0.

        Errors: a TypeError or ValueError if this is not a range of step 1 in the matrix.
        """
        return self._seen(checked_range(rows, self.shape[-2], "seen(rows)"))

    def head(self, *index: int) -> Self:
        """Select one head, `[queries, keys]`: `W.head(0, 3)` is `W[0, 3]`, as lazy as W.

        Its parts are computed without other heads, unless the score or the normalizer is custom.
        Queries, keys and logsumexp are not copied; numbers per head or distance, such as a learned
        β or a RelativeBias, are taken as they are now.

        Args:
            index: A place along each axis before the queries.

        Errors: a TypeError for another index, a ValueError for more or fewer than these axes, an
        IndexError if it lies outside of them.

        >>> import torch
        >>> import glasshead as gh
        >>> W = gh.Attention(bias=gh.ALiBi(8)).weights(*torch.randn(2, 2, 8, 5, 3).unbind(0))
        >>> W.head(1, -1), W.head(1, -1)[2:].allclose(W[1, -1, 2:])
        (Weights [5, 5], 100 B if it were there, True)
        """
        leading = self.shape[:-2]
        if len(index) != len(leading):
            raise ValueError(
                f"W.head must have a place along each axis before the queries, {list(leading)}, "
                f"got {list(index)}. Pass {len(leading)}."
            )
        places = tuple(
            _leading_place(whole_number(place, "W.head", least=None), length)
            for place, length in zip(index, leading, strict=True)
        )
        return self._head(places) if places else self

    def _repr_html_(self) -> str:
        from glasshead.drawing import Document

        return Document(first_head(self), title=repr(self))._repr_html_()

    def __getitem__(self, index: Any) -> Tensor:
        """Compute a part of the matrix, as `W[..., i, :]` or `W[..., rows, columns]` of a tensor.

        It takes whole numbers, slices that go forwards, and an ellipsis. The rows and columns are
        computed for every head, whichever are indexed; `head` computes one.

        Errors: a TypeError for another index, an IndexError if it lies outside of the matrix, a
        ValueError if the part would take more than 2 GiB.
        """
        index = full_index(index, len(self.shape))
        leading = tuple(
            _leading_part(part, length)
            for part, length in zip(index[:-2], self.shape, strict=False)
        )
        rows, row_index = range_of(index[-2], self.shape[-2], self._rows)
        columns, column_index = range_of(index[-1], self.shape[-1], self._columns)
        self._check_budget(rows, columns, _BUDGET, "this part of W", "Ask for less")
        return self.tile(rows, columns)[(*leading, row_index, column_index)]

    def dense(self, budget: int = _BUDGET) -> Float[Tensor, "... queries keys"]:
        """Compute the full matrix.

        Errors: a ValueError if it would take more than `budget` bytes.
        """
        rows, columns = map(range, self.shape[-2:])
        budget = whole_number(budget, "budget")
        self._check_budget(rows, columns, budget, "W.dense()", "Raise budget=, or use tiles")
        return self.tile(rows, columns)

    @torch.no_grad()
    def __matmul__(self, right: Tensor) -> Float[Tensor, "... queries r"]:
        """Compute P·R for R `[..., keys, r]`, without materializing P.

        Errors: a TypeError or ValueError if R is not a tensor of that shape.
        """
        return self._right_product(self._operand(right))

    @torch.no_grad()
    def pooled(self, rows: int, columns: int) -> Float[Tensor, "... rows columns"]:
        """Sum over blocks of keys and average over blocks of queries, as `PooledMap` does.

        Of the transpose, sum over blocks of queries and average over blocks of keys.

        Errors: a TypeError or ValueError if rows and columns are not whole numbers of at least
        1, or there are fewer queries than rows, or fewer keys than columns.
        """
        for name, parts, length in zip(
            ("rows", "columns"), (rows, columns), self.shape[-2:], strict=True
        ):
            if whole_number(parts, f"pooled({name})", least=1) > length:
                raise ValueError(f"pooled({name}) must be at most {length}, got {parts}.")
        return self._pooled(int(rows), int(columns))

    @abstractmethod
    def _tile(self, rows: range, columns: range) -> Tensor: ...

    @abstractmethod
    def _seen(self, rows: range) -> range: ...

    @abstractmethod
    def _head(self, places: tuple[int, ...]) -> Any: ...

    @abstractmethod
    def _right_product(self, right: Tensor) -> Tensor:
        """Compute P·R for a checked R."""

    @abstractmethod
    def _left_product(self, left: Tensor) -> Tensor:
        """Compute Pᵀ·L for a checked L."""

    def _pooled(self, rows: int, columns: int) -> Tensor:
        like = torch.empty((), dtype=self.dtype, device=self.device)
        queries, keys = self.shape[-2:]
        sums = self._right_product(membership(keys, columns, like).T)
        of_rows = membership(queries, rows, like)
        return (of_rows / of_rows.sum(-1, keepdim=True)) @ sums

    def _pairs(self, rows: range, columns: range) -> int:
        """Return how many pairs are computed at once for a tile."""
        return len(rows) * len(columns)

    def _check_budget(
        self, rows: range, columns: range, budget: int, what: str, remedy: str
    ) -> None:
        needed = self.numbers_a_pair * self._pairs(rows, columns) * self.dtype.itemsize
        if needed > budget:
            raise ValueError(
                f"{what} may take at most {budget} bytes, but needs {needed}. {remedy}."
            )

    def _operand(self, factor: Any) -> Float[Tensor, "... columns n"]:
        """Check the right operand of a product with this matrix."""
        name = self._product
        if not isinstance(factor, Tensor) or not factor.is_floating_point():
            got = factor.dtype if isinstance(factor, Tensor) else type(factor).__name__
            raise TypeError(f"{name} must be a floating-point tensor, got {got}.")
        *leading, _, length = self.shape
        fits = 2 <= factor.ndim <= len(self.shape) and factor.shape[-2] == length
        if fits:
            aligned = leading[len(leading) - (factor.ndim - 2) :]
            fits = all(a in (1, b) for a, b in zip(factor.shape[:-2], aligned, strict=True))
        if not fits:
            raise ValueError(
                f"{name} must be [..., {length}, n] that broadcasts to {leading}, got "
                f"{list(factor.shape)}."
            )
        if factor.layout != torch.strided:
            raise TypeError(
                f"{name} must be a dense tensor, got {factor.layout}. Convert it with .to_dense()."
            )
        if factor.device != self.device:
            raise ValueError(
                f"{name} must be a tensor on {self.device}, got one on {factor.device}."
            )
        return factor.detach().to(self.dtype)


def _leading_place(place: int, length: int) -> int:
    return inside(place, length, "entries along a leading axis")


def _leading_part(part: Part, length: int) -> Part:
    if isinstance(part, slice):
        return slice(*_ends(part, length))
    return _leading_place(part, length)


class Transposed(LazyMatrix):
    """Transpose Pᵀ of a lazy matrix: rows are keys, columns are queries."""

    _rows, _columns, _product = "keys", "queries", "W.T @ L"

    def __init__(self, weights: LazyMatrix) -> None:
        self._weights = weights

    @property
    def shape(self) -> torch.Size:
        """Return `[..., keys, queries]`."""
        *leading, queries, keys = self._weights.shape
        return torch.Size([*leading, keys, queries])

    @property
    def dtype(self) -> torch.dtype:
        return self._weights.dtype

    @property
    def device(self) -> torch.device:
        return self._weights.device

    @property
    def numbers_a_pair(self) -> int:
        return self._weights.numbers_a_pair

    @property
    def T(self) -> LazyMatrix:  # noqa: N802 - as a tensor's
        """Return P itself."""
        return self._weights

    def _tile(self, rows: range, columns: range) -> Tensor:
        return self._weights.tile(columns, rows).mT

    def _seen(self, rows: range) -> range:
        queries = self.shape[-1]

        def reached(some: range) -> bool:
            keys = self._weights.seen(some)
            return max(keys.start, rows.start) < min(keys.stop, rows.stop)

        # More queries see more keys: both ends are found by bisection.
        first = bisect_left(range(queries), True, key=lambda i: reached(range(i + 1)))
        stop = bisect_left(range(queries), True, key=lambda i: not reached(range(i, queries)))
        return range(first, max(first, stop))

    def _head(self, places: tuple[int, ...]) -> "Transposed":
        return Transposed(self._weights.head(*places))

    def _right_product(self, right: Tensor) -> Tensor:
        return self._weights._left_product(right)

    def _left_product(self, left: Tensor) -> Tensor:
        return self._weights._right_product(left)

    def _pairs(self, rows: range, columns: range) -> int:
        return self._weights._pairs(columns, rows)

    def __repr__(self) -> str:
        return f"{self._weights!r}, transposed"


def first_head(weights: LazyMatrix) -> "list[Block]":
    """Draw the first head, by some of its rows; nothing where there are no numbers."""
    from glasshead.drawing import sampled_map

    *leading, rows, columns = weights.shape
    if 0 in weights.shape or weights.device.type == "meta":
        return []
    head = weights.head(*[0] * len(leading))
    place = ", ".join([*["0"] * len(leading), ":", ":"])
    of = f"W[{place}], {weights._rows} × {weights._columns}"

    def row(number: int) -> list[float]:
        return head.tile(range(number, number + 1), range(columns))[0].tolist()

    return [sampled_map(row, rows, columns, of=of)]


def full_index(index: Any, axes: int) -> tuple[Part, ...]:
    """Expand an index to one part per axis, writing out the ellipsis.

    Errors: a TypeError for what is neither a whole number nor a slice, an IndexError for more
    parts than axes.

    >>> full_index((..., 3), axes=3)
    (slice(None, None, None), slice(None, None, None), 3)
    """
    given = index if isinstance(index, tuple) else (index,)
    ellipses = [place for place, part in enumerate(given) if part is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError(f"W[…] must have one ellipsis, got {len(ellipses)}.")
    if len(given) - len(ellipses) > axes:
        raise IndexError(
            f"W[…] must have an index of at most {axes} axes, got {len(given) - len(ellipses)}."
        )
    missing = (slice(None),) * (axes - len(given) + len(ellipses))
    place = ellipses[0] if ellipses else len(given)
    before, after = given[:place], given[place + 1 :]
    return (*map(_range_part, before), *missing, *map(_range_part, after))


def range_of(part: Part, length: int, name: str) -> tuple[range, Part]:
    """Return the range along an axis that an index touches, and the index within that range.

    Errors: an IndexError outside of the axis, a ValueError for a slice that goes backwards.

    >>> range_of(slice(-5, None, 2), 11, "keys"), range_of(-1, 11, "keys")
    ((range(6, 11), slice(None, None, 2)), (range(10, 11), 0))
    """
    if isinstance(part, slice):
        start, stop, step = _ends(part, length)
        return range(start, max(start, stop)), slice(None, None, step)
    place = inside(part, length, name)
    return range(place, place + 1), 0


def inside(part: int, length: int, name: str) -> int:
    """Check an index along an axis, and return it counted from 0.

    >>> inside(-1, 11, "keys")
    10
    """
    if not -length <= part < length:
        raise IndexError(
            f"W[…] must have an index within its {length} {name}, counted from 0, got {part}."
        )
    return part % length


def checked_range(part: Any, length: int, name: str) -> range:
    """Check a range of step 1 within the length; an empty one ends where it starts.

    Errors: a TypeError for anything but a range, a ValueError for another one.

    >>> checked_range(range(5, 2), 11, "tile(rows)")
    range(5, 5)
    """
    if not isinstance(part, range):
        raise TypeError(f"{name} must be a range such as range(0, 10), got {type(part).__name__}.")
    if part.step != 1 or part.start < 0 or max(part.start, part.stop) > length:
        raise ValueError(f"{name} must be a range of step 1 within 0 to {length}, got {part}.")
    return range(part.start, max(part.start, part.stop))


def _range_part(part: Any) -> Part:
    if isinstance(part, slice):
        return part
    boolean = isinstance(part, bool) or "bool" in str(getattr(part, "dtype", ""))
    try:
        if not boolean:
            return operator.index(part)
    except TypeError:
        pass
    got = f"a tensor of {part.dtype}" if isinstance(part, Tensor) else type(part).__name__
    raise TypeError(f"W[…] must have whole numbers, slices or an ellipsis, got {got}.")


def _ends(part: slice, length: int) -> tuple[int, int, int]:
    if part.step is not None and _range_part(part.step) < 1:  # type: ignore[operator]
        raise ValueError(f"W[…] must have slices with steps above 0, got {part.step}.")
    for end in (part.start, part.stop):
        if end is not None:
            _range_part(end)
    start, stop, step = part.indices(length)
    # A longer step takes the first alone, and PyTorch knows none above 64 bits.
    return start, stop, min(step, max(length, 1))
