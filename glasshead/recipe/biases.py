"""Biases added to the scores before the mask: tensors, or functions of position."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glasshead.recipe.part import Description, HeadIndex, Part
from glasshead.recipe.tile import Span, Tile
from glasshead.recipe.validation import check_gives, check_heads, whole_number

ANY_BIAS = Description(
    "A bias is added to every score: a number for each pair of words that does not depend on their "
    "vectors."
)


class Bias(Part, nn.Module):
    """Base class of biases b_ij, added to the scores after the softcap and before the mask.

    Attributes:
        hides: Whether the bias may be -inf, which hides a pair as a mask does. A bias that never is
            may state False, and is not searched for -inf.
        by_distance: Whether the bias depends on i + offset - j alone. Such a bias is evaluated once
            per distance, not once per pair.
    """

    hides: ClassVar[bool] = True
    by_distance: ClassVar[bool] = False

    @abstractmethod
    def forward(self, tile: Tile) -> Float[Tensor, "*leading #queries #keys"]:
        """Compute the bias of each pair of the tile; constant axes may have size 1."""

    def describe(self) -> Description | str:
        return ANY_BIAS

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        """Raise a ValueError if the bias cannot cover scores `[*batch, heads, queries, keys]`.

        The tile covers the problem.
        """

    def select_head(self, place: HeadIndex) -> "Bias":
        """Select one head, as a bias without batch and heads axes.

        The numbers of a bias by distance are computed once.

        >>> place = HeadIndex(Tile(range(3), range(7)), (1,), 1)
        >>> ALiBi(4).select_head(place)(Tile(range(3), range(3)))
        tensor([[-0.0000, -0.0625, -0.1250],
                [-0.0625, -0.0000, -0.0625],
                [-0.1250, -0.0625, -0.0000]])
        """
        if not self.by_distance:
            return OfHeadBias(self, place)
        queries, keys = place.tile.shape
        if not queries or not keys:
            return Diagonals(torch.zeros(0), queries)
        table = place.of_scores(by_diagonal(self, place.tile)).detach()
        table = table.expand(1, queries + keys - 1)[0].contiguous()
        kind = HidingDiagonals if self.hides and bool(table.isneginf().any()) else Diagonals
        return kind(table, queries)


def by_diagonal(
    bias: Bias, tile: Tile, leading: Sequence[int] | None = None
) -> Float[Tensor, "*#leading 1 #diagonals"]:
    """Evaluate a bias by distance once per diagonal, `queries - 1 - i + j` of `queries + keys - 1`.

    The last query's row, extended, has each distance once.
    """
    queries, keys = tile.shape
    row = replace(tile, queries=Span(queries - 1, queries), keys=Span(0, queries + keys - 1))
    values = bias(row)
    if leading is not None:
        check_gives(bias, values, (*leading, *row.shape))
    return values


def as_bias(bias: Any) -> Bias | Tensor | None:
    """Check `bias=`: a bias, a float tensor that broadcasts to the scores, or None."""
    if bias is None or isinstance(bias, Bias):
        return bias
    if not isinstance(bias, Tensor):
        raise TypeError(
            "bias= must be a floating-point tensor or a bias such as ALiBi(heads), got "
            f"{type(bias).__name__}."
        )
    if not bias.is_floating_point():
        raise TypeError(
            f"bias= must be a floating-point tensor, got {bias.dtype}. A boolean one, True = may "
            "attend, goes to mask=."
        )
    return bias


class Diagonals(Bias):
    """Bias per distance: b_ij = table[queries - 1 - i + j], none of them -inf."""

    hides = False
    by_distance = True
    saved: ClassVar[tuple[str, ...]] = ("table", "queries")

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
        queries, keys = scores[-2:]
        expected = [queries + keys - 1 if queries and keys else 0]
        if self.queries != queries or list(self.table.shape) != expected:
            raise ValueError(
                f"a bias by distance must have a number for each diagonal, {expected}, got "
                f"{list(self.table.shape)}."
            )


class HidingDiagonals(Diagonals):
    """Bias per distance, of which some may be -inf and hide."""

    hides = True
    saved = ("table", "queries")


class OfHeadBias(Bias):
    """A custom bias, evaluated for all heads and batch rows, of which one is selected."""

    def __init__(self, bias: Bias, place: HeadIndex) -> None:
        super().__init__()
        self.whole, self._place = bias, place

    def forward(self, tile: Tile) -> Float[Tensor, "#queries #keys"]:
        return self._place.of_scores(self.whole(self._place.whole(tile)))

    @property
    def class_name(self) -> str:
        return self.whole.class_name


class ALiBi(Bias):
    """Attention with linear biases: b_ij = -slope · |i + offset - j|, one fixed slope per head.

    For n heads, n a power of two, the slopes are 2^(-8/n), 2^(-16/n), …, 2^(-8). For another n
    they are the slopes for the power of two below it, then every other slope for the power of two
    above.

    Args:
        heads: The number of query heads.

    Source: Press et al. 2022 (Train short, test long), section 3, and its code for other n.

    >>> ALiBi(heads=4).slopes
    tensor([0.2500, 0.0625, 0.0156, 0.0039], dtype=torch.float64)
    """

    hides = False
    by_distance = True
    saved = ("heads",)

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = whole_number(heads, "ALiBi(heads)", least=1)

    @property
    def slopes(self) -> Float[Tensor, " heads"]:
        """Return the slope of each head, in float64: most are not exact in fewer digits."""
        return torch.tensor(_slopes(self.heads), dtype=torch.float64)

    def forward(self, tile: Tile) -> Float[Tensor, "*leading heads queries keys"]:
        slopes = torch.tensor(_slopes(self.heads), dtype=tile.dtype, device=tile.device)
        return -slopes[:, None, None] * tile.distance().abs()

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        check_heads("ALiBi", self.heads, scores)

    def describe(self) -> Description:
        return Description(
            "The ALiBi bias lowers each score, and the more so the farther the key is from the "
            "query: nearby words are preferred, and word order counts."
        )

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


def _slopes(heads: int) -> list[float]:
    below = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (head + 1) / below) for head in range(below)]
    return slopes if below == heads else slopes + _slopes(2 * below)[::2][: heads - below]


class RelativeBias(Bias):
    """T5 relative position bias: b_ij = weight[bucket(j - i - offset), head], learned.

    Near distances have a bucket each; from half of the buckets on they widen logarithmically up to
    `max_distance`, beyond which all share the last. With `bidirectional`, half of the buckets are
    for keys after the query; without, those share the bucket of distance 0.

    Args:
        heads: The number of query heads.
        buckets: The number of buckets.
        max_distance: The distance from which on all keys share a bucket.
        bidirectional: Whether keys after the query have buckets of their own.

    Source: Raffel et al. 2020 (T5), section 2.1; the parameter is `relative_attention_bias.weight`
    there, `[buckets, heads]` as here.

    >>> _ = torch.manual_seed(0)
    >>> RelativeBias(heads=3)(Tile(range(5), range(7))).shape
    torch.Size([3, 5, 7])
    """

    hides = False
    by_distance = True
    saved = ("heads", "buckets", "max_distance", "bidirectional")
    learned = ("weight",)

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        *,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        self.heads = whole_number(heads, "RelativeBias(heads)", least=1)
        least = 4 if bidirectional else 2
        self.buckets = whole_number(buckets, "RelativeBias(buckets)", least=least)
        self.max_distance = whole_number(
            max_distance, "RelativeBias(max_distance)", least=self.buckets // least + 1
        )
        self.bidirectional = bidirectional
        self.weight = nn.Parameter(torch.randn(self.buckets, self.heads) * 0.02)

    def forward(self, tile: Tile) -> Float[Tensor, "*leading heads queries keys"]:
        bucket = self.bucket(tile.distance())
        values = self.weight[bucket if bucket.ndim == 2 else bucket.squeeze(-3)]
        return values.movedim(-1, -3)

    def bucket(self, distance: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Return the bucket of each distance i + offset - j."""
        count = self.buckets // 2 if self.bidirectional else self.buckets
        far = distance.abs() if self.bidirectional else distance.clamp(min=0)
        exact = count // 2
        growth = (far.clamp(min=1) / exact).log() / math.log(self.max_distance / exact)
        wide = (exact + (growth * (count - exact)).long()).clamp(max=count - 1)
        bucket = torch.where(far < exact, far, wide)
        return bucket + count * (distance < 0) if self.bidirectional else bucket

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        check_heads("RelativeBias", self.heads, scores)

    def describe(self) -> Description:
        return Description(
            "The relative bias adds to every score a learned number that depends only on how far "
            "the key stands before or after the query: word order counts."
        )

    def extra_repr(self) -> str:
        return (
            f"heads={self.heads}, buckets={self.buckets}, max_distance={self.max_distance}, "
            f"bidirectional={self.bidirectional}"
        )
