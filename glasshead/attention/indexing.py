"""Indexing of lazy matrices, and selection of one head of one batch row of a problem."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import Band, Mask
from glasshead.recipe.masks.base import AllOf, AnyOf, Not
from glasshead.recipe.masks.kinds import Dense, Documents, Keys, LengthMask
from glasshead.recipe.normalizers import Normalizer, Softmax, SoftmaxOne
from glasshead.recipe.problem import Problem, visible_pairs
from glasshead.recipe.scores import Additive, Cosine, Dot, Gaussian, ScaledDot, Score
from glasshead.recipe.tile import Span, Tile, with_heads

Part = int | slice


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
        raise IndexError(f"W[…] takes one ellipsis, and got {len(ellipses)}.")
    if len(given) - len(ellipses) > axes:
        raise IndexError(
            f"W[…] takes an index of at most {axes} axes, and got {len(given) - len(ellipses)}."
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
        raise IndexError(f"W[…] has {length} {name}, counted from 0, and got index {part}.")
    return part % length


def checked_range(part: Any, length: int, name: str) -> range:
    """Check a range of step 1 within the length; an empty one ends where it starts.

    Errors: a TypeError for anything but a range, a ValueError for another one.

    >>> checked_range(range(5, 2), 11, "tile(rows)")
    range(5, 5)
    """
    if not isinstance(part, range):
        raise TypeError(
            f"{name} takes a range such as range(0, 10), and got {type(part).__name__}."
        )
    if part.step != 1 or part.start < 0 or max(part.start, part.stop) > length:
        raise ValueError(f"{name} takes a range of step 1 within 0 to {length}, and got {part}.")
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
    raise TypeError(f"W[…] takes whole numbers, slices and an ellipsis, and got {got}.")


def _ends(part: slice, length: int) -> tuple[int, int, int]:
    if part.step is not None and _range_part(part.step) < 1:  # type: ignore[operator]
        raise ValueError(f"W[…] takes slices with steps above 0, and got {part.step}.")
    for end in (part.start, part.stop):
        if end is not None:
            _range_part(end)
    return part.indices(length)


class HeadIndex:
    """Index of one head of one batch row of a problem.

    Attributes:
        tile: All pairs of the whole problem.
        offset: The position of query 0 among the keys, in this batch row.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.randn(2, 3, 5, 7)
    >>> place = HeadIndex(gh.Attention().problem(x, x, x, offset=torch.tensor([1, 4])), (1,), 2)
    >>> place.offset, place.of_row(torch.tensor([11, 13])), place.of_scores(x).equal(x[1, 2])
    (4, tensor(13), True)
    """

    def __init__(self, problem: Problem, batch: tuple[int, ...], head: int) -> None:
        self._batch, self._head = batch, head
        self.tile = problem.tile()
        self.offset = self.in_row(problem.offset)

    def in_row(self, values: int | Tensor) -> int:
        """Select the batch row's number of `[*#batch]`; a single number broadcasts."""
        return int(self.of_row(values)) if isinstance(values, Tensor) else values

    def of_row(self, tensor: Shaped[Tensor, "*leading"], axes: int = 0) -> Tensor:
        """Select the batch row of `[*#batch, …]`, keeping `axes` trailing axes."""
        return _part(tensor, self._batch, axes)

    def of_scores(self, tensor: Shaped[Tensor, "*leading"]) -> Shaped[Tensor, "#queries #keys"]:
        """Select the head of a tensor that broadcasts to `[*batch, heads, …]`."""
        tensor = tensor[(None,) * max(0, 2 - tensor.ndim)]
        return _part(tensor, (*self._batch, self._head), 2)

    def of_given(self, tensor: Shaped[Tensor, "*leading"]) -> Shaped[Tensor, "#queries #keys"]:
        """Select the head of a tensor in the layout of the caller's scores, maybe without heads."""
        return self.of_scores(with_heads(tensor, headed=self.tile.headed))

    def whole(self, tile: Tile) -> Tile:
        """Return the tile with the offset and layout of the whole problem, over all heads."""
        return replace(tile, offset=self.tile.offset, headed=self.tile.headed)


