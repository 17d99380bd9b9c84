"""Alarms: what the heads of a model in training tell before its loss does."""

from glasshead.watching.alarms.alarm import Alarm
from glasshead.watching.alarms.every import Every
from glasshead.watching.alarms.probe import Probe
from glasshead.watching.alarms.reading import Reading
from glasshead.watching.alarms.rule import AlarmRule
from glasshead.watching.alarms.visible_keys import VisibleKeys

__all__ = ["Alarm", "AlarmRule", "Every", "Probe", "Reading", "VisibleKeys"]
