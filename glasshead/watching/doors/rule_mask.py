"""A mask by a rule of FlexAttention: a function of places that says what is visible."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.recipe.masks import Mask
from glasshead.recipe.tile import Tile

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class RuleMask(Mask):
    """Pair (i, j) is visible where rule(batch, head, i, j) says so, for every head alike.

    Attributes:
        rule: The `mask_mod` of a BlockMask.
        batch: How many rows of a batch it may tell apart.

    Source: Dong et al. 2024 (FlexAttention), section 3.
    """

    rule: Rule
    batch: int

    def visible(self, tile: Tile) -> Bool[Tensor, "batch 1 queries keys"]:
        rows = torch.arange(tile.queries.start, tile.queries.stop, device=tile.device)
        batch = torch.arange(self.batch, device=tile.device)
        head = torch.zeros((), dtype=torch.int64, device=tile.device)
        seen = self.rule(batch[:, None, None], head, rows[:, None], tile.columns())
        return seen.expand(self.batch, *tile.shape)[:, None]

    def __repr__(self) -> str:
        return f"RuleMask({getattr(self.rule, '__name__', self.rule)})"
