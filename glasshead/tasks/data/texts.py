"""Whole documents, and lines that belong to other lines."""

import os
from collections.abc import Sequence
from pathlib import Path

from glasshead.tasks.data.files import (
    Allowance,
    FileName,
    ending,
    existing,
    lines_of,
    read_text,
    shown,
)
from glasshead.tasks.data.tables import TABLES, named, read_columns

PLAIN = (".txt", ".text", ".md")
TEXT_COLUMN = "text"


def read_texts(paths: FileName | Sequence[FileName], field: str | None = None) -> list[str]:
    r"""The texts of some files, in their order.

    A plain file (.txt, .text, .md) is one text, of exactly its characters; a table (.jsonl, .csv,
    .tsv) has one in each row. Each may be packed (.gz, .xz).

    Args:
        paths: A file, or several.
        field: The column of the tables that holds the text; "text", or the only one, if not given.

    Errors: an OSError where a file is not there or cannot be read; a ValueError that names the
    file, and the line, where it does not hold texts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rhyme.txt"
    ...     _ = file.write_text("Twinkle, twinkle,\nlittle star.\n")
    ...     read_texts(file)
    ['Twinkle, twinkle,\nlittle star.\n']
    """
    names = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not names:
        raise ValueError("expected at least one file of texts, and got none: name one.")
    allowance = Allowance()
    return [text for name in names for text in _texts(existing(name), field, allowance)]


def read_lines(name: FileName, allowance: Allowance | None = None) -> list[str]:
    r"""The lines of a text file, without their ends.

    Only "\n" and "\r\n" end a line, so that line i of one file stays beside line i of another. The
    name may end as it likes, as in train.de; .gz and .xz are unpacked.

    Args:
        name: The file.
        allowance: How much may be read, with other files; None: of this one alone.

    Errors: as for `read_texts`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "train.de"
    ...     _ = file.write_text("Guten Morgen\n\nGute Nacht\n")
    ...     read_lines(file)
    ['Guten Morgen', '', 'Gute Nacht']
    """
    return [
        line.removesuffix("\n").removesuffix("\r") for line in lines_of(existing(name), allowance)
    ]


def _texts(path: Path, field: str | None, allowance: Allowance) -> list[str]:
    if ending(path) in PLAIN:
        return [read_text(path, allowance)]
    if ending(path) not in TABLES:
        raise ValueError(
            f"{shown(path)} ends in none of {', '.join([*PLAIN, *TABLES])}, with .gz or .xz where "
            f"it is packed: rename it to what it is."
        )
    (texts,) = read_columns(
        path,
        lambda there: [_text_column(path, there, field)],
        texts_only=True,
        allowance=allowance,
    )
    return texts


def _text_column(path: Path, there: Sequence[str], field: str | None) -> str:
    if field is not None:
        return field
    if TEXT_COLUMN in there:
        return TEXT_COLUMN
    if len(there) == 1:
        return there[0]
    raise ValueError(
        f"{shown(path)} has no column {TEXT_COLUMN!r}, but {named(there)}: say which of them "
        f"holds the text."
    )
