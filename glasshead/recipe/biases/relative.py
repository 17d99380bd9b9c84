"""A bias that is learned for each range of distances."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glasshead.recipe.biases.bias import Bias
from glasshead.recipe.checks import check_heads
from glasshead.recipe.numbers import whole_number
from glasshead.recipe.tile import Tile


class RelativeBias(Bias):
    """b_ij = weight[bucket(j - i - offset), head]: one learned number for a bucket of distances.

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
        """The bucket of each distance i + offset - j."""
        count = self.buckets // 2 if self.bidirectional else self.buckets
        far = distance.abs() if self.bidirectional else distance.clamp(min=0)
        exact = count // 2
        growth = (far.clamp(min=1) / exact).log() / math.log(self.max_distance / exact)
        wide = (exact + (growth * (count - exact)).long()).clamp(max=count - 1)
        bucket = torch.where(far < exact, far, wide)
        return bucket + count * (distance < 0) if self.bidirectional else bucket

    def check(self, tile: Tile, scores: tuple[int, ...]) -> None:
        del tile
        check_heads("RelativeBias", self.heads, scores)

    def extra_repr(self) -> str:
        return (
            f"heads={self.heads}, buckets={self.buckets}, max_distance={self.max_distance}, "
            f"bidirectional={self.bidirectional}"
        )
