"""Request: the options of `glasshead roles` as they were written."""

from dataclasses import dataclass
from os.path import realpath
from pathlib import Path

from glasshead.cli.inputs.extras import check_extra, check_extra_of
from glasshead.cli.inputs.reading import shown
from glasshead.cli.outputs.page_file import Kind, check_apart, check_target
from glasshead.cli.outputs.terminal import check_width

PICTURE = Kind("--png", "the picture", "roles.png")
SCORES = Kind("--json", "the file of scores", "roles.json")
# Half as many bits as a seed of PyTorch may have at most.
_LARGEST_SEED = 2**32


@dataclass(frozen=True, kw_only=True)
class RolesRequest:
    """What the user wrote; the fields are the options of the command."""

    model: str
    text: Path | None = None
    period: int | None = None
    seed: int = 0
    png: Path | None = None
    json: Path | None = None
    width: int | None = None

    @property
    def folder(self) -> Path:
        """The folder of the run, or of the model."""
        return Path(self.model)

    def check(self) -> None:
        """Raise where an option is wrong by itself, before torch is imported.

        Errors: a ValueError or an OSError that names the option.
        """
        if not self.model:
            raise ValueError("MODEL takes the folder of a model, and got nothing: name one.")
        if self.period is not None and self.period < 2:
            raise ValueError(f"--period takes a number of tokens from 2, and got {self.period}.")
        if not 0 <= self.seed <= _LARGEST_SEED:
            raise ValueError(f"--seed takes a number from 0 to 2^32, and got {self.seed}.")
        check_width(self.width)
        self._check_outputs()
        self._check_libraries()

    def execute(self) -> None:
        """Find the roles, write and print.

        Errors: a ValueError, TypeError or OSError in one sentence, before anything is printed.
        """
        from glasshead.cli.finding_roles.run import run

        run(self)

    def _check_outputs(self) -> None:
        from glasshead.cli.observing.runs.texts import text_files

        texts = [] if self.text is None else text_files(self.text)
        own = list(self.folder.iterdir()) if self.folder.is_dir() else []
        for kind, path in ((PICTURE, self.png), (SCORES, self.json)):
            if path is not None:
                check_target(path, kind)
                check_apart(path, (*texts, *own), kind)
        # Links may lead in a circle, which Path.resolve does not bear.
        if self.png and self.json and realpath(self.png) == realpath(self.json):
            raise ValueError(
                f"--png and --json take a file each, and both got {shown(self.png)}: name two."
            )

    def _check_libraries(self) -> None:
        check_extra_of(self.folder, "glasshead roles MODEL")
        if self.png is not None:
            check_extra("train", "glasshead roles --png", ("matplotlib",))
