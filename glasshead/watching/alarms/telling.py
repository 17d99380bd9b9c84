"""Telling: what a callback does with readings."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from glasshead.watching.alarms.alarm import Alarm
from glasshead.watching.alarms.reading import Reading
from glasshead.watching.alarms.rule import AlarmRule


@dataclass
class Telling:
    """Feeds the rule, keeps its alarms, and tells of them.

    Attributes:
        rule: Which readings are alarms.
        on_alarm: What is called with each; None: `warnings.warn`.
        on_readings: What is called with the readings of each watched step.
        alarms: Those so far.

    Errors: a TypeError where one of these is something else.

    >>> telling = Telling(AlarmRule(patience=1), on_alarm=lambda alarm: print(alarm.kind))
    >>> telling.take([Reading(1, "layers.0", 0, 1.5, 0.7, 40.0)])
    >>> telling.take([Reading(2, "layers.0", 0, 1.5, 0.7, 140.0)])
    maximum_logit
    """

    rule: AlarmRule
    on_alarm: Callable[[Alarm], object] | None = None
    on_readings: Callable[[list[Reading]], object] | None = None
    alarms: list[Alarm] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.rule, AlarmRule):
            raise TypeError(f"rule takes an AlarmRule such as AlarmRule(), and got {self.rule!r}.")
        for name in ("on_alarm", "on_readings"):
            told = getattr(self, name)
            if told is not None and not callable(told):
                raise TypeError(f"{name} takes a function such as print, and got {told!r}.")

    def take(self, readings: list[Reading]) -> None:
        """Take the readings of a step."""
        if self.on_readings is not None:
            self.on_readings(readings)
        for alarm in self.rule.feed(readings):
            self.alarms.append(alarm)
            if self.on_alarm is None:
                warnings.warn(alarm.sentence, stacklevel=2)
            else:
                self.on_alarm(alarm)
