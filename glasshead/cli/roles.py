"""The command `roles`: what each head of a model looks at."""

from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.files import input_file, output_file, shown
from glasshead.cli.inputs.messages import check_extra, check_extra_of, whole_number
from glasshead.cli.output import OUTPUT, Kind, Width, check_apart, check_target, check_width

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
        from glasshead.cli.finding_roles import run

        run(self)

    def _check_outputs(self) -> None:
        from glasshead.cli.text_chunks import text_files

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


_SUBJECT = "What is read"


def roles(
    model: Annotated[
        str,
        Argument(
            metavar="MODEL",
            show_default=False,
            help="The folder of a run of train write, or of a text model of Hugging Face, with its "
            "config.json, its tokenizer and its weights as safetensors.",
        ),
    ],
    *,
    text: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=_SUBJECT,
            help="A text that MODEL reads, too: plain, the texts of a .jsonl, .csv or .tsv, or a "
            "folder of such files.",
        ),
    ] = None,
    period: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            rich_help_panel=_SUBJECT,
            help="How many random tokens are repeated. If not given, 25, or as many as fit twice "
            "into what MODEL reads at once.",
        ),
    ] = None,
    seed: Annotated[
        int,
        Option(
            metavar="N",
            parser=whole_number,
            rich_help_panel=_SUBJECT,
            help="Which random tokens.",
        ),
    ] = 0,
    png: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Also draw all scores, layers × heads; folders are made as needed.",
        ),
    ] = None,
    json: Annotated[
        str | None,
        Option(metavar="FILE", rich_help_panel=OUTPUT, help="Also write all scores, as JSON."),
    ] = None,
    width: Width = None,
) -> None:
    """Find what each head of a model does, on repeated random tokens and on a text."""
    request = RolesRequest(
        model=model,
        text=input_file(text, "--text"),
        period=period,
        seed=seed,
        png=output_file(png, "--png"),
        json=output_file(json, "--json"),
        width=width,
    )
    request.check()
    request.execute()
