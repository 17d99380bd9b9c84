"""Settings of a training run, and its learning rate schedule."""

import dataclasses
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glasshead.recipe.validation import shown, whole_number

OPTIMIZERS = ("adamw", "sgd", "muon")
# Least and most of the whole numbers.
_BOUNDS = {
    "steps": (1, 10**9),
    "warmup": (0, 10**9),
    "accumulate": (1, 1024),
    "validate_every": (1, 10**9),
    "save_every": (1, 10**9),
    "log_every": (1, 10**9),
    "patience": (1, 10**9),
    "seed": (0, 2**63 - 1),
}

# What the names of validation metrics begin with in log.csv.
VALIDATION = "validation_"


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Training settings; one step is one global batch.

    Numbers and intervals of steps and validations are at most 10⁹.

    Attributes:
        steps: Total number of steps.
        learning_rate: Peak learning rate.
        minimum_learning_rate: Learning rate at the end of the cosine.
        warmup: Steps of linear warmup from 0.
        weight_decay: Weight decay of matrices; biases and norms have none.
        betas: Decay rates of AdamW's two averages; unused by SGD.
        clip: Maximum norm of the gradient, or None.
        accumulate: Number of parts for gradient accumulation, which saves memory; at most 1024.
        validate_every: Steps between validations; there is also one at the end.
        save_every: Steps between checkpoints; there is also one after each validation.
        log_every: Steps between rows of log.csv.
        patience: Validations without improvement before training stops early, or None.
        label_smoothing: Label smoothing ε of the training loss.
        seed: Random seed of initialization, dropout and batches; below 2⁶³.
        optimizer: `adamw`, `sgd`, or `muon`, with AdamW for all but the hidden matrices.

    Errors: a ValueError or TypeError that names the invalid setting.

    >>> TrainingSettings(steps=100, learning_rate=3e-4).warmup
    0
    >>> TrainingSettings(steps=0)
    Traceback (most recent call last):
    ValueError: steps takes a whole number of at least 1, and got 0.
    """

    steps: int = 1000
    learning_rate: float = 1e-3
    minimum_learning_rate: float = 0.0
    warmup: int = 0
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float | None = 1.0
    accumulate: int = 1
    validate_every: int = 250
    save_every: int = 250
    log_every: int = 10
    patience: int | None = None
    label_smoothing: float = 0.0
    seed: int = 0
    optimizer: str = "adamw"

    def __post_init__(self) -> None:
        check_whole(self, _BOUNDS)
        for name in ("learning_rate", "minimum_learning_rate", "weight_decay", "label_smoothing"):
            _check_number(name, getattr(self, name))
        if self.clip is not None:
            _check_number("clip", self.clip)
        if self.label_smoothing >= 1:
            raise ValueError(
                f"label_smoothing takes a share below 1, as in 0.1, and got {self.label_smoothing}."
            )
        if self.clip == 0:
            raise ValueError("clip takes a norm above 0, and got 0: use None to clip nothing.")
        object.__setattr__(self, "betas", _checked_betas(self.betas))
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"optimizer takes one of {', '.join(OPTIMIZERS)}, and got {self.optimizer!r}."
            )
        if self.minimum_learning_rate > self.learning_rate:
            raise ValueError(
                f"minimum_learning_rate takes no more than learning_rate, {self.learning_rate:g}, "
                f"and got {self.minimum_learning_rate:g}."
            )
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup takes fewer steps than there are, {self.steps}, and got {self.warmup}."
            )

    def validates_at(self, step: int) -> bool:
        """Return whether there is a validation after a step."""
        return step % self.validate_every == 0 or step >= self.steps

    def saves_at(self, step: int) -> bool:
        """Return whether there is a checkpoint after a step."""
        return step % self.save_every == 0 or self.validates_at(step)


def check_whole(settings: Any, bounds: Mapping[str, tuple[int, int]]) -> None:
    """Check the fields of a dataclass that are whole numbers, or None where that is the default.

    Those of NumPy become Python's, which JSON can hold.

    Args:
        settings: The dataclass.
        bounds: Least and most of each, by name; other names are passed over.

    Errors: a ValueError or TypeError where one is not.
    """
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name in bounds and (value is not None or field.default is not None):
            least, most = bounds[field.name]
            value = whole_number(value, field.name, least=least, most=most)
            object.__setattr__(settings, field.name, value)


def _check_number(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Larger integers do not convert to float.
    if not number or not 0 <= value <= sys.float_info.max:
        text = shown(value) if isinstance(value, int) else repr(value)
        text = text if len(text) <= 60 else f"{text[:57]}…"
        raise ValueError(f"{name} takes a number from 0, and got {text}.")


def _checked_betas(betas: Any) -> tuple[float, float]:
    good = isinstance(betas, tuple | list) and len(betas) == 2
    if not good or not all(isinstance(beta, int | float) and 0 <= beta < 1 for beta in betas):
        raise ValueError(
            f"betas takes two numbers from 0 and below 1, such as (0.9, 0.95), and got {betas!r}."
        )
    return tuple(betas)


def learning_rate(settings: TrainingSettings, step: int) -> float:
    """Return the learning rate of a step, counted from 0: linear warmup, then cosine decay.

    It rises linearly, η (step + 1) / warmup, then decays along half a cosine to the minimum:
    η_min + (η - η_min) (1 + cos π t) / 2, t = (step - warmup) / (steps - warmup).

    Source: Loshchilov and Hutter 2017 (SGDR: stochastic gradient descent with warm restarts),
    equation 5, here without restarts.

    >>> settings = TrainingSettings(steps=6, learning_rate=0.8, warmup=2)
    >>> [round(learning_rate(settings, step), 3) for step in range(6)]
    [0.4, 0.8, 0.8, 0.683, 0.4, 0.117]
    """
    high, low = settings.learning_rate, settings.minimum_learning_rate
    if step < settings.warmup:
        return high * (step + 1) / settings.warmup
    progress = (step - settings.warmup) / (settings.steps - settings.warmup)
    return low + (high - low) * (1 + math.cos(math.pi * min(1.0, progress))) / 2


class Interrupted(Exception):  # noqa: N818 - not an error
    """Training was interrupted after saving a checkpoint; the message says how to resume."""
