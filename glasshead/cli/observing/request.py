"""Request: the options of `glasshead observe` as they were written."""

from dataclasses import dataclass
from os.path import realpath
from pathlib import Path

from glasshead.cli.explaining.masks import Band, parse_mask
from glasshead.cli.inputs.reading import shown
from glasshead.cli.inputs.wording import one_of
from glasshead.cli.observing.statistics import Asked, parse_statistics
from glasshead.cli.outputs.page_file import OBSERVATION, PAGE, check_apart, check_target
from glasshead.cli.outputs.terminal import check_width

# By name, so that options are checked before torch is there.
ENGINES = ("auto", "fused", "streaming", "reference")


@dataclass(frozen=True, kw_only=True)
class ObserveRequest:
    """What the user wrote; the fields are the options of the command."""

    text: str | None = None
    vectors: Path | None = None
    mask: str = "none"
    stat: tuple[str, ...] = ()
    head: int | None = None
    engine: str = "auto"
    save: Path | None = None
    html: Path | None = None
    width: int | None = None

    def check(self) -> None:
        """Raise where an option is wrong by itself, before torch is imported.

        Errors: a ValueError or an OSError that names the option.
        """
        self.bands()
        self.statistics()
        one_of(self.engine, ENGINES, "--engine")
        if self.head is not None and self.head < 0:
            raise ValueError(f"--head takes a head, counted from 0, and got {self.head}.")
        check_width(self.width)
        for kind, path in ((PAGE, self.html), (OBSERVATION, self.save)):
            if path is not None:
                check_target(path, kind)
                check_apart(path, (self.vectors,), kind)
        # Links may lead in a circle, which Path.resolve does not bear.
        if self.html and self.save and realpath(self.html) == realpath(self.save):
            raise ValueError(
                f"--html and --save take a file each, and both got {shown(self.html)}: name two."
            )

    def bands(self) -> tuple[Band, ...]:
        """The mask that is asked for."""
        return parse_mask(self.mask)

    def statistics(self) -> tuple[Asked, ...]:
        """The statistics that are asked for; none where the choice is ours."""
        return parse_statistics(self.stat)
