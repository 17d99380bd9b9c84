"""Options: those that every `glasshead observe` has, whatever it observes."""

from collections.abc import Iterable
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path

from glasshead.cli.inputs.reading import shown
from glasshead.cli.observing.statistics import Asked, parse_statistics
from glasshead.cli.outputs.page_file import OBSERVATION, PAGE, check_apart, check_target
from glasshead.cli.outputs.terminal import check_width


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user wrote; the fields are the options of the command."""

    stat: tuple[str, ...] = ()
    layer: int | None = None
    head: int | None = None
    save: Path | None = None
    html: Path | None = None
    width: int | None = None

    def statistics(self) -> tuple[Asked, ...]:
        """The statistics that are asked for; none where the choice is ours."""
        return parse_statistics(self.stat)

    def check_outputs(self, sources: Iterable[Path | None]) -> None:
        """Raise where an option of the output is wrong by itself.

        Args:
            sources: The files that are read, which are not to be written.

        Errors: a ValueError or an OSError that names the option.
        """
        if self.head is not None and self.head < 0:
            raise ValueError(f"--head takes a head, counted from 0, and got {self.head}.")
        check_width(self.width)
        sources = tuple(sources)
        for kind, path in ((PAGE, self.html), (OBSERVATION, self.save)):
            if path is not None:
                check_target(path, kind)
                check_apart(path, sources, kind)
        # Links may lead in a circle, which Path.resolve does not bear.
        if self.html and self.save and realpath(self.html) == realpath(self.save):
            raise ValueError(
                f"--html and --save take a file each, and both got {shown(self.html)}: name two."
            )


def check_place(noun: str, place: int | None, count: int) -> None:
    """Raise a ValueError where there is no such head, or layer, among `count`.

    >>> check_place("head", 4, 4)
    Traceback (most recent call last):
    ValueError: --head takes a head from 0 to 3, and got 4: there are 4 heads.
    """
    if place is not None and place >= count:
        there = f"is one {noun}" if count == 1 else f"are {count} {noun}s"
        raise ValueError(
            f"--{noun} takes a {noun} from 0 to {count - 1}, and got {place}: there {there}."
        )
