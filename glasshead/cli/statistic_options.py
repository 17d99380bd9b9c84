"""Statistics as options of a command, parsed before torch is imported: `entropy`, `top-k:3`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glasshead.explanation.choices import one_of, quoted
from glasshead.message import Message
from glasshead.statistics.spelling import SPELLINGS, Spelling, name_of

if TYPE_CHECKING:
    from glasshead import Statistic

# A table shows means.
STATISTICS = {name: one for name, one in SPELLINGS.items() if not one.gives_keys}
DEFAULT = ("entropy", "max-weight", "mean-distance", "received", "mass-on:0", "top-k:3")


@dataclass(frozen=True)
class StatisticOption:
    """A requested statistic, parsed; building it takes torch.

    Attributes:
        written: As the command line has it.
        spelling: Its syntax.
        numbers: Its arguments.
    """

    written: str
    spelling: Spelling
    numbers: tuple[float, ...]

    @property
    def name(self) -> str:
        """Name in the observation: `top_k_3` of `top-k:3`."""
        return name_of(self.written)

    def build(self) -> "Statistic":
        """Build the statistic.

        Errors: a ValueError or TypeError if it does not take its numbers.
        """
        try:
            return self.spelling.build(self.numbers)
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
        if any((one.spelling, one.numbers) == (other.spelling, other.numbers) for other in asked):
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
    spelling = STATISTICS[one_of(name, STATISTICS, "--stat")]
    if spelling.argument is None and colon:
        raise ValueError(
            Message(
                "--stat {name} must have nothing after its name, got {written}.",
                name=name,
                written=quoted(written),
            )
        )
    numbers = spelling.numbers(argument if colon else None)
    if numbers is None:
        raise ValueError(
            Message(
                "--stat {name} must have numbers as in {name}:{value}, got {written}.",
                name=name,
                value=spelling.example or 16,
                written=quoted(written),
            )
        )
    return StatisticOption(written, spelling, numbers)
