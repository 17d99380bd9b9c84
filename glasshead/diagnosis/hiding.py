"""Hiding: which cells of an additive float mask hide, and by what number."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LARGE = 1000.0


@dataclass(frozen=True, eq=False)
class Hiding:
    """Which cells of an additive mask hide.

    Attributes:
        cells: True = hidden.
        infinite: Whether -inf hides some.
        lowest: Whether the lowest number of the dtype hides some.
        large: The finite number, other than that, nearest to 0 that hides some, or None.
        largest: The one furthest from 0, or None.
    """

    cells: Bool[Tensor, "..."]
    infinite: bool
    lowest: bool
    large: float | None = None
    largest: float | None = None


def hiding(values: Float[Tensor, "..."]) -> Hiding:
    """Which cells hide: -inf, the dtype's lowest number, and large ones that stand apart.

    A large number hides where no other cell comes near a tenth of it: a bias that grows with the
    distance, such as ALiBi's, reaches -1000 by small steps, and hides nothing.
    """
    bottom = torch.finfo(values.dtype).min
    infinite, lowest = values == -torch.inf, values == bottom
    below = (values <= -LARGE) & ~infinite & ~lowest
    found = (bool(infinite.any()), bool(lowest.any()))
    if not bool(below.any()):
        return Hiding(infinite | lowest, *found)
    nearest = float(values.masked_fill(~below, -torch.inf).amax())
    furthest = float(values.masked_fill(~below, torch.inf).amin())
    others = values.masked_fill(values <= -LARGE, 0.0).nan_to_num(0.0, posinf=0.0)
    if abs(nearest) < 10 * max(float(others.abs().amax()), LARGE / 10):
        return Hiding(infinite | lowest, *found)
    return Hiding(infinite | lowest | below, *found, nearest, furthest)
