"""A bias that grows with the distance."""

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.biases.bias import Bias
from glasshead.recipe.checks import check_heads
from glasshead.recipe.numbers import whole_number
from glasshead.recipe.tile import Tile


class ALiBi(Bias):
    """b_ij = -slope · |i + offset - j|, with a fixed slope for each head.

    For n heads, n a power of two, the slopes are 2^(-8/n), 2^(-16/n), …, 2^(-8). For another n
    they are those of the power of two below it, then every other one of the power of two above.

    Args:
        heads: The number of query heads.

    Source: Press et al. 2022 (Train short, test long), section 3, and its code for other n.

    >>> ALiBi(heads=4).slopes
    tensor([0.2500, 0.0625, 0.0156, 0.0039], dtype=torch.float64)
    """

    hides = False
    by_distance = True

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = whole_number(heads, "ALiBi(heads)", least=1)

    @property
    def slopes(self) -> Float[Tensor, " heads"]:
        """The slope of each head, in float64: most are not exact in fewer digits."""
        return torch.tensor(_slopes(self.heads), dtype=torch.float64)

    def forward(self, tile: Tile) -> Float[Tensor, "*leading heads queries keys"]:
        slopes = torch.tensor(_slopes(self.heads), dtype=tile.dtype, device=tile.device)
        return -slopes[:, None, None] * tile.distance().abs()

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        del tile
        check_heads("ALiBi", self.heads, scores)

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


def _slopes(heads: int) -> list[float]:
    below = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (head + 1) / below) for head in range(below)]
    return slopes if below == heads else slopes + _slopes(2 * below)[::2][: heads - below]
