"""Numbers that have grown beyond all bounds, and what is said of them."""

from collections.abc import Mapping

import torch
from torch import Tensor


def not_finite(what: str, step: int, rate: float) -> ValueError:
    """The error for a loss, a gradient, a weight or a figure that is NaN or infinite."""
    return ValueError(
        f"step {step}, with learning rate {rate:.3g}, has a {what} that is NaN or infinite, and "
        f"the last good checkpoint is kept: train anew, in another folder, with a lower "
        f"learning rate or a longer warmup."
    )


def check_finite(weights: Mapping[str, Tensor], step: int, rate: float) -> None:
    """Raise a ValueError rather than let weights that are not finite take the place of any."""
    for tensor in weights.values():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise not_finite("weight", step, rate)
