"""Settings of a run: presets, data settings, and `--set key=value` overrides."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from glasshead.models.config import TransformerConfig, closest
from glasshead.out_of_memory import available_memory
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import MAY_CHANGE, TrainingSettings
from glasshead.tasks.training.checkpoints import changed_setting
from glasshead.tasks.validated import Share, Texts, validated

# A setting that is chosen when a run begins.
AUTO = "auto"
_WORDS = {"none": None, "null": None, "true": True, "false": False}


def assigned(
    sections: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Iterable[str]],
    assignments: Iterable[str],
) -> dict[str, dict[str, Any]]:
    """Apply `key=value` overrides to the section that has the key.

    Args:
        sections: Settings by section.
        known: Allowed keys of each section.
        assignments: Overrides as typed. Numbers, true, false, none and JSON are parsed; other
            values are strings.

    Errors: a ValueError if one has no "=", or an unknown key.

    >>> assigned({"model": {"d_model": 8}}, {"model": ["d_model", "norm"]}, ["norm=rms"])
    {'model': {'d_model': 8, 'norm': 'rms'}}
    """
    changed = {name: dict(values) for name, values in sections.items()}
    for assignment in assignments:
        key, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals or not key:
            raise ValueError(
                f"--set must be key=value, as in --set steps=500, got {assignment!r}. Add the "
                "value."
            )
        home = next((name for name, keys in known.items() if key in keys), None)
        if home is None:
            every = [each for keys in known.values() for each in keys]
            raise ValueError(f"--set has no {key!r}{closest(key, every)}")
        changed[home][key] = _value(text)
    return changed


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, too many digits, or nested too deeply
        return text


def typed(text: str) -> dict[str, Any]:
    """Parse settings as they are typed after `--set`, with spaces between them.

    >>> typed("d_model=8 norm=rms clip=none betas=[0.9,0.98]")
    {'d_model': 8, 'norm': 'rms', 'clip': None, 'betas': [0.9, 0.98]}
    """
    pairs = (setting.partition("=") for setting in text.split())
    return {key: _value(value) for key, _, value in pairs}


# Better for small models than the components of 2017 and of GPT-2: Touvron et al. 2023 (Llama),
# section 2.2.
MODERN = typed("positions=rotary norm=rms feed_forward=swiglu bias=false")


@validated
class RunData:
    """Data settings that all tasks share: files and the held-out split.

    Attributes:
        files: Training files; none: generated examples.
        held_out_files: Validation files; none: a share of the training files.
        held_out: That share, which is excluded from training.
        sha256: Hash of all examples, by which resuming checks that they are unchanged.

    Errors: a ValueError or TypeError that names the invalid setting.
    """

    # Fields that are filled in when a run begins, and cannot be set.
    found: ClassVar[tuple[str, ...]] = ("sha256",)

    files: Texts = ()
    held_out_files: Texts = ()
    held_out: Share = 0.1
    sha256: str | None = None

    def __post_init__(self) -> None:
        if self.held_out_files and not self.files:
            raise ValueError(
                "--held-out needs files to train on, got none. Name these too, or omit it."
            )


def digest(*parts: Sequence[str]) -> str:
    """Compute a SHA-256 of lists of texts, which depends on how they are divided.

    >>> digest(["a", "b"], ["c"]) == digest(["a"], ["b", "c"])
    False
    """
    whole = hashlib.sha256()
    for part in parts:
        whole.update(str(len(part)).encode())
        for text in part:
            whole.update(hashlib.sha256(text.encode()).digest())
    return whole.hexdigest()


@dataclass(frozen=True)
class Preset:
    """Named default settings, which `--set` overrides.

    Attributes:
        about: A line of description.
        data: Data settings of the task.
        model: Fields of the model's config.
        training: Fields of `TrainingSettings`.
    """

    about: str
    data: dict[str, Any]
    model: dict[str, Any]
    training: dict[str, Any]


def preset(name: str, presets: Mapping[str, Preset]) -> Preset:
    """Look up a preset by name.

    Errors: a ValueError for an unknown name.

    >>> preset("tiny", {"tiny": Preset("", {}, {"d_model": 128}, {})}).model["d_model"]
    128
    """
    if name not in presets:
        raise ValueError(f"--preset has no {name!r}{closest(name, presets)}")
    return presets[name]


# Copies of each parameter in memory: itself, its gradient and the optimizer's state.
_COPIES = {"adamw": 4, "muon": 3, "sgd": 2}


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of a run: data, model and training; each task has a subclass.

    Attributes:
        data: Data settings.
        model: Fields of the model's config, except those determined when a run begins.
        training: Training settings.
    """

    task: ClassVar[str]
    data_kind: ClassVar[type[RunData]]
    config_kind: ClassVar[type[TransformerConfig]]
    presets: ClassVar[Mapping[str, Preset]]
    # Config fields determined when a run begins, and their placeholders until then.
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
        """Create settings from a preset with overrides.

        Errors: a ValueError or TypeError for an unknown preset, or an invalid key or value.
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
        """Read the settings of a run folder.

        Errors: an OSError if there is no run; a ValueError if it is of another task, or
        incomplete.
        """
        config = folder.read_config()
        if config.get("task") != cls.task:
            raise ValueError(
                f"{folder.path} must have a run of the task {cls.task!r}, got one of "
                f"{config.get('task')!r}. Name another."
            )
        try:
            cls.config_kind.from_json(config.get("model"))
            return cls._of(config)
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error).removesuffix(".")
            raise ValueError(
                f"{folder.config} is not what training wrote ({reason}). Train again."
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
        """Return a copy with `key=value` overrides.

        Errors: a ValueError or TypeError for an invalid key or value.
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

    def check_same(self, requested: Self, folder: RunFolder) -> None:
        """Check that the settings requested for resuming differ only where they may.

        The files may have moved, as the hash of their content is checked.

        Errors: a ValueError that names the first setting that cannot change.
        """
        may_differ = {*self.data_kind.found, *MAY_CHANGE}
        own, other = (each.to_json(each.model_config(**self.unknown)) for each in (self, requested))
        for section in ("data", "model", "training"):
            for name, value in own[section].items():
                there = other[section][name]
                moved = name in ("files", "held_out_files") and len(value) == len(there)
                if there not in (AUTO, value) and not moved and name not in may_differ:
                    raise changed_setting(folder, name, value, there)

    def model_config(self, **found: int) -> Any:
        """Create the model's config.

        Args:
            found: Fields determined when a run begins, such as `vocab_size`.
        """
        return self.config_kind(**{**self.unknown, **self.model, **found})

    def check_memory(self, **found: int) -> None:
        """Check a lower bound of the memory of training against the memory available.

        It counts 4 bytes for each parameter, its gradient and its optimizer state.

        Args:
            found: As for `model_config`.

        Errors: a ValueError if it does not suffice.
        """
        count = self.model_config(**found).least_parameters
        # Training on a GPU takes no host memory for gradients and optimizer state.
        copies = 1 if torch.cuda.is_available() else _COPIES[self.training.optimizer]
        needed, there = 4 * copies * count, available_memory()
        if there is not None and needed > there:
            raise ValueError(
                f"training a model of {count:,} parameters needs at least "
                f"{needed / 1000000000.0:,.1f} GB of memory, got {there / 1000000000.0:,.1f} GB. "
                "Set num_layers, d_model, context_length or vocabulary lower."
            )

    def to_json(self, config: TransformerConfig) -> dict[str, Any]:
        """Serialize the settings for config.json."""
        return {
            "task": self.task,
            "data": dataclasses.asdict(self.data),
            "model": config.to_json(),
            "training": dataclasses.asdict(self.training),
        }


def absolute(files: Iterable[str]) -> tuple[str, ...]:
    """Return absolute paths, so that a run can be resumed from any directory."""
    return tuple(str(Path(file).absolute()) for file in files)


def _names(kind: type, but: tuple[str, ...] = ()) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.name not in but]
