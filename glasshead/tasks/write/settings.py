"""Settings: all that decides which model a run of `write` ends with."""

from glasshead.models import LanguageModelConfig
from glasshead.tasks.runs import RunSettings
from glasshead.tasks.write.data import WriteData
from glasshead.tasks.write.presets import PRESETS


class WriteSettings(RunSettings):
    """Which texts, which model, how to train it.

    >>> WriteSettings.from_preset("nano", ["steps=500", "d_model=64"]).training.steps
    500
    """

    task = "write"
    data_kind = WriteData
    config_kind = LanguageModelConfig
    presets = PRESETS
