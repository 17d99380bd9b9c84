"""Settings of a training run, and its learning rate schedule."""

import math
from typing import Annotated, Literal

from pydantic import Field

from glasshead.tasks.validated import Whole, validated

_MOST = 10**9
Steps = Annotated[Whole, Field(ge=1, le=_MOST)]
Number = Annotated[float, Field(ge=0, description="a number from 0")]
Beta = Annotated[float, Field(ge=0, lt=1)]


@validated
class TrainingSettings:
    """Training settings; one step is one global batch.

    Numbers and intervals of steps and validations are at most 10⁹.

    Attributes:
        steps: Total number of steps.
        learning_rate: Peak learning rate.
        minimum_learning_rate: Learning rate at the end of the cosine.
        warmup: Steps of linear warmup from 0.
        cosine: The step at which the cosine ends, or None for the last one.
        after: What follows it: `constant`, its last rate; or `restart`, a second cosine.
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
    ValueError: steps must be a whole number of at least 1, got 0.
    """

    steps: Steps = 1000
    learning_rate: Number = 1e-3
    minimum_learning_rate: Number = 0.0
    warmup: Annotated[Whole, Field(ge=0, le=_MOST)] = 0
    cosine: Annotated[Whole | None, Field(ge=1, le=_MOST)] = None
    after: Literal["constant", "restart"] = "constant"
    weight_decay: Number = 0.1
    betas: Annotated[
        tuple[Beta, Beta],
        Field(strict=False, description="two numbers from 0 and below 1, such as (0.9, 0.95)"),
    ] = (0.9, 0.95)
    clip: Annotated[
        float | None, Field(gt=0, description="a norm above 0, or None to clip nothing")
    ] = 1.0
    accumulate: Annotated[Whole, Field(ge=1, le=1024)] = 1
    validate_every: Steps = 250
    save_every: Steps = 250
    log_every: Steps = 10
    patience: Annotated[Whole | None, Field(ge=1, le=_MOST)] = None
    label_smoothing: Annotated[
        float, Field(ge=0, lt=1, description="a share from 0 to below 1, as in 0.1")
    ] = 0.0
    seed: Annotated[Whole, Field(ge=0, le=2**63 - 1)] = 0
    optimizer: Literal["adamw", "sgd", "muon"] = "adamw"

    def __post_init__(self) -> None:
        if self.minimum_learning_rate > self.learning_rate:
            raise ValueError(
                f"minimum_learning_rate must be at most learning_rate, {self.learning_rate:g}, "
                f"got {self.minimum_learning_rate:g}."
            )
        if self.warmup >= self.steps:
            raise ValueError(f"warmup must be less than steps={self.steps}, got {self.warmup}.")
        if self.cosine is not None and self.cosine <= self.warmup:
            raise ValueError(f"cosine must end after the warmup, {self.warmup}, got {self.cosine}.")

    def validates_at(self, step: int) -> bool:
        """Return whether there is a validation after a step."""
        return step % self.validate_every == 0 or step >= self.steps

    def saves_at(self, step: int) -> bool:
        """Return whether there is a checkpoint after a step."""
        return step % self.save_every == 0 or self.validates_at(step)


def learning_rate(settings: TrainingSettings, step: int) -> float:
    """Return the learning rate of a step, counted from 0: linear warmup, then cosine decay.

    It rises linearly, η (step + 1) / warmup, then decays along half a cosine to the minimum:
    η_min + (η - η_min) (1 + cos π t) / 2, t = (step - warmup) / (steps - warmup). What
    follows the step `cosine`, if a run is made longer, is stated by `after`.

    Source: Loshchilov and Hutter 2017 (SGDR: stochastic gradient descent with warm restarts),
    equation 5.

    >>> settings = TrainingSettings(steps=6, learning_rate=0.8, warmup=2)
    >>> [round(learning_rate(settings, step), 3) for step in range(6)]
    [0.4, 0.8, 0.8, 0.683, 0.4, 0.117]
    >>> settings = TrainingSettings(steps=6, learning_rate=0.8, cosine=2)
    >>> [round(learning_rate(settings, step), 3) for step in range(6)]
    [0.8, 0.4, 0.4, 0.4, 0.4, 0.4]
    """
    high, low = settings.learning_rate, settings.minimum_learning_rate
    end = settings.steps if settings.cosine is None else min(settings.cosine, settings.steps)
    if step < settings.warmup:
        return high * (step + 1) / settings.warmup
    begin = settings.warmup
    if step >= end and settings.after == "restart":
        begin, end = end, settings.steps
    elif settings.cosine is not None:
        # Past the cosine the rate of its last step stays.
        step = min(step, end - 1)
    progress = (step - begin) / (end - begin)
    return low + (high - low) * (1 + math.cos(math.pi * min(1.0, progress))) / 2


class Interrupted(Exception):  # noqa: N818 - not an error
    """Training was interrupted after saving a checkpoint; the message says how to resume."""
