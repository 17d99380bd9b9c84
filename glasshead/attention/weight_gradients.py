"""Gradients of the loss with respect to attention weights, and their product with the weights."""

# ruff: noqa: SLF001 - lazy matrices are of one family

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention.lazy_matrix import LazyMatrix
from glasshead.attention.plan import decimal_prefix

# Pairs of a tile, of all heads together: a product of two lazy matrices is computed tile by tile.
_ROWS, _COLUMNS = 128, 512


@dataclass(frozen=True, eq=False, repr=False)
class WeightGradients(LazyMatrix):
    """Lazy gradients ∇P of the loss with respect to the weights, `[..., queries, keys]`.

    As context_i = Σ_j P_ij v_j, ∇P_ij = ∇context_i · v_j: any row, column or tile is exact at the
    cost of its own size, and no matrix of queries × keys is built. Hidden pairs have a gradient,
    too, which no weight receives.

    Attributes:
        value: The values, `[..., kv_heads, keys, value_dim]`.
        output_gradient: Gradient of the loss with respect to the context of each head,
            `[..., heads, queries, value_dim]`.

    Errors: a TypeError or ValueError if these are not tensors of such shapes.

    >>> import glasshead as gh
    >>> G = gh.WeightGradients(torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[1.0], [10.0]]]))
    >>> G.dense()
    tensor([[[ 1.,  2.],
             [10., 20.]]])
    >>> G @ torch.ones(2, 1)
    tensor([[[ 3.],
             [30.]]])
    """

    value: Float[Tensor, "*batch kv_heads keys value_dim"]
    output_gradient: Float[Tensor, "*batch heads queries value_dim"]

    def __post_init__(self) -> None:
        value, gradient = self.value, self.output_gradient
        for name, given in (("value", value), ("output_gradient", gradient)):
            if not isinstance(given, Tensor) or not given.is_floating_point():
                got = given.dtype if isinstance(given, Tensor) else type(given).__name__
                raise TypeError(
                    f"WeightGradients({name}) must be a floating-point tensor, got {got}."
                )
        # Query heads share key heads in groups.
        fits = 2 <= value.ndim == gradient.ndim and value.shape[:-3] == gradient.shape[:-3]
        fits = fits and value.shape[-1] == gradient.shape[-1]
        if fits and value.ndim > 2:
            heads, kv_heads = gradient.shape[-3], value.shape[-3]
            fits = heads == kv_heads or (kv_heads > 0 and heads % kv_heads == 0)
        if not fits:
            raise ValueError(
                "WeightGradients needs value [..., kv_heads, keys, value_dim] and output_gradient "
                f"[..., heads, queries, value_dim] of one call, got {list(value.shape)} and "
                f"{list(gradient.shape)}."
            )

    @property
    def shape(self) -> torch.Size:
        """Return `[..., queries, keys]`."""
        return torch.Size([*self.output_gradient.shape[:-1], self.value.shape[-2]])

    @property
    def dtype(self) -> torch.dtype:
        return torch.promote_types(self.output_gradient.dtype, torch.float32)

    @property
    def device(self) -> torch.device:
        return self.value.device

    @property
    def numbers_a_pair(self) -> int:
        return self.shape[:-2].numel()

    def _values(self, columns: range) -> Tensor:
        """Return values of some keys, one for each query head."""
        value = self.value[..., columns.start : columns.stop, :].to(self.dtype)
        return value if self._group == 1 else value.repeat_interleave(self._group, -3)

    @property
    def _group(self) -> int:
        heads, kv_heads = (x.shape[:-2].numel() for x in (self.output_gradient, self.value))
        return heads // kv_heads if kv_heads else 1

    def _gradients(self, rows: range) -> Tensor:
        return self.output_gradient[..., rows.start : rows.stop, :].to(self.dtype)

    def _tile(self, rows: range, columns: range) -> Tensor:
        return self._gradients(rows) @ self._values(columns).mT

    def _seen(self, rows: range) -> range:
        return range(self.shape[-1] if rows else 0)

    def _head(self, places: tuple[int, ...]) -> "WeightGradients":
        *batch, head = places
        value = self.value[(*batch, head // self._group)]
        return WeightGradients(value, self.output_gradient[places])

    def _right_product(self, right: Tensor) -> Tensor:
        queries, keys = map(range, self.shape[-2:])
        return self._gradients(queries) @ (self._values(keys).mT @ right)

    def _left_product(self, left: Tensor) -> Tensor:
        queries, keys = map(range, self.shape[-2:])
        return self._values(keys) @ (self._gradients(queries).mT @ left)

    def __repr__(self) -> str:
        size = decimal_prefix(self.shape.numel() * self.dtype.itemsize)
        return f"WeightGradients {list(self.shape)}, {size}B if it were dense"


class Elementwise(LazyMatrix):
    """A function of the same elements of two lazy matrices, computed tile by tile.

    `W * G` of weights and their gradients is attention × gradient, and `(W * G).relu()` its
    positive part. Where a weight is 0, as at hidden pairs, so is the result, whatever the other
    matrix holds.

    Args:
        weights: The weights.
        other: A matrix of the same shape.
        function: The function of two tiles.
        shown: What it computes, in words.
    """

    def __init__(
        self,
        weights: LazyMatrix,
        other: LazyMatrix,
        function: Callable[[Tensor, Tensor], Tensor] = torch.mul,
        shown: str = "W * G",
    ) -> None:
        if weights.shape != other.shape:
            raise ValueError(
                f"the matrices of W * G must have one shape, got {list(weights.shape)} and "
                f"{list(other.shape)}. Use those of one call."
            )
        self._weights, self._other, self._function, self._shown = weights, other, function, shown

    def relu(self) -> "Elementwise":
        """Return the positive part, as lazy: max(W_ij G_ij, 0)."""

        def positive(weights: Tensor, other: Tensor) -> Tensor:
            return self._function(weights, other).relu()

        return Elementwise(self._weights, self._other, positive, f"relu({self._shown})")

    @property
    def shape(self) -> torch.Size:
        """Return `[..., queries, keys]`."""
        return self._weights.shape

    @property
    def dtype(self) -> torch.dtype:
        return torch.promote_types(self._weights.dtype, self._other.dtype)

    @property
    def device(self) -> torch.device:
        return self._weights.device

    @property
    def numbers_a_pair(self) -> int:
        return self._weights.numbers_a_pair + 2 * self._other.numbers_a_pair

    def _tile(self, rows: range, columns: range) -> Tensor:
        weights = self._weights._tile(rows, columns).to(self.dtype)
        made = self._function(weights, self._other._tile(rows, columns).to(self.dtype))
        return made.masked_fill_(weights == 0, 0.0)

    def _pairs(self, rows: range, columns: range) -> int:
        return self._weights._pairs(rows, columns)

    def _seen(self, rows: range) -> range:
        return self._weights._seen(rows)

    def _head(self, places: tuple[int, ...]) -> "Elementwise":
        weights, other = self._weights._head(places), self._other._head(places)
        return Elementwise(weights, other, self._function, self._shown)

    def _tiles(self) -> Iterator[tuple[range, range, Tensor]]:
        """Yield the tiles that are not 0, with their rows and columns."""
        queries, _ = self.shape[-2:]
        for start in range(0, queries, _ROWS):
            rows = range(start, min(start + _ROWS, queries))
            seen = self._seen(rows)
            for first in range(seen.start, seen.stop, _COLUMNS):
                columns = range(first, min(first + _COLUMNS, seen.stop))
                yield rows, columns, self._tile(rows, columns)

    def _right_product(self, right: Tensor) -> Tensor:
        result = right.new_zeros(*self.shape[:-1], right.shape[-1])
        for rows, columns, tile in self._tiles():
            made = tile @ right[..., columns.start : columns.stop, :]
            result[..., rows.start : rows.stop, :] += made
        return result

    def _left_product(self, left: Tensor) -> Tensor:
        *leading, _, keys = self.shape
        result = left.new_zeros(*leading, keys, left.shape[-1])
        for rows, columns, tile in self._tiles():
            made = tile.mT @ left[..., rows.start : rows.stop, :]
            result[..., columns.start : columns.stop, :] += made
        return result

    def __repr__(self) -> str:
        return f"{self._shown}, {self._weights!r}"
