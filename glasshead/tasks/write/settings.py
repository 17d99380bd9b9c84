"""Settings: all that decides which model a run of `write` ends with."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from glasshead.models import LanguageModelConfig
from glasshead.tasks.assigning import assigned
from glasshead.tasks.training import TrainingSettings
from glasshead.tasks.write.data import WriteData
from glasshead.tasks.write.presets import preset

TASK = "write"


@dataclass(frozen=True, kw_only=True)
class WriteSettings:
    """Which texts, which model, how to train it.

    Attributes:
        data: The texts and their tokens.
        model: Of `LanguageModelConfig`; `vocab_size` is the tokenizer's.
        training: How to train.

    >>> WriteSettings.from_preset("nano", ["steps=500", "d_model=64"]).training.steps
    500
    """

    data: WriteData
    model: Mapping[str, Any]
    training: TrainingSettings

    @classmethod
    def from_preset(
        cls, name: str, assignments: Iterable[str] = (), files: Iterable[str] = ()
    ) -> Self:
        """The settings of a preset, some of them changed.

        Errors: a ValueError or TypeError where the preset is not there, an assignment is not
        understood, or a value is not what it is to be.
        """
        chosen = preset(name)
        sections = {"data": chosen.data, "model": chosen.model, "training": chosen.training}
        keys = {
            "data": _names(WriteData, but=("files", "sha256")),
            "model": _names(LanguageModelConfig, but=("vocab_size",)),
            "training": _names(TrainingSettings),
        }
        changed = assigned(sections, keys, assignments)
        settings = cls(
            data=WriteData(**changed["data"], files=tuple(files)),
            model=changed["model"],
            training=TrainingSettings(**changed["training"]),
        )
        settings.model_config(vocab_size=1)
        return settings

    def model_config(self, vocab_size: int) -> LanguageModelConfig:
        """What the model is built from, for a vocabulary of this size."""
        return LanguageModelConfig(**{**self.model, "vocab_size": vocab_size})

    def to_json(self, config: LanguageModelConfig) -> dict[str, Any]:
        """What a run folder says of itself."""
        return {
            "task": TASK,
            "data": dataclasses.asdict(self.data),
            "model": config.to_json(),
            "training": dataclasses.asdict(self.training),
        }


def _names(kind: type, but: tuple[str, ...] = ()) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.name not in but]
