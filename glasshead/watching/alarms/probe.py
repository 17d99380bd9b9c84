"""Probes: read the heads of a model during a training step."""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from torch import nn

from glasshead.recipe.validation import whole_number
from glasshead.statistics import Entropy, MaxScore
from glasshead.watching.alarms.rule import Alarm, AlarmRule, HeadReading, VisibleKeys, readings_of
from glasshead.watching.seen import Seen
from glasshead.watching.watch_and_intervene import watch


class Every:
    """An interval of steps: step 1, then every multiple of a number.

    Where a due step is skipped, the next one is due instead; no step is due twice. A run that
    starts after step 1 starts with a multiple.

    Args:
        steps: The interval.

    Errors: a ValueError or TypeError if it is no whole number from 1.

    >>> every = Every(5)
    >>> [step for step in (1, 1, 2, 3, 4, 5, 6, 11, 12, 15) if every.due(step)]
    [1, 5, 11, 15]
    """

    def __init__(self, steps: int) -> None:
        self.steps = whole_number(steps, "every", least=1)
        self._next: int | None = None

    def due(self, step: int) -> bool:
        """Return whether a step is due; steps must not decrease."""
        if self._next is None:
            self._next = 1 if step == 1 else -(-step // self.steps) * self.steps
        if step < self._next:
            return False
        self._next = (step // self.steps + 1) * self.steps
        return True


class Probe:
    """A `watch` with explicit begin and end, in place of a block.

    It observes the forward pass of the training step itself: no pass is added, no random number
    drawn, and the model, its gradients and its mode are left unchanged.

    Args:
        model: The model in training.
        layers: See `watch`.

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config)
    >>> probe = Probe(model)
    >>> probe.begin()
    >>> loss = model(torch.tensor([[3, 1, 4, 1, 5]])).logsumexp(-1).sum()
    >>> [(reading.layer, reading.head) for reading in probe.end(step=1)][2:4]
    [('blocks.0.attention', 2), ('blocks.1.attention', 0)]
    """

    def __init__(self, model: nn.Module, layers: str | Sequence[str] | None = None) -> None:
        self.model, self.layers = model, layers
        self._open: ExitStack | None = None
        self._seen: Seen | None = None

    def begin(self) -> None:
        """Start watching.

        Errors: as of `watch`.
        """
        self.leave()
        stack = ExitStack()
        statistics = [Entropy(), VisibleKeys(), MaxScore()]
        self._seen = stack.enter_context(watch(self.model, statistics, layers=self.layers))
        self._open = stack

    def end(self, step: int) -> list[HeadReading]:
        """Stop watching, and return the readings; none where it was not started.

        Errors: as at the end of a block of `watch`.
        """
        if self._open is None or self._seen is None:
            return []
        stack, seen = self._open, self._seen
        self._open = self._seen = None
        stack.close()
        return readings_of(seen, step)

    def leave(self) -> None:
        """Stop watching after a failed step, and discard what was seen."""
        if self._open is not None:
            stack = self._open
            self._open = self._seen = None
            # A watch that ends by an error does not check whether it has seen anything.
            error = RuntimeError("the step that was watched has failed.")
            stack.__exit__(type(error), error, None)


@dataclass
class AlarmDispatcher:
    """Dispatcher that feeds readings to a rule and reports its alarms.

    Attributes:
        rule: The alarm rule.
        on_alarm: Callback for each alarm; None: `warnings.warn`.
        on_readings: Callback for the readings of each watched step.
        alarms: The alarms so far.
        values: Numbers of the last watched step, for loggers: by layer the lowest normalized
            entropy and the largest score of its heads, and how many alarms it has raised.

    Errors: a TypeError for an argument of another type.

    >>> dispatcher = AlarmDispatcher(
    ...     AlarmRule(patience=1), on_alarm=lambda alarm: print(alarm.kind)
    ... )
    >>> dispatcher.take([HeadReading(1, "layers.0", 0, 1.5, 0.7, 40.0)])
    >>> dispatcher.take([HeadReading(2, "layers.0", 0, 1.5, 0.7, 140.0)])
    maximum_logit
    """

    rule: AlarmRule
    on_alarm: Callable[[Alarm], object] | None = None
    on_readings: Callable[[list[HeadReading]], object] | None = None
    alarms: list[Alarm] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.rule, AlarmRule):
            raise TypeError(f"rule takes an AlarmRule such as AlarmRule(), and got {self.rule!r}.")
        for name in ("on_alarm", "on_readings"):
            callback = getattr(self, name)
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} takes a function such as print, and got {callback!r}.")

    def take(self, readings: list[HeadReading]) -> None:
        """Process the readings of a step."""
        if self.on_readings is not None:
            self.on_readings(readings)
        for alarm in self.rule.feed(readings):
            self.alarms.append(alarm)
            if self.on_alarm is None:
                warnings.warn(alarm.sentence, stacklevel=2)
            else:
                self.on_alarm(alarm)
        self.values = _values(readings, self.alarms)


def _values(readings: Sequence[HeadReading], alarms: Sequence[Alarm]) -> dict[str, float]:
    """Return the numbers of a step by the names that loggers show; only finite ones."""
    values: dict[str, float] = {}
    for layer in dict.fromkeys(reading.layer for reading in readings):
        heads, name = [one for one in readings if one.layer == layer], layer or "model"
        numbers = {
            "entropy": min(one.normalized_entropy for one in heads),
            "max_score": max(one.max_score for one in heads),
            "alarms": float(sum(alarm.layer == layer for alarm in alarms)),
        }
        values |= {
            f"attention_{kind}/{name}": number
            for kind, number in numbers.items()
            if math.isfinite(number)
        }
    return values
