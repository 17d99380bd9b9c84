"""Where one head of one batch row stands, and what of a tensor belongs to it."""

from dataclasses import replace

from jaxtyping import Shaped
from torch import Tensor

from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Tile, with_heads


class Place:
    """One head of one batch row of a problem.

    Attributes:
        tile: All pairs of the whole problem.
        offset: The position of query 0 among the keys, in this batch row.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.randn(2, 3, 5, 7)
    >>> place = Place(gh.Attention().problem(x, x, x, offset=torch.tensor([1, 4])), (1,), 2)
    >>> place.offset, place.of_row(torch.tensor([11, 13])), place.of_scores(x).equal(x[1, 2])
    (4, tensor(13), True)
    """

    def __init__(self, problem: Problem, batch: tuple[int, ...], head: int) -> None:
        self._batch, self._head = batch, head
        self.tile = problem.tile()
        self.offset = self.in_row(problem.offset)

    def in_row(self, values: int | Tensor) -> int:
        """The number of `[*#batch]` that belongs to the batch row; one number serves all."""
        return int(self.of_row(values)) if isinstance(values, Tensor) else values

    def of_row(self, tensor: Shaped[Tensor, "*leading"], axes: int = 0) -> Tensor:
        """The part of `[*#batch, …]` that belongs to the batch row, with so many axes left."""
        return _part(tensor, self._batch, axes)

    def of_scores(self, tensor: Shaped[Tensor, "*leading"]) -> Shaped[Tensor, "#queries #keys"]:
        """The part that belongs to the head of what broadcasts to `[*batch, heads, …]`."""
        tensor = tensor[(None,) * max(0, 2 - tensor.ndim)]
        return _part(tensor, (*self._batch, self._head), 2)

    def of_given(self, tensor: Shaped[Tensor, "*leading"]) -> Shaped[Tensor, "#queries #keys"]:
        """The same of a tensor in the layout of the caller's scores, which may have no heads."""
        return self.of_scores(with_heads(tensor, headed=self.tile.headed))

    def whole(self, tile: Tile) -> Tile:
        """The tile as parts of the whole problem know it, of every batch row and head."""
        return replace(tile, offset=self.tile.offset, headed=self.tile.headed)


def _part(tensor: Tensor, places: tuple[int, ...], axes: int) -> Tensor:
    """`[*#leading, …]` at a place along each leading axis; axes of 1 or missing serve all."""
    leading = tensor.shape[: tensor.ndim - axes]
    aligned = places[len(places) - len(leading) :]
    index = tuple(0 if size == 1 else at for size, at in zip(leading, aligned, strict=True))
    return tensor[index]
