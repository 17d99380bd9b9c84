"""Position encodings: rotary and its scaling, sinusoidal, learned. ALiBi is a bias."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glasshead.recipe.validation import one_of, positive, whole_number


@dataclass(frozen=True)
class RotaryScaling(ABC):
    """Base class of rotary scaling: changes the frequencies θ_i, in radians a position.

    Attributes:
        factor: The factor by which the context is extended.
    """

    factor: float

    def __post_init__(self) -> None:
        for field in fields(self):
            name = f"{type(self).__name__}({field.name}=…)"
            object.__setattr__(self, field.name, positive(getattr(self, field.name), name))

    @abstractmethod
    def stretched(self, speeds: Float[Tensor, " pairs"], base: float) -> Float[Tensor, " pairs"]:
        """Scale the frequencies.

        Args:
            speeds: θ_i = base^(-i/pairs), falling.
            base: The base of which they are powers.
        """

    @property
    def magnitude(self) -> float:
        """Return the factor by which rotated queries and keys are multiplied."""
        return 1.0


@dataclass(frozen=True)
class LinearScaling(RotaryScaling):
    """Linear scaling (position interpolation): θ_i / factor.

    Source: Chen et al. 2023 (Extending context window … via positional interpolation), section 2.3.

    >>> LinearScaling(4.0).stretched(torch.tensor([1.0, 0.5]), base=4.0)
    tensor([0.2500, 0.1250])
    """

    def stretched(self, speeds: Float[Tensor, " pairs"], base: float) -> Float[Tensor, " pairs"]:
        return speeds / self.factor


@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    """Llama 3 scaling: θ_i / factor for low frequencies, θ_i for high ones, a ramp between.

    A pair turns n_i = original_length · θ_i / 2π times over a text. Below `low_frequency_factor`
    turns it is slow, above `high_frequency_factor` fast; between, the share of θ_i grows with n_i.

    Attributes:
        original_length: Of the texts that the model was trained on, in tokens.

    Source: Llama Team 2024 (The Llama 3 herd of models), section 3.4.2, and the code of Llama 3.1.

    >>> scaling = Llama3Scaling(8.0, 1.0, 4.0, original_length=100)
    >>> scaling.stretched(torch.tensor([1.0, 0.15, 0.01]), base=100.0)   # 15.9, 2.4, 0.16 turns
    tensor([1.0000, 0.0794, 0.0012])
    """

    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_length: float = 8192

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_falls(self, "high_frequency_factor", "low_frequency_factor")

    def stretched(self, speeds: Float[Tensor, " pairs"], base: float) -> Float[Tensor, " pairs"]:
        low, high = self.low_frequency_factor, self.high_frequency_factor
        turns = self.original_length * speeds / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return kept * speeds + (1 - kept) * speeds / self.factor


@dataclass(frozen=True)
class YarnScaling(RotaryScaling):
    """YaRN scaling: θ_i / factor for low frequencies, θ_i for high ones; sharpens the weights.

    Pair i(n) = pairs · ln(original_length / 2πn) / ln(base) turns n times over a text. Pairs before
    i(`fast`), rounded down, keep their frequency; those after i(`slow`), rounded up, are divided
    by the factor. Queries and keys are multiplied by 0.1 ln(factor) + 1.

    Attributes:
        fast, slow: The number of turns from which a pair is fast, and below which it is slow.
        original_length: Of the texts that the model was trained on, in tokens.

    Source: Peng et al. 2023 (YaRN), sections 3.2 and 3.4, and its code, whose ramp is over i.

    >>> YarnScaling(4.0, original_length=100).stretched(torch.tensor([1.0, 0.1]), base=100.0)
    tensor([1.0000, 0.0625])
    """

    fast: float = 32.0
    slow: float = 1.0
    original_length: float = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_falls(self, "fast", "slow")

    def stretched(self, speeds: Float[Tensor, " pairs"], base: float) -> Float[Tensor, " pairs"]:
        pairs = len(speeds)

        def pair(turns: float) -> float:
            place = pairs * math.log(self.original_length / (2 * math.pi * turns)) / math.log(base)
            return min(max(place, 0), 2 * pairs - 1)

        first, last = math.floor(pair(self.fast)), math.ceil(pair(self.slow))
        numbers = torch.arange(pairs, dtype=speeds.dtype, device=speeds.device)
        # A ramp without length would divide by 0.
        ramp = ((numbers - first) / max(last - first, 1e-3)).clamp(0, 1)
        return speeds * (1 - ramp) + speeds / self.factor * ramp

    @property
    def magnitude(self) -> float:
        return 0.1 * math.log(self.factor) + 1 if self.factor > 1 else 1.0


def _check_falls(scaling: RotaryScaling, larger: str, smaller: str) -> None:
    most, least = getattr(scaling, larger), getattr(scaling, smaller)
    if most <= least:
        raise ValueError(
            f"{larger} of {type(scaling).__name__} must be above {smaller}, {least:g}, got "
            f"{most:g}."
        )


KINDS = {"linear": LinearScaling, "llama3": Llama3Scaling, "yarn": YarnScaling}


def scaling_of(values: Any) -> RotaryScaling:
    """Build the scaling that a config describes, as in `{"kind": "linear", "factor": 4.0}`.

    Errors: a ValueError or TypeError if it names none.

    >>> scaling_of({"kind": "linear", "factor": 4.0})
    LinearScaling(factor=4.0)
    """
    name, given = "rotary_scaling", dict(values) if isinstance(values, Mapping) else {}
    word = given.pop("kind", None)
    kind = KINDS.get(word) if isinstance(word, str) else None
    if kind is None:
        listed = ", ".join(repr(kind) for kind in KINDS)
        raise ValueError(f"{name} must be an object with a kind, one of {listed}, got {values!r}.")
    known = {field.name: field.default for field in fields(kind)}
    surplus = [key for key in given if key not in known]
    if surplus:
        raise ValueError(f"{name} must have no keys but {', '.join(known)}, got {surplus[0]!r}.")
    missing = [key for key, default in known.items() if default is MISSING and key not in given]
    if missing:
        raise ValueError(f"{name} must have {missing[0]}, which is missing.")
    return kind(**given)


class Sinusoidal(nn.Module):
    """Sinusoidal positions: E(p, 2i) = sin(p / 10000^(2i/d)), E(p, 2i + 1) = cos(…).

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
        """Compute the vector of each position, in float32."""
        # In float32, angles of late positions lose their digits; MPS has no float64.
        where = positions.cpu() if positions.device.type == "mps" else positions
        pairs = torch.arange(0, self.d_model, 2, dtype=torch.float64, device=where.device)
        angles = where[..., None] / 10_000 ** (pairs / self.d_model)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return waves[..., : self.d_model].float().to(positions.device)

    def extra_repr(self) -> str:
        return f"{self.d_model}"


