"""Scaling of rotary angles, for texts longer than a model was trained on."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.validation import positive


@dataclass(frozen=True)
class RotaryScaling(ABC):
    """What becomes of the speeds θ_i at which pairs of numbers turn, in radians a position.

    Attributes:
        factor: How many times as long a text may be.
    """

    factor: float

    def __post_init__(self) -> None:
        for field in fields(self):
            name = f"{type(self).__name__}({field.name}=…)"
            object.__setattr__(self, field.name, positive(getattr(self, field.name), name))

    @abstractmethod
    def stretched(self, speeds: Float[Tensor, " pairs"], base: float) -> Float[Tensor, " pairs"]:
        """The speeds, stretched.

        Args:
            speeds: θ_i = base^(-i/pairs), falling.
            base: What they are powers of.
        """

    @property
    def magnitude(self) -> float:
        """What turned queries and keys are multiplied with."""
        return 1.0


@dataclass(frozen=True)
class LinearScaling(RotaryScaling):
    """θ_i / factor: positions are squeezed together.

    Source: Chen et al. 2023 (Extending context window … via positional interpolation), section 2.3.

    >>> LinearScaling(4.0).stretched(torch.tensor([1.0, 0.5]), base=4.0)
    tensor([0.2500, 0.1250])
    """

    def stretched(self, speeds: Float[Tensor, " pairs"], base: float) -> Float[Tensor, " pairs"]:
        del base
        return speeds / self.factor


@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    """θ_i / factor where a pair turns slowly, θ_i where it turns fast, and between, between.

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
        del base
        low, high = self.low_frequency_factor, self.high_frequency_factor
        turns = self.original_length * speeds / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return kept * speeds + (1 - kept) * speeds / self.factor


@dataclass(frozen=True)
class YarnScaling(RotaryScaling):
    """θ_i / factor for slow pairs, θ_i for fast ones, with a ramp over i; weights sharpen a little.

    Pair i(n) = pairs · ln(original_length / 2πn) / ln(base) turns n times over a text. Pairs before
    i(`fast`), rounded down, keep their speed; those after i(`slow`), rounded up, are stretched
    whole. Queries and keys are multiplied by 0.1 ln(factor) + 1.

    Attributes:
        fast, slow: How many turns make a pair fast, or slow.
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
            f"{type(scaling).__name__} takes {larger} above {smaller}, and got {most:g} and "
            f"{least:g}: raise {larger}."
        )


KINDS = {"linear": LinearScaling, "llama3": Llama3Scaling, "yarn": YarnScaling}


def scaling_of(values: Any) -> RotaryScaling:
    """The scaling that a config names, as in `{"kind": "linear", "factor": 4.0}`.

    Errors: a ValueError or TypeError where it names none.

    >>> scaling_of({"kind": "linear", "factor": 4.0})
    LinearScaling(factor=4.0)
    """
    name, given = "rotary_scaling", dict(values) if isinstance(values, Mapping) else {}
    word = given.pop("kind", None)
    kind = KINDS.get(word) if isinstance(word, str) else None
    if kind is None:
        listed = ", ".join(repr(kind) for kind in KINDS)
        raise ValueError(
            f"{name} takes an object with a kind, one of {listed}, and got {values!r}."
        )
    known = {field.name: field.default for field in fields(kind)}
    surplus = [key for key in given if key not in known]
    if surplus:
        raise ValueError(f"{name} takes {', '.join(known)}, and got {surplus[0]!r}: leave it out.")
    missing = [key for key, default in known.items() if default is MISSING and key not in given]
    if missing:
        raise ValueError(f"{name} takes {missing[0]}, which is missing: add it.")
    return kind(**given)
