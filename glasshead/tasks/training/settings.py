"""Settings of a training run, and the learning rate that they schedule."""

import math
import sys
from dataclasses import dataclass
from typing import Any

from glasshead.recipe.validation import shown

OPTIMIZERS = ("adamw", "sgd", "muon")
# The most that each takes. Steps beyond would take years; of more parts than a batch has examples,
# all others are computed for nothing.
_MOST = {
    "steps": 10**9,
    "warmup": 10**9,
    "accumulate": 1024,
    "validate_every": 10**9,
    "save_every": 10**9,
    "log_every": 10**9,
    "patience": 10**9,
    "seed": 2**63 - 1,
}


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How to train, by steps; one step is one global batch.

    Numbers of steps and validations are 10⁹ at most, as are those between two of them.

    Attributes:
        steps: How many steps in all.
        learning_rate: The highest that the schedule reaches.
        minimum_learning_rate: Where the cosine ends.
        warmup: Steps over which the learning rate rises from 0.
        weight_decay: Of matrices; biases and norms, which have one axis, have none.
        betas: The decay of AdamW's two averages; SGD has none.
        clip: The largest norm of the gradient, or None.
        accumulate: In how many parts a batch is computed, one after another, to spare memory; 1024
            at most.
        validate_every: Steps between validations; there is one at the end too.
        save_every: Steps between checkpoints; there is one after each validation too.
        log_every: Steps between rows of log.csv.
        patience: After how many validations without a better one training ends early, or None.
        label_smoothing: The share of each answer that training gives to all answers alike.
        seed: Of dropout, and of whatever else the steps draw; below 2⁶³.
        optimizer: `adamw`; `sgd`; or `muon`, which has AdamW for all but the hidden matrices.

    Errors: a ValueError that names the setting.

    >>> TrainingSettings(steps=100, learning_rate=3e-4).warmup
    0
    >>> TrainingSettings(steps=0)
    Traceback (most recent call last):
    ValueError: steps takes a whole number from 1, and got 0.
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
        for name in ("steps", "accumulate", "validate_every", "save_every", "log_every"):
            _check_whole(name, getattr(self, name), 1)
        for name in ("warmup", "seed"):
            _check_whole(name, getattr(self, name), 0)
        for name in ("learning_rate", "minimum_learning_rate", "weight_decay"):
            _check_number(name, getattr(self, name))
        if self.patience is not None:
            _check_whole("patience", self.patience, 1)
        if self.clip is not None:
            _check_number("clip", self.clip)
        _check_number("label_smoothing", self.label_smoothing)
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
        self._check_together()

    def validates_at(self, step: int) -> bool:
        """Whether there is a validation after so many steps."""
        return step % self.validate_every == 0 or step >= self.steps

    def _check_together(self) -> None:
        if self.minimum_learning_rate > self.learning_rate:
            raise ValueError(
                f"minimum_learning_rate takes no more than learning_rate, {self.learning_rate:g}, "
                f"and got {self.minimum_learning_rate:g}."
            )
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup takes fewer steps than there are, {self.steps}, and got {self.warmup}."
            )


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} takes a whole number from {least}, and got {_told(value)}.")
    if value > _MOST[name]:
        raise ValueError(
            f"{name} takes a whole number of at most {_MOST[name]}, and got {_told(value)}."
        )


def _check_number(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Beyond what 64 bits hold, a whole number is no number to calculate with.
    if not number or not 0 <= value <= sys.float_info.max:
        raise ValueError(f"{name} takes a number from 0, and got {_told(value)}.")


def _told(value: Any) -> str:
    text = shown(value) if isinstance(value, int) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _checked_betas(betas: Any) -> tuple[float, float]:
    good = isinstance(betas, tuple | list) and len(betas) == 2
    if not good or not all(isinstance(beta, int | float) and 0 <= beta < 1 for beta in betas):
        raise ValueError(
            f"betas takes two numbers from 0 and below 1, such as (0.9, 0.95), and got {betas!r}."
        )
    return tuple(betas)


def learning_rate(settings: TrainingSettings, step: int) -> float:
    """The learning rate of a step, counted from 0.

    It rises in a line, η (step + 1) / warmup, then falls along half a cosine to the least:
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