class Learned(nn.Module):
    """Learned positions: E(p) = W_p, a row of a learned table.

    Args:
        context_length: The number of positions.
        d_model: The width of the model.

    Source: Gehring et al. 2017 (Convolutional sequence to sequence learning), section 3.1.

    >>> import torch
    >>> Learned(5, 3)(torch.tensor([[0, 4]])).shape
    torch.Size([1, 2, 3])
    """

    def __init__(self, context_length: int, d_model: int) -> None:
        super().__init__()
        whole_number(context_length, "context_length", least=1)
        self.table = nn.Embedding(context_length, whole_number(d_model, "d_model", least=1))

    def forward(self, positions: Int[Tensor, "*where"]) -> Float[Tensor, "*where d_model"]:
        """Look up the vector of each position; PyTorch raises an IndexError beyond the table."""
        return self.table(positions)


Pairing = Literal["halves", "neighbours"]


class Rotary(nn.Module):
    """Rotary position embedding: (a, b) ↦ (a cos pθ_i - b sin pθ_i, a sin pθ_i + b cos pθ_i).

    Each pair of a head's numbers is rotated by an angle proportional to the position p, so that the
    inner product of a query and a key depends on their distance alone. Pair i is made of numbers
    i and i + d/2 ("halves": GPT-NeoX, Hugging Face's Llama), or of 2i and 2i + 1 ("neighbours":
    the paper, GPT-J, Llama's own code): the same but for the order of the numbers.

    Args:
        head_dim: The width of a head.
        rotary_dim: The number d of a head's numbers that are rotated, the first ones, even; all if
            not given.
        base: The base of which the frequencies are powers.
        pairing: "halves" or "neighbours".
        scaling: Scales the frequencies for longer texts; None: no scaling.

    Errors: a ValueError if the number is odd or above the width, the width not that of the
    heads, or the pairing unknown.

    Source: Su et al. 2021 (RoFormer), section 3.2.2; a part of the numbers: Black et al. 2022
    (GPT-NeoX-20B), section 2.1.

    >>> Rotary(2)(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor([[1.0000, 0.0000],
            [0.5403, 0.8415]])
    """

    def __init__(
        self,
        head_dim: int,
        rotary_dim: int | None = None,
        *,
        base: float = 10_000.0,
        pairing: Pairing = "halves",
        scaling: RotaryScaling | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = whole_number(head_dim, "head_dim", least=1)
        if rotary_dim is None:
            rotary_dim = self.head_dim
            if head_dim % 2:
                raise ValueError(f"head_dim of Rotary must be even, got {head_dim}.")
        self.rotary_dim = whole_number(rotary_dim, "rotary_dim", least=1)
        if self.rotary_dim % 2 or self.rotary_dim > self.head_dim:
            raise ValueError(
                f"rotary_dim must be an even number up to head_dim={head_dim}, got {rotary_dim}."
            )
        self.base = positive(base, "base")
        self.pairing = one_of(pairing, "pairing", get_args(Pairing))
        if scaling is not None and self.base <= 1:
            raise ValueError(
                f"base must be above 1 if angles are stretched, got {base:g}. Use the model's base."
            )
        self.scaling = scaling
        # Computed once for all layers and calls; not saved.
        self._turns: tuple[Tensor, Tensor] | None = None

    def forward(
        self, heads: Float[Tensor, "*batch length head_dim"], start: int = 0
    ) -> Float[Tensor, "*batch length head_dim"]:
        """Rotate queries or keys, the first of which is at position `start`."""
        if heads.shape[-1] != self.head_dim:
            raise ValueError(
                f"Rotary({self.head_dim}) must have heads of that width, got {list(heads.shape)}. "
                f"Build it with head_dim={heads.shape[-1]}."
            )
        return self.turned(heads, *self.at(start, start + heads.shape[-2], heads))

    def turned(
        self,
        heads: Float[Tensor, "*batch length head_dim"],
        cosines: Float[Tensor, "length rotary_dim"],
        sines: Float[Tensor, "length rotary_dim"],
    ) -> Float[Tensor, "*batch length head_dim"]:
        """Rotate queries or keys by the cosines and sines that `at` returned."""
        if self.rotary_dim < self.head_dim:
            heads, kept = heads.tensor_split((self.rotary_dim,), dim=-1)
            return torch.cat([heads * cosines + self._partners(heads) * sines, kept], dim=-1)
        return heads * cosines + self._partners(heads) * sines

    def _partners(self, heads: Tensor) -> Tensor:
        """Return, for each number, the other one of its pair."""
        if self.pairing == "halves":
            a, b = heads.chunk(2, dim=-1)
        else:
            a, b = heads.unflatten(-1, (-1, 2)).unbind(-1)
        return self._paired(b, a)

    def at(
        self, start: int, stop: int, like: Tensor
    ) -> tuple[Float[Tensor, "length rotary_dim"], Float[Tensor, "length rotary_dim"]]:
        """Compute cosines and sines of positions in [`start`, `stop`), for tensors like `like`."""
        turns = self._turns
        if (
            turns is None
            or len(turns[0]) < stop
            or (turns[0].dtype, turns[0].device) != (like.dtype, like.device)
        ):
            turns = self._turns = self._first(2 * stop, like)
        return turns[0][start:stop], turns[1][start:stop]

    # A tensor made in inference mode would reject the gradients of a later step.
    @torch.inference_mode(False)
    def _first(self, count: int, like: Tensor) -> tuple[Tensor, Tensor]:
        # In float32, angles of late positions lose their digits; not every device has
        # float64.
        pairs = torch.arange(0, self.rotary_dim, 2, dtype=torch.float64)
        speeds, magnitude = self.base ** (-pairs / self.rotary_dim), 1.0
        if self.scaling is not None:
            speeds, magnitude = self.scaling.stretched(speeds, self.base), self.scaling.magnitude
        angles = torch.arange(count, dtype=torch.float64)[:, None] * speeds
        cosines, sines = magnitude * angles.cos(), magnitude * angles.sin()
        # Of a pair (a, b): a is turned by -sin · b, and b by sin · a.
        return self._paired(cosines, cosines).to(like), self._paired(-sines, sines).to(like)

    def _paired(self, a: Tensor, b: Tensor) -> Tensor:
        """Arrange the values for the first and second number of each pair in place."""
        if self.pairing == "halves":
            return torch.cat([a, b], dim=-1)
        return torch.stack([a, b], dim=-1).flatten(-2)

    def extra_repr(self) -> str:
        scaling = "" if self.scaling is None else f", scaling={self.scaling}"
        rotated = "" if self.rotary_dim == self.head_dim else f", rotary_dim={self.rotary_dim}"
        return f"{self.head_dim}{rotated}, base={self.base:g}, pairing={self.pairing!r}{scaling}"
