"""Settings: all that decides which model a run of `classify` ends with."""

from collections.abc import Mapping
from typing import ClassVar

from glasshead.models import ClassifierConfig
from glasshead.tasks.classify.data import ClassifyData
from glasshead.tasks.classify.presets import PRESETS
from glasshead.tasks.runs import RunSettings


class ClassifySettings(RunSettings):
    """Which texts with which labels, which model, how to train it.

    >>> ClassifySettings.from_preset("course", ["steps=500"]).model["d_model"]
    32
    """

    task = "classify"
    data_kind = ClassifyData
    config_kind = ClassifierConfig
    presets = PRESETS
    unknown: ClassVar[Mapping[str, int]] = {"vocab_size": 1, "num_answers": 2}
