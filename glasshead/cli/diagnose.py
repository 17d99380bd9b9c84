"""The command `diagnose`: what a mask looks like, and what is wrong with it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from glasshead.cli.inputs.files import input_file, output_file
from glasshead.cli.inputs.messages import one_of, whole_number
from glasshead.cli.output import check_apart, check_target, check_width

CONVENTIONS = ("attend", "hidden", "additive", "tokenizer")


@dataclass(frozen=True, kw_only=True)
class DiagnoseRequest:
    """What the user wrote; the fields are the options of the command."""

    file: str
    tensor: str | None = None
    queries: int | None = None
    keys: int | None = None
    offset: int | None = None
    convention: str | None = None
    html: Path | None = None
    width: int | None = None

    def check(self) -> None:
        """Raise where an option is wrong by itself, before torch is imported.

        Errors: a ValueError or an OSError that names the option.
        """
        for option, count in (("--queries", self.queries), ("--keys", self.keys)):
            if count is not None and not 1 <= count <= 2**31:
                raise ValueError(
                    f"{option} takes a whole number from 1 to 2^31, and got {count}: leave it out "
                    "for that of the mask."
                )
        if self.offset is not None and abs(self.offset) > 2**31:
            raise ValueError(
                f"--offset takes a whole number of at most 2^31, and got {self.offset}: leave it "
                "out for keys - queries."
            )
        if self.convention is not None:
            one_of(self.convention, CONVENTIONS, "--convention")
        check_width(self.width)
        if self.html is not None:
            check_target(self.html)
            check_apart(self.html, (self.place()[0],))

    def place(self) -> tuple[Path, str | None]:
        """The file, and the tensor in it that is named, if any.

        Errors: a ValueError where the name is empty, or two tensors are named.
        """
        path = input_file(self.file, "FILE")
        if path is None:
            raise ValueError("FILE takes a file, and got nothing: name one.")
        name, colon, inner = self.file.rpartition(":")
        if not colon or not name.lower().endswith(".safetensors") or path.exists():
            return path, self.tensor
        if self.tensor not in (None, inner):
            raise ValueError(
                f"--tensor names {self.tensor}, and FILE names {inner}: leave one of them out."
            )
        return Path(name), inner

    def execute(self) -> None:
        """Diagnose the mask, write the page if one is asked for, and print the report.

        Errors: a ValueError, TypeError or OSError in one sentence, before anything is printed.
        """
        from glasshead.cli.diagnosing import run

        run(self)


def diagnose(
    file: Annotated[
        str,
        Argument(
            metavar="FILE",
            show_default=False,
            help="The mask: .npy, .npz with one array, .safetensors, .json (nested lists), or "
            "a table of 0, 1, true, false, other numbers or -inf (.csv, .tsv, .txt); - reads a "
            "table or JSON from standard input.",
        ),
    ],
    *,
    tensor: Annotated[
        str | None,
        Option(
            metavar="NAME",
            show_default=False,
            help="Which tensor of a safetensors file that has several; FILE:NAME says it too.",
        ),
    ] = None,
    queries: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            help="How many queries the attention will have. If not given, those of the mask.",
        ),
    ] = None,
    keys: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            help="How many keys it will have. If not given, those of the mask.",
        ),
    ] = None,
    offset: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            help="The position of the first query among the keys. If not given, keys - queries.",
        ),
    ] = None,
    convention: Annotated[
        str | None,
        Option(
            metavar="C",
            show_default=False,
            help="What the numbers mean: attend (1 = may attend), hidden (1 = hidden), additive or "
            "tokenizer. If not given, it is guessed.",
        ),
    ] = None,
    html: Annotated[
        str | None,
        Option(
            metavar="FILE", help="Also write one self-contained page; folders are made as needed."
        ),
    ] = None,
    width: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            help="How many columns the text takes. If not given, those of the terminal.",
        ),
    ] = None,
) -> None:
    """Tell what an attention mask of any library means, and what is wrong with it.

    The exit code is 0 for a healthy mask, 1 where there are errors or warnings, 2 for bad input.
    """
    request = DiagnoseRequest(
        file=file,
        tensor=tensor,
        queries=queries,
        keys=keys,
        offset=offset,
        convention=convention,
        html=output_file(html, "--html"),
        width=width,
    )
    request.check()
    request.execute()
