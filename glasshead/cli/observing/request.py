"""Request: the options of `glasshead observe` as they were written."""

from dataclasses import dataclass
from pathlib import Path

from glasshead.cli.explaining.masks import Band, parse_mask
from glasshead.cli.inputs.wording import one_of
from glasshead.cli.observing.options import Options

# By name, so that options are checked before torch is there.
ENGINES = ("auto", "fused", "streaming", "reference")


@dataclass(frozen=True, kw_only=True)
class ObserveRequest(Options):
    """What the user wrote to have one attention observed."""

    text: str | None = None
    vectors: Path | None = None
    mask: str = "none"
    engine: str = "auto"

    def check(self) -> None:
        """Raise where an option is wrong by itself, before torch is imported.

        Errors: a ValueError or an OSError that names the option.
        """
        self.bands()
        self.statistics()
        one_of(self.engine, ENGINES, "--engine")
        if self.layer is not None:
            raise ValueError(
                "--layer takes a layer of a model, which here is none: name the folder of a run, "
                "and add --text FILE."
            )
        self.check_outputs([self.vectors])

    def bands(self) -> tuple[Band, ...]:
        """The mask that is asked for."""
        return parse_mask(self.mask)

    def execute(self) -> None:
        """Observe, write and print."""
        from glasshead.cli.observing.run import run

        run(self)
