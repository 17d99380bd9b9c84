"""Positions as waves of many lengths."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glasshead.recipe.validation import whole_number


class Sinusoidal(nn.Module):
    """E(p, 2i) = sin(p / 10000^(2i/d)),  E(p, 2i + 1) = cos(p / 10000^(2i/d)).

    It learns nothing, and has no last position.

    Args:
        d_model: The width d of the model.

    Source: Vaswani et al. 2017, section 3.5.

    >>> Sinusoidal(4)(torch.tensor([0, 1]))
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = whole_number(d_model, "d_model", least=1)

    def forward(self, positions: Int[Tensor, "*where"]) -> Float[Tensor, "*where d_model"]:
        """The vector of each position, in float32."""
        # In float32, the angles of late positions would lose their digits; Apple's have no more.
        where = positions.cpu() if positions.device.type == "mps" else positions
        pairs = torch.arange(0, self.d_model, 2, dtype=torch.float64, device=where.device)
        angles = where[..., None] / 10_000 ** (pairs / self.d_model)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return waves[..., : self.d_model].float().to(positions.device)

    def extra_repr(self) -> str:
        return f"{self.d_model}"
