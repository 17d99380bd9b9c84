"""Rows of examples: the columns of a table that a task asks for."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from glasshead.drawing.printable import printable
from glasshead.tasks.reading.files import FileName, ending, existing, shown
from glasshead.tasks.reading.row_by_row import Row, kind, rows_of
from glasshead.tasks.reading.through_datasets import loaded

TABLES = (".jsonl", ".csv", ".tsv")

# Which columns to read, of those that are there.
Choice = Callable[[Sequence[str]], Sequence[str]]


def read_rows(name: FileName, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a table (.jsonl, .csv, .tsv; also .gz and .xz), of which only some columns.

    Every value is a text: a whole number, true and false of JSON become what they are written as,
    so that a label is the same from each kind of file.

    Args:
        name: The file. A .csv and a .tsv have a header.
        columns: The names of the columns.

    Errors: an OSError where the file is not there or cannot be read; a ValueError that names the
    file, and the line of a row that is broken or lacks a column.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "reviews.jsonl"
    ...     _ = file.write_text('{"text": "Fine.", "label": 1, "by": "me"}')
    ...     read_rows(file, ["text", "label"])
    [{'text': 'Fine.', 'label': '1'}]
    """
    path = existing(name)
    if ending(path) not in TABLES:
        raise ValueError(
            f"{shown(path)} ends in none of {', '.join(TABLES)}, with .gz or .xz where it is "
            f"packed: rename it to what it is."
        )
    values = read_columns(path, lambda _: columns)
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def read_columns(path: Path, choose: Choice, *, texts_only: bool = False) -> list[list[str]]:
    """The chosen columns of a table: read by `datasets`, and row by row where that is not enough.

    Args:
        path: The file.
        choose: Takes the names that are there, and gives those to read.
        texts_only: Whether a number is an error, too.

    Errors: as for `read_rows`.
    """
    table = loaded(path)
    if table is not None:
        chosen = choose(table.column_names)
        if set(chosen) <= set(table.column_names):
            columns = [_whole(table.column(name), texts_only) for name in chosen]
            if None not in columns:
                return columns  # type: ignore[return-value]
    rows = rows_of(path)
    there = list(dict.fromkeys(name for _, row in rows for name in row))
    return [_column(path, rows, there, name, texts_only) for name in choose(there)]


def named(names: Sequence[str], most: int = 12) -> str:
    """The names of columns, as errors show them.

    >>> named(["id", "text"])
    "'id', 'text'"
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(printable(name)) for name in names[:most]) + more


def _whole(column: Any, texts_only: bool) -> list[str] | None:
    """The values of a column without holes as texts; None where it is another."""
    from pyarrow import types

    if column.null_count:
        return None
    if types.is_string(column.type) or types.is_large_string(column.type):
        return column.to_pylist()
    if texts_only or not (types.is_integer(column.type) or types.is_boolean(column.type)):
        return None
    return [_written(value) for value in column.to_pylist()]


def _column(
    path: Path, rows: Sequence[Row], there: Sequence[str], name: str, texts_only: bool
) -> list[str]:
    if name not in there:
        raise ValueError(
            f"{shown(path)} has no column {name!r}, but {named(there)}: name one of these."
        )
    values = []
    for line, row in rows:
        place = f"{shown(path)}, line {line}"
        if name not in row:
            raise ValueError(f"{place}: expected {name!r}, and the row has none: add it.")
        value = row[name]
        if not (isinstance(value, str) or (isinstance(value, int) and not texts_only)):
            wanted = "a text" if texts_only else "a text or a whole number"
            raise ValueError(
                f"{place}: expected {wanted} as {name!r}, and got {kind(value)}: correct it."
            )
        values.append(_written(value))
        if not _is_unicode(values[-1]):
            raise ValueError(
                f"{place}: expected whole characters in {name!r}, and got half of one, such as "
                f"\\ud83d: correct it."
            )
    return values


def _written(value: str | int) -> str:
    """A text as it is, another value as JSON writes it.

    >>> _written("0"), _written(0), _written(True)
    ('0', '0', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
