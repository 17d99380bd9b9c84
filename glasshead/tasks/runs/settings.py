"""Settings: all that decides which model a run ends with."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from glasshead.models.config import TransformerConfig
from glasshead.out_of_memory import available_memory
from glasshead.tasks.assigning import assigned
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.runs.data import RunData
from glasshead.tasks.runs.preset import Preset, preset
from glasshead.tasks.training import MAY_CHANGE, TrainingSettings

# A parameter, its gradient, and the averages that the optimizer keeps.
_COPIES = {"adamw": 4, "muon": 3, "sgd": 2}


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Which examples, which model, how to train it; each task has settings of its own kind.

    Attributes:
        data: The examples.
        model: Of the model's config; what is found out when a run begins is not in it.
        training: How to train.
    """

    task: ClassVar[str]
    data_kind: ClassVar[type[RunData]]
    config_kind: ClassVar[type[TransformerConfig]]
    presets: ClassVar[Mapping[str, Preset]]
    # What of the config is found out when a run begins, and what stands for it until then.
    unknown: ClassVar[Mapping[str, int]] = {"vocab_size": 1}

    data: Any
    model: Mapping[str, Any]
    training: TrainingSettings

    @classmethod
    def from_preset(
        cls,
        name: str,
        assignments: Iterable[str] = (),
        files: Iterable[str] = (),
        held_out_files: Iterable[str] = (),
    ) -> Self:
        """The settings of a preset, some of them changed.

        Errors: a ValueError or TypeError where the preset is not there, an assignment is not
        understood, or a value is not what it is to be.
        """
        chosen = preset(name, cls.presets)
        data = {
            **chosen.data,
            "files": absolute(files),
            "held_out_files": absolute(held_out_files),
        }
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
        if config.get("task") != cls.task:
            raise ValueError(
                f"{folder.path} has a run of the task {config.get('task')!r}, and one of "
                f"{cls.task!r} is to be had: name another."
            )
        try:
            cls.config_kind.from_json(config.get("model"))
            return cls._of(config)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{folder.config} is not what training wrote ({error}): train anew."
            ) from error

    @classmethod
    def _of(cls, sections: Mapping[str, Any]) -> Self:
        settings = cls(
            data=cls.data_kind(**sections["data"]),
            model=sections["model"],
            training=TrainingSettings(**sections["training"]),
        )
        settings.model_config()
        return settings

    def changed(self, assignments: Iterable[str]) -> Self:
        """The same with `key=value` set.

        Errors: a ValueError or TypeError where one is not understood, or a value is not what it is
        to be.
        """
        keys = {
            "data": _names(self.data_kind, ("files", "held_out_files", *self.data_kind.found)),
            "model": _names(self.config_kind, (*self.unknown,)),
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
        own, other = (each.to_json(each.model_config(**self.unknown)) for each in (self, asked))
        for section in ("data", "model", "training"):
            for name, value in own[section].items():
                there = other[section][name]
                if value != there and name not in (*self.data_kind.found, *MAY_CHANGE):
                    raise ValueError(
                        f"the run in {folder.path} has {name} {value!r}, and {there!r} was asked "
                        "for: go on with the former, or train anew in another folder."
                    )

    def model_config(self, **found: int) -> Any:
        """What the model is built from.

        Args:
            found: What is known once a run begins, as the size of the vocabulary.
        """
        return self.config_kind(**{**self.unknown, **self.model, **found})

    def check_memory(self, **found: int) -> None:
        """Raise a ValueError where training takes more memory than there is, as can be counted now.

        A parameter of 4 bytes has a gradient, and what its optimizer keeps of it.

        Args:
            found: As of `model_config`.
        """
        count = self.model_config(**found).least_parameters
        # On a GPU training itself takes nothing of this memory.
        copies = 1 if torch.cuda.is_available() else _COPIES[self.training.optimizer]
        needed, there = 4 * copies * count, available_memory()
        if there is not None and needed > there:
            raise ValueError(
                f"training a model of {count:,} parameters takes {needed / 1e9:,.1f} GB of memory "
                f"at least, and there is {there / 1e9:,.1f} GB: set num_layers, d_model, "
                "context_length or vocabulary lower."
            )

    def to_json(self, config: TransformerConfig) -> dict[str, Any]:
        """What a run folder says of itself."""
        return {
            "task": self.task,
            "data": dataclasses.asdict(self.data),
            "model": config.to_json(),
            "training": dataclasses.asdict(self.training),
        }


def absolute(files: Iterable[str]) -> tuple[str, ...]:
    """The files, wherever the run is used again."""
    return tuple(str(Path(file).absolute()) for file in files)


def _names(kind: type, but: tuple[str, ...] = ()) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.name not in but]
