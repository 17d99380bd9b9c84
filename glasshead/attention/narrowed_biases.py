"""The part of a bias that one head of one batch row reads."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention.place import Place
from glasshead.recipe.biases import Bias
from glasshead.recipe.tile import Span, Tile


class Diagonals(Bias):
    """b_ij = table[queries - 1 - i + j]: a number for each distance, that hides nothing."""

    hides = False
    by_distance = True

    def __init__(self, table: Float[Tensor, " diagonals"], queries: int) -> None:
        super().__init__()
        self.table, self.queries = table, queries

    def forward(self, tile: Tile) -> Float[Tensor, "queries keys"]:
        if 0 in tile.shape:
            return torch.zeros(tile.shape, dtype=tile.dtype, device=tile.device)
        rows, keys = tile.queries, tile.keys
        first, last = self.queries - rows.stop + keys.start, self.queries - 1 - rows.start
        table = self.table[first : last + keys.stop].to(tile.device, tile.dtype)
        # Row i begins one place before row i - 1.
        return table.unfold(0, keys.stop - keys.start, 1).flip(0)

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        del tile
        queries, keys = scores[-2:]
        expected = [queries + keys - 1 if queries and keys else 0]
        if self.queries != queries or list(self.table.shape) != expected:
            raise ValueError(
                f"a bias by distance takes a number for each diagonal, {expected}, "
                f"and got {list(self.table.shape)}."
            )


class HidingDiagonals(Diagonals):
    """The same, where some distances are hidden."""

    hides = True


class OfHeadBias(Bias):
    """A bias of a user's own, asked for every head and every batch row, of which one is taken."""

    def __init__(self, bias: Bias, place: Place) -> None:
        super().__init__()
        self.whole, self._place = bias, place

    def forward(self, tile: Tile) -> Float[Tensor, "#queries #keys"]:
        return self._place.of_scores(self.whole(self._place.whole(tile)))


def narrowed_bias(bias: Bias | Tensor, place: Place) -> Bias | Tensor:
    """The bias that says of one head, without batch and heads, what this one says of it.

    Of a bias by distance, the numbers are computed once.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.randn(2, 4, 3, 7)
    >>> place = Place(gh.Attention().problem(x, x, x), (1,), 1)
    >>> narrowed_bias(gh.ALiBi(4), place)(gh.Tile(range(3), range(3)))
    tensor([[-0.0000, -0.0625, -0.1250],
            [-0.0625, -0.0000, -0.0625],
            [-0.1250, -0.0625, -0.0000]])
    """
    if isinstance(bias, Tensor):
        return place.of_given(bias.detach())
    if not bias.by_distance:
        return OfHeadBias(bias, place)
    return _diagonals(bias, place)


def _diagonals(bias: Bias, place: Place) -> Bias:
    """The last query's row, drawn out, has each distance once."""
    queries, keys = place.tile.shape
    if not queries or not keys:
        return Diagonals(torch.zeros(0), queries)
    row = replace(place.tile, queries=Span(queries - 1, queries), keys=Span(0, queries + keys - 1))
    table = place.of_scores(bias(row)).detach().expand(row.shape)[0].contiguous()
    kind = HidingDiagonals if bias.hides and bool(table.isneginf().any()) else Diagonals
    return kind(table, queries)
