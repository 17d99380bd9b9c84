"""Positions as turns of queries and keys."""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.layers.positions.rotary_scaling import RotaryScaling
from glasshead.recipe.validation import positive, whole_number

Pairing = Literal["halves", "neighbours"]


class Rotary(nn.Module):
    """(a, b) ↦ (a cos pθ_i - b sin pθ_i, a sin pθ_i + b cos pθ_i), with θ_i = base^(-2i/d).

    Each pair of a head's numbers is turned by an angle that grows with the position p, so that the
    inner product of a query and a key depends on their distance alone. Pair i is made of numbers
    i and i + d/2 ("halves": GPT-NeoX, Hugging Face's Llama), or of 2i and 2i + 1 ("neighbours":
    the paper, GPT-J, Llama's own code): the same but for the order of the numbers.

    Args:
        head_dim: The width d of a head, even.
        base: What the angles are powers of.
        pairing: "halves" or "neighbours".
        scaling: How the angles are stretched for longer texts; None: they are not.

    Errors: a ValueError where the width is odd, not that of the heads, or the pairing unknown.

    Source: Su et al. 2021 (RoFormer), section 3.2.2.

    >>> Rotary(2)(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor([[1.0000, 0.0000],
            [0.5403, 0.8415]])
    """

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        pairing: Pairing = "halves",
        scaling: RotaryScaling | None = None,
    ) -> None:
        super().__init__()
        if whole_number(head_dim, "head_dim", least=1) % 2:
            raise ValueError(f"Rotary takes an even head_dim, and got {head_dim}: add one.")
        if pairing not in get_args(Pairing):
            raise ValueError(f"pairing takes 'halves' or 'neighbours', and got {pairing!r}.")
        self.head_dim, self.base, self.pairing = head_dim, positive(base, "base"), pairing
        if scaling is not None and self.base <= 1:
            raise ValueError(
                f"base takes a number above 1 where angles are stretched, and got {base:g}: take "
                "that of the model."
            )
        self.scaling = scaling
        # What is computed once for all layers and calls; no part of what is saved.
        self._turns: tuple[Tensor, Tensor] | None = None

    def forward(
        self, heads: Float[Tensor, "*batch length head_dim"], start: int = 0
    ) -> Float[Tensor, "*batch length head_dim"]:
        """Queries or keys turned, the first of which stands at position `start`."""
        if heads.shape[-1] != self.head_dim:
            raise ValueError(
                f"Rotary({self.head_dim}) takes heads of that width, and got {list(heads.shape)}: "
                f"build it with head_dim={heads.shape[-1]}."
            )
        return self.turned(heads, *self.at(start, start + heads.shape[-2], heads))

    def turned(
        self,
        heads: Float[Tensor, "*batch length head_dim"],
        cosines: Float[Tensor, "length head_dim"],
        sines: Float[Tensor, "length head_dim"],
    ) -> Float[Tensor, "*batch length head_dim"]:
        """Queries or keys turned by what `at` gave of their positions."""
        return heads * cosines + self._partners(heads) * sines

    def _partners(self, heads: Tensor) -> Tensor:
        """Each number's partner in its pair, in its place."""
        if self.pairing == "halves":
            a, b = heads.chunk(2, dim=-1)
        else:
            a, b = heads.unflatten(-1, (-1, 2)).unbind(-1)
        return self._paired(b, a)

    def at(
        self, start: int, stop: int, like: Tensor
    ) -> tuple[Float[Tensor, "length head_dim"], Float[Tensor, "length head_dim"]]:
        """Cosines and sines of the positions from `start` to before `stop`, made for `like`."""
        turns = self._turns
        if (
            turns is None
            or len(turns[0]) < stop
            or (turns[0].dtype, turns[0].device) != (like.dtype, like.device)
        ):
            turns = self._turns = self._first(2 * stop, like)
        return turns[0][start:stop], turns[1][start:stop]

    # What was made in inference mode would refuse the gradients of a later step.
    @torch.inference_mode(False)
    def _first(self, count: int, like: Tensor) -> tuple[Tensor, Tensor]:
        # In float32, the angles of late positions would lose their digits; not every device has
        # float64.
        pairs = torch.arange(0, self.head_dim, 2, dtype=torch.float64)
        speeds, magnitude = self.base ** (-pairs / self.head_dim), 1.0
        if self.scaling is not None:
            speeds, magnitude = self.scaling.stretched(speeds, self.base), self.scaling.magnitude
        angles = torch.arange(count, dtype=torch.float64)[:, None] * speeds
        cosines, sines = magnitude * angles.cos(), magnitude * angles.sin()
        # Of a pair (a, b): a is turned by -sin · b, and b by sin · a.
        return self._paired(cosines, cosines).to(like), self._paired(-sines, sines).to(like)

    def _paired(self, a: Tensor, b: Tensor) -> Tensor:
        """What belongs to the first and to the second number of each pair, in their places."""
        if self.pairing == "halves":
            return torch.cat([a, b], dim=-1)
        return torch.stack([a, b], dim=-1).flatten(-2)

    def extra_repr(self) -> str:
        scaling = "" if self.scaling is None else f", scaling={self.scaling}"
        return f"{self.head_dim}, base={self.base:g}, pairing={self.pairing!r}{scaling}"
