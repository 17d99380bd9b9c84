"""Values of a Hugging Face config.json, read and checked by name."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from glasshead.drawing.printable import printable
from glasshead.recipe.validation import shown

# What configs call the number of their layers, each of which has tensors of its own.
_LAYERS = {"num_hidden_layers", "num_layers", "n_layer", "n_layers", "decoder_layers"}
# More than any of their numbers.
_LARGEST = 2**40


class Values:
    """A `config.json`, whose entries are checked as they are taken.

    Args:
        values: What it says.
        where: Its name, for errors.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values, self.where = values, printable(where)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """What it says of `name`; null counts as nothing."""
        value = self._values.get(name)
        return default if value is None else value

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1.

        Errors: a ValueError where it is none.
        """
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(
                f"{self.where} takes {name} as a whole number from 1, and has {value!r}: take the "
                "config.json that belongs to the weights."
            )
        if value > _LARGEST:
            raise _beyond_all(self.where, name, value)
        return value

    def number(self, name: str, default: float) -> float:
        """A number.

        Errors: a ValueError where it is none.
        """
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{self.where} takes {name} as a number, and has {value!r}.")  # noqa: TRY004 - what the file has is a value
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError(
                f"{self.where} takes {name} as a number of 64 bits, and has a whole number of "
                f"{int(value).bit_length()} bits."
            ) from error

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false.

        Errors: a ValueError where it is neither.
        """
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise ValueError(f"{self.where} takes {name} as true or false, and has {value!r}.")  # noqa: TRY004 - what the file has is a value
        return value

    def choice(self, name: str, default: str, known: Mapping[str, str]) -> str:
        """One of some names, as ours.

        Errors: a ValueError where it is another.
        """
        value = self.get(name, default)
        if not isinstance(value, str) or value not in known:
            raise ValueError(
                f"{self.where} has {name}={value!r}, and glasshead knows {', '.join(known)}: watch "
                "the model of transformers itself, by gh.watch(model, …)."
            )
        return known[value]

    def only(self, name: str, value: Any) -> None:
        """Raise a ValueError where it says something else than the one thing that is known here."""
        if (said := self.get(name, value)) != value:
            raise ValueError(
                f"{self.where} has {name}={said!r}, and glasshead knows {value!r}: watch the model "
                "of transformers itself, by gh.watch(model, …)."
            )


def check_layers(values: Mapping[str, Any], file: Path, tensors: int) -> None:
    """Raise a ValueError where a config has more layers than there are tensors.

    To build millions of them would take hours, and configs make lists that are as long.
    """
    for name, value in _numbers(values):
        if name in _LAYERS and value > tensors:
            raise ValueError(
                f"{printable(str(file))} tells of {shown(value)} layers, and the weights are "
                f"{tensors} tensors: take the weights and the config.json of one model."
            )


def check_numbers(values: Mapping[str, Any], file: Path, tensors: int) -> None:
    """Raise a ValueError as `check_layers`, for no layers, and for numbers beyond all memory."""
    check_layers(values, file, tensors)
    for name, value in _numbers(values):
        if name in _LAYERS:
            Values({name: value}, str(file)).whole(name)
        if abs(value) > _LARGEST:
            raise _beyond_all(printable(str(file)), name, value)


def _numbers(told: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The whole numbers of a config, those of the configs within it, too."""
    for name, value in told.items():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield name, value


def _beyond_all(where: str, name: str, value: int) -> ValueError:
    return ValueError(
        f"{where} tells of a model that no memory holds, with {printable(name)}={shown(value)}: "
        "take the config.json that belongs to the weights."
    )
