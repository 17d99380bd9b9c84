"""Alarms: early warnings of divergence from the heads of a model in training."""

from glasshead.watching.alarms.probe import Every, Probe
from glasshead.watching.alarms.rule import Alarm, AlarmRule, HeadReading, VisibleKeys

__all__ = ["Alarm", "AlarmRule", "Every", "HeadReading", "Probe", "VisibleKeys"]
