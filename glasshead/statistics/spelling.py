"""How statistics are written in options and settings: `entropy`, `top-k:3`, `mass-on:0,1`.

Nothing heavy is imported here, so that a text can be checked without torch.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import glasshead.statistics as own

if TYPE_CHECKING:
    from glasshead.statistics import Statistic

_WHOLE = re.compile(r"[0-9]{1,9}")
_WHOLES = re.compile(r"[0-9]{1,9}(,[0-9]{1,9})*")
_NUMBERS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?(,[0-9]{1,9}(\.[0-9]{1,9})?)*(,inf)?")


@dataclass(frozen=True)
class Spelling:
    """Syntax of a statistic.

    Attributes:
        name: Of its class, so that a text is checked before torch is there.
        argument: What may stand after the colon; None: nothing.
        example: Such an argument, which is also taken where none is written; None: no argument.
        several: Whether the class takes a list.
        gives_keys: Whether its numbers are places of keys, which have no mean.
    """

    name: str
    argument: re.Pattern[str] | None = None
    example: str | None = None
    several: bool = False
    gives_keys: bool = False

    def numbers(self, argument: str | None) -> tuple[float, ...] | None:
        """Return the numbers after the colon, None without a colon; None if they do not fit.

        >>> SPELLINGS["top-k"].numbers("8"), SPELLINGS["top-k"].numbers(None)
        ((8,), (3,))
        >>> SPELLINGS["entropy"].numbers("8") is None
        True
        """
        argument = self.example if argument is None else argument
        if argument is None:
            return ()
        if self.argument is None or not self.argument.fullmatch(argument):
            return None
        return tuple(map(_number, argument.split(",")))

    def build(self, numbers: Sequence[float]) -> "Statistic":
        """Build the statistic, which takes torch.

        Errors: a ValueError or TypeError if it does not take its numbers.
        """
        make = getattr(own, self.name)
        return make(numbers) if self.several else make(*numbers)


def name_of(written: str) -> str:
    """Return the name of a statistic's values.

    >>> name_of("mass-on:0,1")
    'mass_on_0_1'
    """
    return re.sub(r"\W", "_", written)


SPELLINGS = {
    "entropy": Spelling("Entropy"),
    "max-weight": Spelling("MaxWeight"),
    "arg-max": Spelling("ArgMax", gives_keys=True),
    "mean-distance": Spelling("MeanDistance"),
    "received": Spelling("Received", _WHOLE),
    "mass-on": Spelling("MassOn", _WHOLES, "0", several=True),
    "top-k": Spelling("TopK", _WHOLE, "3"),
    "log-sum-exp": Spelling("LogSumExp"),
    "max-score": Spelling("MaxScore"),
    "distance-histogram": Spelling(
        "DistanceHistogram", _NUMBERS, "0,1,2,5,10,20,50,100,200,500,1000,inf", several=True
    ),
}


def _number(written: str) -> float:
    return int(written) if written.isdecimal() else float(written)
