"""Reading texts and lines from the user's files, plain ones and tables."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from glasshead.message import Message
from glasshead.tasks.data.files import (
    Allowance,
    FileName,
    blocks_of_text,
    ending,
    existing,
    lines_of,
    read_text,
    shown,
)
from glasshead.tasks.data.tables import TABLES, cells_of, check_is_table, named

PLAIN = (".txt", ".text", ".md")
TEXT_COLUMN = "text"


def read_texts(paths: FileName | Sequence[FileName], field: str | None = None) -> list[str]:
    r"""Read the texts of files, in order.

    A plain file (.txt, .text, .md) is one text, of exactly its characters; a table (.jsonl, .csv,
    .tsv) has one in each row. Each may be packed (.gz, .xz).

    Args:
        paths: One file or several.
        field: The column of tables that holds the text; by default "text", or the only one.

    Errors: an OSError if a file does not exist or cannot be read; a ValueError that names the
    file, and the line, if it does not hold texts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rhyme.txt"
    ...     _ = file.write_text("Twinkle, twinkle,\nlittle star.\n")
    ...     read_texts(file)
    ['Twinkle, twinkle,\nlittle star.\n']
    """
    names = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not names:
        raise ValueError("expected at least one file of texts, got none.")
    allowance = Allowance()
    return [text for name in names for text in _texts(existing(name), field, allowance)]


class TextPart(NamedTuple):
    """A part of a text, as it is read from a file.

    Attributes:
        text: The characters.
        last: Whether the text ends with them.
    """

    text: str
    last: bool


def text_parts(path: Path, field: str | None, allowance: Allowance) -> Iterator[TextPart]:
    """Iterate over the texts of one file, holding a row of a table or a block of a plain file.

    Args and errors: as of `read_texts`.
    """
    path = existing(path)
    if ending(path) in PLAIN:
        yield from (TextPart(block, last=False) for block in blocks_of_text(path, allowance))
        yield TextPart("", last=True)
        return
    for (text,) in _texts_of_table(path, field, allowance):
        yield TextPart(text, last=True)


def text_files(source: Path) -> list[Path]:
    """List a file itself, or every text file below a folder, sorted by name.

    Errors: a ValueError if a folder has none.
    """
    if not source.is_dir():
        return [source]
    below = (file for file in sorted(source.rglob("*")) if not _hidden(file.relative_to(source)))
    found = [file for file in below if file.is_file() and ending(file) in (*PLAIN, *TABLES)]
    if not found:
        raise ValueError(
            Message(
                "{path} has no texts in it. Name a folder with files that end in {endings}.",
                path=shown(source),
                endings=", ".join((*PLAIN, *TABLES)),
            )
        )
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def read_lines(name: FileName, allowance: Allowance | None = None) -> list[str]:
    r"""Read the lines of a text file, without their line ends.

    Only "\n" and "\r\n" end a line, so that the lines of parallel files correspond. The file may
    have any suffix, as in train.de; .gz and .xz are unpacked.

    Args:
        name: The file.
        allowance: Budget shared with other files; None: one for this file.

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
    return [text for (text,) in _texts_of_table(path, field, allowance)]


def _texts_of_table(path: Path, field: str | None, allowance: Allowance) -> Iterator[list[str]]:
    check_is_table(path, [*PLAIN, *TABLES])
    yield from cells_of(
        path,
        lambda there: [_text_column(path, there, field)],
        asked=[] if field is None else [field],
        texts_only=True,
        allowance=allowance,
    )


def _text_column(path: Path, there: Sequence[str], field: str | None) -> str:
    if field is not None:
        return field
    if TEXT_COLUMN in there:
        return TEXT_COLUMN
    if len(there) == 1:
        return there[0]
    raise ValueError(
        Message(
            "{path} has no column {column}, but {names}. Choose the column that holds the text, "
            "or call it {column}.",
            path=shown(path),
            column=repr(TEXT_COLUMN),
            names=named(there),
        )
    )
