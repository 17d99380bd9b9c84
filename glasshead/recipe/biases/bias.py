"""Biases: numbers added to the scores, from a tensor or from a rule."""

from abc import abstractmethod
from typing import Any, ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from glasshead.recipe.checks import check_covers
from glasshead.recipe.tile import Tile


class Bias(nn.Module):
    """b_ij, added to the scores after the softcap and before the mask, by a rule.

    Attributes:
        hides: Whether the rule may answer -inf, which hides a pair as a mask does. A rule that
            never does may say so, and is not searched for it.
        by_distance: Whether the rule reads of a pair no more than i + offset - j. A rule that says
            so is asked for each distance once, and not for each pair.
    """

    hides: ClassVar[bool] = True
    by_distance: ClassVar[bool] = False

    @abstractmethod
    def forward(self, tile: Tile) -> Float[Tensor, "*leading #queries #keys"]:
        """The bias of each pair of the tile; axes along which nothing changes may be 1."""

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        """Raise a ValueError where this bias cannot cover scores `[*batch, heads, queries, keys]`.

        The tile is the whole problem's.
        """


def as_bias(bias: Any) -> Bias | Tensor | None:
    """What a caller gives as `bias=`: a bias, a float tensor that broadcasts to scores, or None."""
    if bias is None or isinstance(bias, Bias):
        return bias
    if not isinstance(bias, Tensor):
        raise TypeError(
            "bias= takes a floating-point tensor or a bias such as ALiBi(heads), and got "
            f"{type(bias).__name__}."
        )
    if not bias.is_floating_point():
        raise TypeError(
            f"bias= takes a floating-point tensor, and got {bias.dtype}: "
            "a boolean one, True = may attend, goes to mask=."
        )
    return bias


def bias_values(bias: Bias | Tensor, tile: Tile) -> Float[Tensor, "*leading #queries #keys"]:
    """The bias of each pair of the tile, of either kind."""
    if isinstance(bias, Bias):
        return bias(tile)
    return tile.cut(bias)


def bias_shows(
    bias: Bias | Tensor, values: Float[Tensor, "*shape"]
) -> Bool[Tensor, "*shape"] | None:
    """Which pairs a bias of these values does not hide; None where it never hides."""
    return None if isinstance(bias, Bias) and not bias.hides else ~values.isneginf()


def check_bias(bias: Bias | Tensor, tile: Tile, scores: tuple[int, ...]) -> None:
    """Raise a ValueError where `bias` cannot cover scores `[*batch, heads, queries, keys]`."""
    if isinstance(bias, Bias):
        bias.check(tile, scores)
        return
    layout = scores if tile.headed else (*scores[:-3], *scores[-2:])
    check_covers("bias=", bias.shape, layout)
