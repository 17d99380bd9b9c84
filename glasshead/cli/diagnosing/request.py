"""Request: the options of `glasshead diagnose` as they were written."""

from dataclasses import dataclass
from pathlib import Path

from glasshead.cli.inputs.naming import input_file
from glasshead.cli.inputs.wording import one_of
from glasshead.cli.outputs.page_file import check_apart, check_target
from glasshead.cli.outputs.terminal import check_width

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
        from glasshead.cli.diagnosing.run import run

        run(self)
