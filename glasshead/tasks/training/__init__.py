"""Training by steps on Lightning Fabric, with checkpoints, resuming and distributed data."""

from glasshead.tasks.training.checkpoints import MAY_CHANGE
from glasshead.tasks.training.logs import AttentionLog, read_attention_log
from glasshead.tasks.training.loop import train
from glasshead.tasks.training.processes import Hardware, check_hardware
from glasshead.tasks.training.settings import Interrupted, TrainingSettings
from glasshead.tasks.training.task import ExampleSource, Task

__all__ = [
    "AttentionLog",
    "ExampleSource",
    "Hardware",
    "Interrupted",
    "Task",
    "TrainingSettings",
    "read_attention_log",
    "train",
]
