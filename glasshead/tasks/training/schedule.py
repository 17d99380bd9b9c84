"""The learning rate of each step."""

import math

from glasshead.tasks.training.settings import TrainingSettings


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
