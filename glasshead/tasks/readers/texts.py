"""Texts to read: strings, files, folders, globs and iterators, read lazily, part by part."""

import glob
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from glasshead.message import Message
from glasshead.tasks.data.files import Allowance, packing, shown
from glasshead.tasks.data.texts import TextPart, text_files, text_parts

FileName = str | os.PathLike[str]
# Longer strings are no names of files.
_LONGEST_NAME = 1024
# Names of files that are written out in the name of the texts.
_NAMES = 8


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts to read, of which only a part is in memory.

    Attributes:
        parts: Iterates over the texts, part by part.
        name: Their name in errors and results.
        remedy: What to do if there is none in them.
        lasting: Whether they can be iterated over again.
        size: Number of their characters, roughly; None if it is unknown.
    """

    parts: Callable[[], Iterator[TextPart]]
    name: str
    remedy: str
    lasting: bool = True
    size: int | None = None


def texts_of_rows(rows: list[str]) -> Texts:
    """Return texts that are in memory.

    >>> [*texts_of_rows(["the cat"]).parts()]
    [TextPart(text='the cat', last=True)]
    """
    name = "1 text" if len(rows) == 1 else f"{len(rows)} texts"
    size = sum(map(len, rows))
    return Texts(lambda: map(_whole, rows), name, Message("Give some with a word in it"), size=size)


def _whole(text: str) -> TextPart:
    return TextPart(text, last=True)


def load_texts(source: FileName | Iterable[FileName], column: str | None = None) -> Texts:
    """Open texts: strings are texts, and each `Path` is a file of texts, or a folder of such files.

    Nothing but the names of the files is in memory. An iterator of strings is read once.

    Args:
        source: One or several; a `Path` may be a pattern, such as `Path("corpus/*.jsonl")`.
        column: The column of tables that holds the text; None: "text", or the only one.

    Errors: a TypeError for anything else; a ValueError for a string that names a file, or a pattern
    that none matches. While the texts are read, an OSError or ValueError if a file cannot be.

    >>> load_texts(["One text.", "Another."]).name
    '2 texts'
    """
    if isinstance(source, str) and len(source) < _LONGEST_NAME and os.path.exists(source):  # noqa: PTH110 - a text may be no path
        raise ValueError(
            f"texts must be texts, or the Path of a file, got {source!r}, which names a file. "
            f"Pass Path({source!r})."
        )
    if isinstance(source, str | os.PathLike):
        return _lasting([source], column)
    if not isinstance(source, Iterable):
        raise TypeError(
            "texts must be one text or several, as strings or Paths of files, got "
            f"{type(source).__name__}. Pass a list of them."
        )
    if not isinstance(source, Iterator):
        return _lasting([*source], column)
    first = [*islice(source, 2)]
    if len(first) < 2 or isinstance(first[0], os.PathLike):
        return _lasting([*first, *source], column)
    given = chain(first, source)
    name, remedy = "the texts of an iterator", Message("Give some with a word in it")
    return Texts(lambda: _parts(given, column), name, remedy, lasting=False)


def _parts(given: Iterable[FileName], column: str | None) -> Iterator[TextPart]:
    """Iterate over the texts of strings and Paths.

    Errors: a TypeError for anything else, and those of the files.
    """
    # A line, or a file, is in memory no longer than it is read.
    allowance = Allowance(default=math.inf)
    for one in given:
        _check(one)
        if isinstance(one, str):
            yield _whole(one)
            continue
        for file in files_of(Path(one)):
            yield from text_parts(file, column, allowance)


def _lasting(given: list[FileName], column: str | None) -> Texts:
    """Return texts that can be iterated over again."""
    if not given:
        raise ValueError("texts must have at least one text, or the Path of a file, got none.")
    for one in given:
        _check(one)
    texts = [one for one in given if isinstance(one, str)]
    if len(texts) == len(given):
        return texts_of_rows(texts)
    names = [shown(Path(one)) for one in given if not isinstance(one, str)]
    more = len(names) - _NAMES
    name = ", ".join(names[:_NAMES]) + (f" and {more:,} more" if more > 0 else "")
    if texts:
        name = f"{texts_of_rows(texts).name}, {name}"
    # A folder that gets another file while it is read is noticed.
    size = _size([one if isinstance(one, str) else files_of(Path(one)) for one in given])
    return Texts(
        lambda: _parts(given, column), name, Message("Name a file that has some"), size=size
    )


def files_of(path: Path) -> list[Path]:
    """List a file itself, the text files below a folder, or those that a pattern matches.

    Errors: a ValueError if a folder has none, or nothing matches the pattern.
    """
    if not glob.has_magic(str(path)) or path.exists():
        return text_files(path)
    found = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207 - of any root
    if not found:
        raise ValueError(
            Message(
                "{path} matches no file. Check the pattern, or the folder that it begins in.",
                path=shown(path),
            )
        )
    return [file for one in found for file in text_files(one)]


def _size(sources: list[str | list[Path]]) -> int | None:
    """Return the number of bytes, which is roughly that of characters; None of packed files."""
    size = 0
    for one in sources:
        if isinstance(one, str):
            size += len(one)
        elif any(map(packing, one)):
            return None
        else:
            size += sum(file.stat().st_size for file in one if file.is_file())
    return size


def _check(one: object) -> None:
    if not isinstance(one, str | os.PathLike):
        raise TypeError(f"texts must be strings, or Paths of files, got {type(one).__name__}.")
