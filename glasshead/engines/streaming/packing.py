"""Vectors of a head as the kernels take them: as flat arrays, widened, packed in panels."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glasshead.engines.streaming.kernels.arguments import HalfMatrix, Matrix, Panels
from glasshead.engines.streaming.kernels.processor import at_hand, columns_of
from glasshead.engines.streaming.machine_code import Packed, kernel
from glasshead.engines.streaming.operands import real_of

_SINGLE = np.dtype(np.float32)
# A flat array of no numbers, packed once, as each head has some.
EMPTY: Any = Packed([0, 0], 1, None)


def flat(tensor: Tensor, extent: int) -> np.ndarray:
    """View the first `extent` numbers of a tensor's memory as a flat array."""
    return tensor.detach().as_strided((extent,), (1,)).numpy()


def matrix(vectors: Tensor, *, width: int = 1) -> Matrix:
    """View vectors `[length, dim]` as a flat array, or copy them to float32 from half precision.

    The copy is also made where `dim` is not a multiple of `width`, and filled up with 0.
    """
    length, dim = vectors.shape
    across = -(-dim // width) * width
    if vectors.itemsize == 2:
        numbers = np.empty(length * across, np.float32)
        is_bfloat16 = vectors.dtype == torch.bfloat16
        kernel("widen", numbers.dtype)(_halves(vectors), length, across, is_bfloat16, numbers)
        return Matrix(numbers, across, across)
    if across == dim:
        vectors = _in_rows(vectors)
        row = vectors.stride(0)
        return Matrix(flat(vectors, (length - 1) * row + dim), row, dim)
    padded = np.zeros((length, across), real_of(vectors))
    padded[:, :dim] = vectors.detach().numpy()
    return Matrix(padded.reshape(-1), across, across)


def _in_rows(vectors: Tensor) -> Tensor:
    """Return vectors each of which is contiguous in memory, and after the one before."""
    if vectors.stride(1) != 1 or vectors.stride(0) < vectors.shape[1]:
        return vectors.contiguous()
    return vectors


def _halves(vectors: Tensor) -> HalfMatrix:
    """View vectors of half precision by their bits."""
    length, dim = vectors.shape
    vectors = _in_rows(vectors.detach())
    row = vectors.stride(0)
    return HalfMatrix(flat(vectors.view(torch.int16), (length - 1) * row + dim), row, dim)


class Pairs(NamedTuple):
    """Rows of pairs of bfloat16, and their smallest size other than 0."""

    rows: np.ndarray
    least: float

    @classmethod
    def of(cls, vectors: Tensor) -> "Pairs":
        """Pair up the numbers of vectors, with rows of 0 to fill up the last tile."""
        (length, dim), tile = vectors.shape, at_hand().tile.rows
        rows = np.empty(-(-length // tile) * tile * -(-dim // 2), np.int32)
        least = np.empty(1, np.int32)
        kernel("pair_up", _SINGLE)(_halves(vectors), length, rows, least)
        return cls(rows, float((least << 16).view(_SINGLE)[0]))

    def multiplies(self, other: "Pairs") -> bool:
        """Return whether the processor's product of pairs is that of float32, in every bit.

        It rounds alike, but takes what is subnormal for 0, inputs and sums. Numbers of 8 bits, of
        size x and y at least, have products that are multiples of 2⁻¹⁶ x y, and so are their sums:
        0, or no less.
        """
        low, high = sorted((self.least, other.least))
        return low >= 2.0**-126 and low * high >= 2.0**-110


class RightOperand:
    """Keys or values of one head, packed where they are first needed.

    Args:
        vectors: `[length, dim]`.
        numbers: The same as a `Matrix`, if that is at hand.
    """

    def __init__(self, vectors: Tensor, numbers: Matrix | None = None) -> None:
        self.vectors, self.real, self._matrix = vectors, real_of(vectors), numbers

    @cached_property
    def numbers(self) -> np.ndarray:
        """The vectors in panels."""
        return self._packed(self._matrix or matrix(self.vectors))

    @cached_property
    def pairs(self) -> tuple[Pairs, np.ndarray]:
        """The vectors in pairs, and their panels."""
        pairs, deep = Pairs.of(self.vectors), -(-self.vectors.shape[1] // 2)
        # Words are moved as numbers are.
        packed = self._packed(Matrix(pairs.rows.view(_SINGLE), deep, deep))
        return pairs, packed.view(np.int32)

    def _packed(self, rows: Matrix) -> np.ndarray:
        count, width = len(self.vectors), columns_of(self.real.itemsize)
        packed = np.empty(-(-count // width) * width * rows.width, self.real)
        kernel("pack", self.real)(rows, count, width, packed)
        return packed

    def facing(self, left: Tensor) -> tuple[Panels, np.ndarray]:
        """Return the panels for a product with vectors on the left, and these as rows of pairs.

        There are pairs on both sides, or `EMPTY` on both: where both are of bfloat16, the
        processor multiplies it, and the result is the same.
        """
        half = self.vectors.dtype == left.dtype == torch.bfloat16
        if half and at_hand().half_products:
            rows, (pairs, panels) = Pairs.of(left), self.pairs
            if rows.multiplies(pairs):
                return Panels(EMPTY, panels), rows.rows
        return Panels(self.numbers, EMPTY), EMPTY
