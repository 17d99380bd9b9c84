"""Settings of a run: presets, the training data, and `--set key=value`."""

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
from glasshead.recipe.validation import whole_number
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import MAY_CHANGE, TrainingSettings

_WORDS = {"none": None, "null": None, "true": True, "false": False}


def assigned(
    sections: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Iterable[str]],
    assignments: Iterable[str],
) -> dict[str, dict[str, Any]]:
    """The sections with `key=value` put into the one that knows the key.

    Args:
        sections: Names and values, by section.
        known: The keys of each section.
        assignments: As they were typed. Numbers, true, false, none and JSON are read as such,
            all else as a word.

    Errors: a ValueError where one has no "=", or a key that no section knows.

    >>> assigned({"model": {"d_model": 8}}, {"model": ["d_model", "norm"]}, ["norm=rms"])
    {'model': {'d_model': 8, 'norm': 'rms'}}
    """
    changed = {name: dict(values) for name, values in sections.items()}
    for assignment in assignments:
        key, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals or not key:
            raise ValueError(
                f"--set takes key=value, as in --set steps=500, and got {assignment!r}: add the "
                "value."
            )
        home = next((name for name, keys in known.items() if key in keys), None)
        if home is None:
            every = [each for keys in known.values() for each in keys]
            raise ValueError(f"--set knows no {key!r}{closest(key, every)}")
        changed[home][key] = _value(text)
    return changed


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a number of thousands of digits, brackets without end
        return text


# The most that each takes: tokenizers set aside memory for each token of a vocabulary at once, and
# what is made up is held in memory.
_MOST = {
    "vocabulary": 2**20,
    "stories": 10**6,
    "made_up": 10**6,
    "batch_size": 2**20,
    "batch_tokens": 2**24,
    "first": 2**24,
    "last": 2**24,
    "blocks": 10**6,
}


@dataclass(frozen=True, kw_only=True)
class RunData:
    """Which files, and what of them is held out.

    Attributes:
        files: What is trained on; none: what the task makes up.
        held_out_files: What is validated with; none: a share of what is trained on.
        held_out: That share, which is then never trained on.
        sha256: Of all examples; resuming sees by it that they are the same.

    Errors: a ValueError or TypeError that names what is wrong.
    """

    # What is found out when a run begins, and nobody sets.
    found: ClassVar[tuple[str, ...]] = ("sha256",)

    files: tuple[str, ...] = ()
    held_out_files: tuple[str, ...] = ()
    held_out: float = 0.1
    sha256: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(self.files))
        object.__setattr__(self, "held_out_files", tuple(self.held_out_files))
        if self.held_out_files and not self.files:
            raise ValueError(
                "--held-out takes files beside those that are trained on, and there are none: name "
                "these too, or leave it out."
            )
        if not isinstance(self.held_out, float) or not 0 < self.held_out < 1:
            raise ValueError(
                f"held_out takes a share between 0 and 1, as in 0.1, and got {self.held_out!r}."
            )

    def check_whole(self, names: Sequence[str], least: int) -> None:
        """Raise a ValueError or TypeError for what is no whole number from `least` to its bound."""
        for name in names:
            whole_number(getattr(self, name), name, least=least, most=_MOST[name])

    def check_kinds(self, tokenizers: Sequence[str], columns: Sequence[str]) -> None:
        """Raise a ValueError or TypeError for a tokenizer or a column that is none."""
        tokenizer, lowercase = (getattr(self, name) for name in ("tokenizer", "lowercase"))
        if tokenizer not in tokenizers:
            raise ValueError(
                f"tokenizer takes one of {', '.join(tokenizers)}, and got {tokenizer!r}."
            )
        for name in columns:
            column = getattr(self, name)
            if not isinstance(column, str):
                raise TypeError(f"{name} takes the name of a column, and got {column!r}.")
        if not isinstance(lowercase, bool):
            raise TypeError(f"lowercase takes true or false, and got {lowercase!r}.")


def digest(*parts: Sequence[str]) -> str:
    """A number that no other texts have, nor the same ones otherwise divided.

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
    """A starting point; `--set` changes any of it.

    Attributes:
        about: What it is for, in a line.
        data: Of the task's data.
        model: Of the model's config.
        training: Of `TrainingSettings`.
    """

    about: str
    data: dict[str, Any]
    model: dict[str, Any]
    training: dict[str, Any]


def preset(name: str, presets: Mapping[str, Preset]) -> Preset:
    """The preset of a name.

    Errors: a ValueError where there is none.

    >>> preset("tiny", {"tiny": Preset("", {}, {"d_model": 128}, {})}).model["d_model"]
    128
    """
    if name not in presets:
        raise ValueError(f"--preset knows no {name!r}{closest(name, presets)}")
    return presets[name]


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
