"""Statistics as options of a command, parsed before torch is imported: `entropy`, `top-k:3`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import glasshead as gh
from glasshead.explanation.choices import one_of, quoted
from glasshead.message import Message

if TYPE_CHECKING:
    from glasshead import Statistic

_WHOLE = re.compile(r"[0-9]{1,9}")
_WHOLES = re.compile(r"[0-9]{1,9}(,[0-9]{1,9})*")
_NUMBERS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?(,[0-9]{1,9}(\.[0-9]{1,9})?)*(,inf)?")


@dataclass(frozen=True)
class _Form:
    """Syntax of a statistic.

    Attributes:
        name: Of its class, so that options are checked before torch is there.
        argument: What may stand after the colon; None: nothing.
        example: Such an argument, which is also taken where none is written; None: no argument.
        several: Whether the class takes a list.
    """

    name: str
    argument: re.Pattern[str] | None = None
    example: str | None = None
    several: bool = False


STATISTICS = {
    "entropy": _Form("Entropy"),
    "max-weight": _Form("MaxWeight"),
    "mean-distance": _Form("MeanDistance"),
    "received": _Form("Received", _WHOLE),
    "mass-on": _Form("MassOn", _WHOLES, "0", several=True),
    "top-k": _Form("TopK", _WHOLE, "3"),
    "log-sum-exp": _Form("LogSumExp"),
    "max-score": _Form("MaxScore"),
    "distance-histogram": _Form(
        "DistanceHistogram", _NUMBERS, "0,1,2,5,10,20,50,100,200,500,1000,inf", several=True
    ),
}
DEFAULT = ("entropy", "max-weight", "mean-distance", "received", "mass-on:0", "top-k:3")


@dataclass(frozen=True)
class StatisticOption:
    """A requested statistic, parsed; building it takes torch.

    Attributes:
        written: As the command line has it.
        form: How it is written.
        numbers: Its arguments.
    """

    written: str
    form: _Form
    numbers: tuple[float, ...]

    @property
    def name(self) -> str:
        """Name in the observation: `top_k_3` of `top-k:3`."""
        return re.sub(r"\W", "_", self.written)

    def build(self) -> "Statistic":
        """Build the statistic.

        Errors: a ValueError or TypeError if it does not take its numbers.
        """
        make = getattr(gh, self.form.name)
        try:
            return make(self.numbers) if self.form.several else make(*self.numbers)
        except (ValueError, TypeError) as error:
            raise ValueError(
                Message("--stat {written}: {error}", written=self.written, error=error)
            ) from error


def parse_statistics(written: Sequence[str]) -> tuple[StatisticOption, ...]:
    """Parse statistics, in order.

    Errors: a ValueError if one is unknown, has an argument that it does not take, or is asked
    for twice.

    >>> [one.numbers for one in parse_statistics(["entropy", "top-k", "mass-on:0,1"])]
    [(), (3,), (0, 1)]
    """
    asked: list[StatisticOption] = []
    for one in map(_parsed, written):
        if any((one.form, one.numbers) == (other.form, other.numbers) for other in asked):
            raise ValueError(
                Message(
                    "--stat must have each statistic once, got {written} twice.",
                    written=one.written,
                )
            )
        asked.append(one)
    return tuple(asked)


def default_statistics(keys: int) -> tuple[StatisticOption, ...]:
    """Return the default statistics; `top-k` is limited to the number of keys."""
    return parse_statistics([f"top-k:{min(3, keys)}" if "top-k" in w else w for w in DEFAULT])


def _parsed(written: str) -> StatisticOption:
    name, colon, argument = written.partition(":")
    form = STATISTICS[one_of(name, STATISTICS, "--stat")]
    if form.argument is None and colon:
        raise ValueError(
            Message(
                "--stat {name} must have nothing after its name, got {written}.",
                name=name,
                written=quoted(written),
            )
        )
    argument = argument if colon else form.example
    if argument is None:
        return StatisticOption(written, form, ())
    if form.argument is None or not form.argument.fullmatch(argument):
        raise ValueError(
            Message(
                "--stat {name} must have numbers as in {name}:{value}, got {written}.",
                name=name,
                value=form.example or 16,
                written=quoted(written),
            )
        )
    return StatisticOption(written, form, tuple(map(_number, argument.split(","))))


def _number(written: str) -> float:
    return int(written) if written.isdecimal() else float(written)
