"""Preset: settings that are known to work."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glasshead.models.config import closest


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
