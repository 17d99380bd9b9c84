"""Settings: all that decides which model a run of `translate` ends with."""

from glasshead.models import TranslatorConfig
from glasshead.tasks.runs import RunSettings
from glasshead.tasks.translate.data import TranslateData
from glasshead.tasks.translate.presets import PRESETS


class TranslateSettings(RunSettings):
    """Which texts and translations, which model, how to train it.

    >>> TranslateSettings.from_preset("small", ["steps=500", "d_model=64"]).training.steps
    500
    """

    task = "translate"
    data_kind = TranslateData
    config_kind = TranslatorConfig
    presets = PRESETS
