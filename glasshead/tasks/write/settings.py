"""Settings: all that decides which model a run of `write` ends with."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from glasshead.models import LanguageModelConfig
from glasshead.tasks.assigning import assigned
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import MAY_CHANGE, TrainingSettings
from glasshead.tasks.write.data import WriteData
from glasshead.tasks.write.presets import preset

TASK = "write"
# What is found out when a run begins.
_FOUND = ("sha256", "texts")


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
        # Wherever the run is used again.
        data = {**chosen.data, "files": tuple(str(Path(file).absolute()) for file in files)}
        return cls._of({"data": data, "model": chosen.model, "training": chosen.training}).changed(
            assignments
        )

    @classmethod
    def from_run(cls, folder: RunFolder) -> Self:
        """The settings that a run folder tells.

        Errors: an OSError where there is no run; a ValueError where it is another task's, or not
        whole.
        """
        config = folder.read_config()
        if config.get("task") != TASK:
            raise ValueError(
                f"{folder.path} has a run of the task {config.get('task')!r}, and one of {TASK!r} "
                "is to be had: name another."
            )
        try:
            LanguageModelConfig.from_json(config.get("model"))
            return cls._of(config)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{folder.config} is not what training wrote ({error}): train anew."
            ) from error

    @classmethod
    def _of(cls, sections: Mapping[str, Any]) -> Self:
        settings = cls(
            data=WriteData(**sections["data"]),
            model=sections["model"],
            training=TrainingSettings(**sections["training"]),
        )
        settings.model_config(vocab_size=1)
        return settings

    def changed(self, assignments: Iterable[str]) -> Self:
        """The same with `key=value` set.

        Errors: a ValueError or TypeError where one is not understood, or a value is not what it is
        to be.
        """
        keys = {
            "data": _names(WriteData, but=("files", *_FOUND)),
            "model": _names(LanguageModelConfig, but=("vocab_size",)),
            "training": _names(TrainingSettings),
        }
        sections = {
            "data": dataclasses.asdict(self.data),
            "model": self.model,
            "training": dataclasses.asdict(self.training),
        }
        return self._of(assigned(sections, keys, assignments))

    def check_same(self, asked: Self, folder: RunFolder) -> None:
        """Raise a ValueError where going on was asked for with what cannot change."""
        own, other = (each.to_json(each.model_config(vocab_size=1)) for each in (self, asked))
        for section in ("data", "model", "training"):
            for name, value in own[section].items():
                there = other[section][name]
                if value != there and name not in (*_FOUND, *MAY_CHANGE):
                    raise ValueError(
                        f"the run in {folder.path} has {name} {value!r}, and {there!r} was asked "
                        "for: go on with the former, or train anew in another folder."
                    )

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