def _part(tensor: Tensor, places: tuple[int, ...], axes: int) -> Tensor:
    """Index the leading axes of `[*#leading, …]`; axes of size 1 or missing ones broadcast."""
    leading = tensor.shape[: tensor.ndim - axes]
    aligned = places[len(places) - len(leading) :]
    index = tuple(0 if size == 1 else at for size, at in zip(leading, aligned, strict=True))
    return tensor[index]


@dataclass(frozen=True, eq=False, repr=False)
class OfHead(Mask):
    """A custom mask, evaluated for all heads and batch rows, of which one is selected."""

    whole: Mask
    place: HeadIndex

    def visible(self, tile: Tile) -> Bool[Tensor, "#queries #keys"]:
        return self.place.of_scores(visible_pairs(self.whole, self.place.whole(tile)))

    def key_range(self, tile: Tile) -> range:
        return self.whole.key_range(self.place.whole(tile))

    def __repr__(self) -> str:
        return repr(self.whole)


def mask_of_head(mask: Mask, place: HeadIndex) -> Mask:
    """Select one head of a mask, as a mask without batch and heads axes.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.randn(2, 3, 5, 7)
    >>> place = HeadIndex(gh.Attention().problem(x, x, x), (1,), 2)
    >>> mask_of_head(gh.causal() & gh.padding([5, 4]), place)
    causal() & padding(4)
    """
    narrow = _NARROW.get(type(mask), OfHead)
    return narrow(mask, place)


def _several(mask: AllOf | AnyOf, place: HeadIndex) -> Mask:
    return type(mask)(tuple(mask_of_head(one, place) for one in mask.masks))


def _band(mask: Band, place: HeadIndex) -> Mask:
    return replace(mask, offset=None if mask.offset is None else place.in_row(mask.offset))


# By exact type: a subclass may differ, and goes through OfHead.
_NARROW: dict[type, Callable[[Any, HeadIndex], Mask]] = {
    AllOf: _several,
    AnyOf: _several,
    Band: _band,
    Dense: lambda mask, place: Dense(place.of_given(mask.tensor)),
    Documents: lambda mask, place: Documents(place.of_row(mask.ids, axes=1)),
    Keys: lambda mask, place: Keys(place.of_row(mask.tensor, axes=1)),
    LengthMask: lambda mask, place: replace(mask, lengths=place.of_row(mask.lengths)),
    Not: lambda mask, place: Not(mask_of_head(mask.mask, place)),
}


class Diagonals(Bias):
    """Bias per distance: b_ij = table[queries - 1 - i + j], none of them -inf."""

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
        # Row i begins one column before row i - 1.
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
    """Bias per distance, of which some may be -inf and hide."""

    hides = True


class OfHeadBias(Bias):
    """A custom bias, evaluated for all heads and batch rows, of which one is selected."""

    def __init__(self, bias: Bias, place: HeadIndex) -> None:
        super().__init__()
        self.whole, self._place = bias, place

    def forward(self, tile: Tile) -> Float[Tensor, "#queries #keys"]:
        return self._place.of_scores(self.whole(self._place.whole(tile)))


def bias_of_head(bias: Bias | Tensor, place: HeadIndex) -> Bias | Tensor:
    """Select one head of a bias, as a bias without batch and heads axes.

    Of a bias by distance, the numbers are computed once.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.randn(2, 4, 3, 7)
    >>> place = HeadIndex(gh.Attention().problem(x, x, x), (1,), 1)
    >>> bias_of_head(gh.ALiBi(4), place)(gh.Tile(range(3), range(3)))
    tensor([[-0.0000, -0.0625, -0.1250],
            [-0.0625, -0.0000, -0.0625],
            [-0.1250, -0.0625, -0.0000]])
    """
    if isinstance(bias, Tensor):
        return place.of_given(bias.detach())
    if not bias.by_distance:
        return OfHeadBias(bias, place)
    return _diagonals(bias, place)


