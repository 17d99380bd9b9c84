"""Keeping the beginning and the end."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.layers.caching.policy import Policy
from glasshead.recipe.validation import whole_number


@dataclass(frozen=True)
class Sinks(Policy):
    """Keeps the first keys, on which attention rests that has nowhere else to go, and the latest.

    It looks at no weight. Keys keep the positions that they have in the text; the paper counts them
    anew within the cache, so that they never pass those that the model was trained on.

    Args:
        first: How many of the first keys are held, of a row.
        window: How many of the latest.

    Errors: a TypeError or ValueError where these are not whole numbers, of at least 0 and 1.

    Source: Xiao et al. 2023 (StreamingLLM), section 3.2.

    >>> Sinks(first=4, window=60).most
    64
    """

    first: int = 4
    window: int = 60

    def __post_init__(self) -> None:
        whole_number(self.first, "Sinks(first=…)")
        whole_number(self.window, "Sinks(window=…)", least=1)

    @property
    def most(self) -> int:
        return self.first + self.window

    def scores(
        self, votes: Tensor | None, seen: Bool[Tensor, "batch kv_heads keys"]
    ) -> Float[Tensor, "batch kv_heads keys"]:
        del votes
        # A row's first key is the first that does not pad.
        stays = seen & (seen.cumsum(-1) <= self.first)
        stays[..., -self.window :] = True
        return torch.where(stays, torch.inf, 0.0)
