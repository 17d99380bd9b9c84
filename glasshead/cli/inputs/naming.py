"""Naming: the files that options name, before anything is read."""

from pathlib import Path

STANDARD_INPUT = Path("-")


def input_file(written: str | None, option: str) -> Path | None:
    """The file that an option reads: `STANDARD_INPUT` for -, None where none is given.

    Errors: a ValueError where the name is empty.

    >>> input_file("-", "--vectors") == STANDARD_INPUT
    True
    """
    if written is None:
        return None
    _check_given(written, option)
    path = Path(written)
    # ./- is a file of that name.
    return path.absolute() if path == STANDARD_INPUT and written != "-" else path


def output_folder(written: str, option: str) -> Path:
    """The folder that an option writes into; it need not be there.

    Errors: a ValueError where the name is empty; an OSError where it is a file.

    >>> output_folder("", "--folder")
    Traceback (most recent call last):
    ValueError: --folder takes a folder, and got nothing: name one, or leave it out.
    """
    if not written.strip():
        raise ValueError(f"{option} takes a folder, and got nothing: name one, or leave it out.")
    path = Path(written)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{option} takes a folder, and {written} is a file: name another.")
    return path


def output_file(written: str | None, option: str) -> Path | None:
    """The file that an option writes; None where none is given.

    Errors: a ValueError where the name is empty, that of a folder, or stands for standard output.

    >>> output_file("new/", "--html")
    Traceback (most recent call last):
    ValueError: --html takes a file to write, and new/ is a folder: name a file in it.
    """
    if written is None:
        return None
    _check_given(written, option)
    if written == "-":
        raise ValueError(
            f"{option} takes a file to write, and - is standard output, which has the text: name "
            f"a file, as in page.html."
        )
    if written.endswith("/"):
        raise ValueError(
            f"{option} takes a file to write, and {written} is a folder: name a file in it."
        )
    return Path(written)


def _check_given(written: str, option: str) -> None:
    if not written:
        raise ValueError(f"{option} takes a file, and got nothing: name one, or leave it out.")