def _diagonals(bias: Bias, place: HeadIndex) -> Bias:
    """Tabulate a bias by distance: the last query's row, extended, has each distance once."""
    queries, keys = place.tile.shape
    if not queries or not keys:
        return Diagonals(torch.zeros(0), queries)
    row = replace(place.tile, queries=Span(queries - 1, queries), keys=Span(0, queries + keys - 1))
    table = place.of_scores(bias(row)).detach().expand(row.shape)[0].contiguous()
    kind = HidingDiagonals if bias.hides and bool(table.isneginf().any()) else Diagonals
    return kind(table, queries)


_SCORES = (Cosine, Dot, Gaussian, ScaledDot)


def select_head(problem: Problem, batch: tuple[int, ...], head: int) -> Problem | None:
    """Select one head, `[queries, dim]`, with its own part of β, biases, mask and sink.

    Query head i reads key head i // (query heads / key heads). Queries and keys are views. None
    where the score or the normalizer is custom, and may read across heads.

    Args:
        problem: Of any layout.
        batch: A place along each batch axis.
        head: Which query head.

    >>> import torch
    >>> import glasshead as gh
    >>> q, k = torch.randn(2, 6, 5, 3), torch.randn(2, 2, 7, 3)
    >>> attention = gh.Attention(score=gh.Dot(beta=torch.arange(6.0)), bias=gh.ALiBi(6))
    >>> one = select_head(attention.problem(q, k, k), (1,), 4)
    >>> one.scores_shape, one.score, one.key[0].equal(k[1, 1])
    ((1, 5, 7), Dot(beta=4), True)
    """
    score = _score(problem.score, head)
    normalizer = _normalizer(problem.normalizer, head)
    if score is None or normalizer is None:
        return None
    place = HeadIndex(problem, batch, head)
    query = problem.query[(*batch, slice(head, head + 1))]
    of = head // problem.group
    key, value = (x[(*batch, slice(of, of + 1))] for x in (problem.key, problem.value))
    return replace(
        problem,
        query=query,
        key=key,
        value=value,
        score=score,
        biases=tuple(bias_of_head(bias, place) for bias in problem.biases),
        mask=None if problem.mask is None else mask_of_head(problem.mask, place),
        normalizer=normalizer,
        offset=place.offset,
        axes=2,
    )


def _score(score: Score, head: int) -> Score | None:
    """Return the score with the β of one head, or None for a custom score."""
    if type(score) not in (*_SCORES, Additive):
        return None
    if not isinstance(score.beta, Tensor) or not score.beta.ndim:
        return score
    beta = _number(score.beta, head)
    if isinstance(score, Additive):
        return _additive(score, beta)
    return type(score)(beta=beta)  # type: ignore[call-arg] - those of products take no other


def _additive(score: Additive, beta: float) -> Additive:
    """Return the score with shared parameters, and another β."""
    # On the meta device, initialization does not advance the random generator.
    with torch.device("meta"):
        one = Additive(score.dim, len(score.v), beta)
    one.W_query, one.W_key, one.v = score.W_query, score.W_key, score.v
    return one


def _normalizer(normalizer: Normalizer, head: int) -> Normalizer | None:
    """Return the normalizer with the sink of one head, or None for a custom one."""
    if type(normalizer) is Softmax:
        return normalizer
    if type(normalizer) is not SoftmaxOne:
        return None
    sink = normalizer.sink
    if not isinstance(sink, Tensor) or not sink.ndim:
        return normalizer
    return SoftmaxOne(_number(sink, head))


def _number(per_head: Shaped[Tensor, " heads"], head: int) -> float:
    return float(per_head.detach()[head])
