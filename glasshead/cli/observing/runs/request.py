"""Request: the options of `glasshead observe MODEL --text FILE` as they were written."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from glasshead.cli.inputs.extras import check_extra
from glasshead.cli.inputs.reading import shown
from glasshead.cli.observing.options import Options
from glasshead.cli.observing.runs.launch import started_together
from glasshead.cli.observing.statistics import DEFAULT, STATISTICS, Asked, parse_statistics

# It names keys, and those of one piece are not those of the next.
_OF_ONE_TEXT = "top-k"


@dataclass(frozen=True, kw_only=True)
class ObserveRunRequest(Options):
    """What the user wrote to have a model observed; the last three belong to one attention."""

    run: str | None
    text: Path
    vectors: Path | None = None
    mask: str | None = None
    engine: str | None = None
    length: int | str | None = None
    truncate: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the run, or of the model."""
        return Path(self.run or "")

    @cached_property
    def of_huggingface(self) -> bool:
        """Whether the folder is that of a model of Hugging Face."""
        from glasshead.tasks.run_folder import is_of_huggingface

        return is_of_huggingface(self.folder)

    def check(self) -> None:
        """Raise where an option is wrong by itself, before torch is imported.

        Of several processes that torchrun has started, one may find wrong what others do not; they
        check it in `execute`, where they can tell each other.

        Errors: a ValueError or an OSError that names the option.
        """
        if not started_together():
            self.check_options()

    def check_options(self) -> None:
        """The same in any case."""
        if not self.run:
            raise ValueError(
                "--text takes the folder of a run whose model reads it: name it, as in glasshead "
                f"observe RUN --text {shown(self.text)}."
            )
        for option, why in self._of_one_attention():
            raise ValueError(f"{option} does not go with --text, as {why}: leave one out.")
        self.statistics()
        if self.truncate and self.length != "whole":
            raise ValueError(
                "--truncate cuts texts that are read whole: add --length whole, or leave it out."
            )
        if self.head is not None and self.layer is None:
            raise ValueError(
                "--head takes the layer that the head is in, too: add --layer N, or leave it out."
            )
        if self.layer is not None and self.layer < 0:
            raise ValueError(f"--layer takes a layer, counted from 0, and got {self.layer}.")
        self.check_outputs([*self._texts(), *self._files_of_the_model()])
        if self.of_huggingface:
            check_extra("hf", "glasshead observe MODEL")
        else:
            check_extra("train", "glasshead observe RUN")

    def statistics(self) -> tuple[Asked, ...]:
        """The statistics that are asked for, or else those of one attention that a model has too.

        Errors: as of `parse_statistics`, and a ValueError for what only one text has.
        """
        asked = parse_statistics(
            self.stat or [name for name in DEFAULT if not name.startswith(_OF_ONE_TEXT)]
        )
        for one in asked:
            if one.form is STATISTICS[_OF_ONE_TEXT]:
                others = ", ".join(name for name in STATISTICS if name != _OF_ONE_TEXT)
                raise ValueError(
                    f"--stat {one.written} names the keys of one text, and a model reads many "
                    f"pieces: take {others}."
                )
        return asked

    def execute(self) -> None:
        """Observe, write and print."""
        from glasshead.cli.observing.runs.run import run

        run(self)

    def _of_one_attention(self) -> Iterator[tuple[str, str]]:
        """The options that are given in vain, and why."""
        if self.vectors is not None:
            yield "--vectors", "the model makes its own vectors"
        if self.mask is not None:
            yield "--mask", "the model has its own mask"
        if self.engine is not None:
            yield "--engine", "the model chooses its own engine"

    def _texts(self) -> list[Path]:
        from glasshead.cli.observing.runs.texts import text_files

        return text_files(self.text)

    def _files_of_the_model(self) -> list[Path]:
        from glasshead.tasks.run_folder import RunFolder

        own = list(self.folder.iterdir()) if self.folder.is_dir() else []
        return [*own, RunFolder(self.folder).checkpoint]
