"""Probes: read the heads of a model while a step of its training runs."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from torch import nn

from glasshead.recipe.validation import whole_number
from glasshead.statistics import Entropy, MaxScore
from glasshead.watching.alarms.rule import Alarm, AlarmRule, HeadReading, VisibleKeys, readings_of
from glasshead.watching.seen import Seen
from glasshead.watching.watch import watch


class Every:
    """Step 1, and from then on the multiples of a number.

    Where steps are left out, the next one stands in; a step that is asked about again is not due
    again. Whoever begins later begins with a multiple.

    Args:
        steps: The number.

    Errors: a ValueError or TypeError where it is no whole number from 1.

    >>> every = Every(5)
    >>> [step for step in (1, 1, 2, 3, 4, 5, 6, 11, 12, 15) if every.due(step)]
    [1, 5, 11, 15]
    """

    def __init__(self, steps: int) -> None:
        self.steps = whole_number(steps, "every", least=1)
        self._next: int | None = None

    def due(self, step: int) -> bool:
        """Whether to look in this step, the last one that was asked about or a later one."""
        if self._next is None:
            self._next = 1 if step == 1 else -(-step // self.steps) * self.steps
        if step < self._next:
            return False
        self._next = (step // self.steps + 1) * self.steps
        return True


class Probe:
    """`watch` between two moments, in place of a block.

    What is watched is the forward pass of the training itself: no pass is added, no random number
    drawn, and nothing of the model, its gradients or its mode is touched.

    Args:
        model: What is trained.
        layers: As of `watch`.

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
        """Watch from now on.

        Errors: as of `watch`.
        """
        self.leave()
        stack = ExitStack()
        statistics = [Entropy(), VisibleKeys(), MaxScore()]
        self._seen = stack.enter_context(watch(self.model, statistics, layers=self.layers))
        self._open = stack

    def end(self, step: int) -> list[HeadReading]:
        """Watch no longer, and give what was seen; nothing where nobody had begun.

        Errors: as at the end of a block of `watch`.
        """
        if self._open is None or self._seen is None:
            return []
        stack, seen = self._open, self._seen
        self._open = self._seen = None
        stack.close()
        return readings_of(seen, step)

    def leave(self) -> None:
        """Watch no longer, whatever was seen: the step has failed."""
        if self._open is not None:
            stack = self._open
            self._open = self._seen = None
            # A watch that ends by an error asks not whether it has seen anything.
            error = RuntimeError("the step that was watched has failed.")
            stack.__exit__(type(error), error, None)


@dataclass
class AlarmDispatcher:
    """Feeds the rule, keeps its alarms, and tells of them.

    Attributes:
        rule: Which readings are alarms.
        on_alarm: What is called with each; None: `warnings.warn`.
        on_readings: What is called with the readings of each watched step.
        alarms: Those so far.

    Errors: a TypeError where one of these is something else.

    >>> telling = AlarmDispatcher(AlarmRule(patience=1), on_alarm=lambda alarm: print(alarm.kind))
    >>> telling.take([HeadReading(1, "layers.0", 0, 1.5, 0.7, 40.0)])
    >>> telling.take([HeadReading(2, "layers.0", 0, 1.5, 0.7, 140.0)])
    maximum_logit
    """

    rule: AlarmRule
    on_alarm: Callable[[Alarm], object] | None = None
    on_readings: Callable[[list[HeadReading]], object] | None = None
    alarms: list[Alarm] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.rule, AlarmRule):
            raise TypeError(f"rule takes an AlarmRule such as AlarmRule(), and got {self.rule!r}.")
        for name in ("on_alarm", "on_readings"):
            told = getattr(self, name)
            if told is not None and not callable(told):
                raise TypeError(f"{name} takes a function such as print, and got {told!r}.")

    def take(self, readings: list[HeadReading]) -> None:
        """Take the readings of a step."""
        if self.on_readings is not None:
            self.on_readings(readings)
        for alarm in self.rule.feed(readings):
            self.alarms.append(alarm)
            if self.on_alarm is None:
                warnings.warn(alarm.sentence, stacklevel=2)
            else:
                self.on_alarm(alarm)
