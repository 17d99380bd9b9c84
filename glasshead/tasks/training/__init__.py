"""Training by steps on Lightning's Trainer, with checkpoints, resuming and distributed data."""

from glasshead.tasks.training.attention_log import AttentionLog, read_attention_log
from glasshead.tasks.training.hardware import Hardware, check_hardware
from glasshead.tasks.training.identity import MAY_CHANGE
from glasshead.tasks.training.loader import ExampleSource, Task
from glasshead.tasks.training.settings import Interrupted, TrainingSettings
from glasshead.tasks.training.train_task import train

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
