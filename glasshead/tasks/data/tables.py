"""Reading the rows of tables: JSON lines, and cells between commas or tabs."""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from glasshead.drawing.printable import printable
from glasshead.message import Message, _
from glasshead.tasks.data.files import (
    LONGEST_LINE,
    Allowance,
    FileName,
    ending,
    existing,
    lines_of,
    shown,
    too_long,
)
from glasshead.tasks.data.headers import has_header, numbers

DELIMITERS = {".csv": ",", ".tsv": "\t"}
# What else stands between cells: semicolons where a comma is the decimal point.
_BETWEEN = (",", ";", "\t", "|")
# Rows by which it is found.
_LOOKED_AT = 100
# A first line of Excel's, which names it.
_NAMED = re.compile(r"\ufeff?sep=(.)\r?\n?")
TABLES = (".jsonl", *DELIMITERS)

# The line on which a row begins, and the row.
Row = tuple[int, dict[str, Any]]
# Selects columns from those that the table has.
Choice = Callable[[Sequence[str]], Sequence[str]]


def read_rows(
    name: FileName, columns: Sequence[str], allowance: Allowance | None = None
) -> list[tuple[str, ...]]:
    """Read columns of a table (.jsonl, .csv, .tsv; also .gz and .xz), row by row.

    Every value is a text: whole numbers, true and false of JSON become their JSON text, so that
    labels do not depend on the kind of file.

    Args:
        name: The file.
        columns: Names of the columns, in the order of the returned rows; numbers from 1 in a .csv
            or .tsv without a header.
        allowance: Budget shared with other files; None: one for this file.

    Errors: an OSError if the file does not exist or cannot be read; a ValueError that names the
    file, and the line of a row that is malformed or lacks a column.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "reviews.jsonl"
    ...     _ = file.write_text('{"text": "Fine.", "label": 1, "by": "me"}')
    ...     read_rows(file, ["text", "label"])
    [('Fine.', '1')]
    """
    path = existing(name)
    check_is_table(path, TABLES)
    values = read_columns(path, lambda _: columns, asked=columns, allowance=allowance)
    return list(zip(*values, strict=True))


def read_columns(
    path: Path,
    choose: Choice,
    *,
    asked: Collection[str] = (),
    texts_only: bool = False,
    allowance: Allowance | None = None,
) -> list[list[str]]:
    """Read selected columns of a table.

    Args:
        path: The file.
        choose: Selects from the column names of the first row; called again where the first row
            has one column and a later one has others.
        asked: As of `rows_of`.
        texts_only: Whether numbers are refused.
        allowance: Budget shared with other files; None: one for this file.

    Errors: as for `read_rows`.
    """
    rows = cells_of(path, choose, asked=asked, texts_only=texts_only, allowance=allowance)
    return [list(column) for column in zip(*rows, strict=True)]


def cells_of(
    path: Path,
    choose: Choice,
    *,
    asked: Collection[str] = (),
    texts_only: bool = False,
    allowance: Allowance | None = None,
) -> Iterator[list[str]]:
    """Iterate over the rows of a table, with the cells of selected columns, holding one at a time.

    Args and errors: as of `read_columns`.
    """
    rows = rows_of(path, allowance, asked)
    first = next(rows)
    there = [*first[1]]
    chosen = [*choose(there)]
    for name in chosen:
        if name not in there and there:
            raise ValueError(
                Message(
                    "{path} has no column {name}, but {names}. Name one of these.",
                    path=shown(path),
                    name=repr(name),
                    names=named(there),
                )
            )
    for line, row in chain([first], rows):
        if len(there) == 1 and not row.keys() <= {*there}:
            there = list(dict.fromkeys([*there, *row]))
            if chosen != [*choose(there)]:
                raise _lacking(path, first[0], choose(there)[0])
        yield [_text(path, line, row, name, texts_only) for name in chosen]


def rows_of(
    path: Path, allowance: Allowance | None = None, asked: Collection[str] = ()
) -> Iterator[Row]:
    """Iterate over the rows of a .jsonl, .csv or .tsv file, holding one at a time.

    Args:
        path: The file.
        allowance: Budget shared with other files; None: one for this file.
        asked: Columns that are asked for, by which a header is known; none: by its look.
            Without a header, columns are numbered from 1.

    Errors: a ValueError that names the line of a malformed row, or if there is no row.
    """
    allowance = allowance or Allowance()
    is_json = ending(path) == ".jsonl"
    rows = _of_json(path, allowance) if is_json else _of_csv(path, allowance, asked)
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise ValueError(Message("{path} has no row but its header. Add some.", path=shown(path)))


def check_is_table(path: Path, endings: Iterable[str]) -> None:
    """Raise a ValueError if a file is no table, with the endings that it may have instead."""
    if ending(path) not in TABLES:
        raise ValueError(
            Message(
                "{path} must have a name that ends in one of {endings}, with .gz or .xz if it is "
                "packed. Rename it to match its format.",
                path=shown(path),
                endings=", ".join(endings),
            )
        )


def named(names: Sequence[str], most: int = 12) -> str:
    """Format column names for error messages.

    >>> named(["id", "text"])
    "'id', 'text'"
    """
    first = Message.joined(", ", [repr(printable(name[:80])) for name in names[:most]])
    more = len(names) - most
    return first if more <= 0 else Message("{words} and {more:,} more", words=first, more=more)


_KINDS = {
    list: _("a list"),
    dict: _("an object"),
    str: _("a text"),
    float: _("a fraction"),
    int: _("a number"),
    bool: _("true or false"),
    type(None): "null",
}


def kind(value: Any) -> str:
    """Return the name of a JSON value's type for error messages.

    >>> kind(None), kind([1]), kind(2.5)
    ('null', 'a list', 'a fraction')
    """
    return Message(_KINDS[type(value)])


def _of_json(path: Path, allowance: Allowance) -> Iterator[Row]:
    for number, line in enumerate(lines_of(path, allowance), start=1):
        if line.isspace():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                Message(
                    "{path}, line {number}: expected a JSON object, got invalid JSON ({reason}). "
                    "Correct it.",
                    path=shown(path),
                    number=number,
                    reason=_reason(error),
                )
            ) from error
        if not isinstance(row, dict):
            raise ValueError(  # noqa: TRY004 - the file is wrong, not the call
                Message(
                    '{path}, line {number}: expected a JSON object, as in {{"text": "…"}}, got '
                    "{got}. Write one object a line.",
                    path=shown(path),
                    number=number,
                    got=kind(row),
                )
            )
        yield number, row


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "nested too deeply" if isinstance(error, RecursionError) else "a number too long"


def _of_csv(path: Path, allowance: Allowance, asked: Collection[str]) -> Iterator[Row]:
    begin, taken = 1, 0

    arriving = lines_of(path, allowance, newline="")
    some = [*islice(arriving, _LOOKED_AT)]

    def lines() -> Iterator[str]:
        nonlocal taken
        for line in chain(some, arriving):
            taken += len(line)
            if taken > LONGEST_LINE:
                raise too_long(path, begin)
            yield line

    with _cells_of_any_length():
        excel = _NAMED.fullmatch(some[0]) if some else None
        if excel:
            del some[0]
        default = DELIMITERS[ending(path)]
        between = excel[1] if excel else _delimiter(some, default)
        quoting = _quoting(some, between)
        looked_at = csv.reader(some, delimiter=between, quoting=quoting)
        is_named = has_header([cells for cells in looked_at if not _is_blank(cells)], asked)
        reader = csv.reader(lines(), delimiter=between, quoting=quoting, strict=True)
        header = None
        try:
            for cells in reader:
                begin, end = reader.line_num + 1 + bool(excel), begin
                taken = 0
                if _is_blank(cells):
                    continue
                if header is None:
                    header = _header(path, cells) if is_named else numbers(len(cells))
                    if is_named:
                        continue
                _check_width(path, end, header, cells)
                yield end, dict(zip(header, cells, strict=True))
        except csv.Error as error:
            raise ValueError(
                Message(
                    "{path}, line {begin}: expected cells that are quoted whole or not at all, "
                    "got others ({error}). Put the cell in quotes, and write each quote inside it "
                    "twice.",
                    path=shown(path),
                    begin=begin,
                    error=error,
                )
            ) from error


def _is_blank(cells: Sequence[str]) -> bool:
    return len(cells) <= 1 and not "".join(cells).strip()


def _check_width(path: Path, end: int, header: Sequence[str], cells: Sequence[str]) -> None:
    if len(cells) != len(header):
        raise ValueError(
            Message(
                "{path}, line {end}: expected {count} cells, as in the first row, got {count2}. "
                "Correct the row, or quote its cells.",
                path=shown(path),
                end=end,
                count=len(header),
                count2=len(cells),
            )
        )


def _delimiter(lines: Sequence[str], default: str) -> str:
    r"""Return what stands between the cells of lines: it splits the header, and most rows like it.

    >>> _delimiter(["text;label\n", "a film, a fine one;good\n"], ",")
    ';'
    """

    def agreeing(delimiter: str) -> tuple[float, bool]:
        counts = [len(cells) for cells in csv.reader(lines, delimiter=delimiter) if cells]
        whole = bool(counts) and counts[0] > 1
        return whole * counts.count(counts[0]) / len(counts) if whole else 0, delimiter == default

    return max((default, *_BETWEEN), key=agreeing)


def _quoting(lines: Sequence[str], delimiter: str) -> Literal[0, 3]:
    """Return how the csv module reads quotes; files with tabs often have them as letters."""
    if delimiter == "\t":
        try:
            # The last row may go on after these lines.
            for _ in csv.reader(lines, delimiter=delimiter, strict=True):
                pass
        except csv.Error as error:
            if "unexpected end" not in str(error):
                return csv.QUOTE_NONE
    return csv.QUOTE_MINIMAL


def _header(path: Path, names: list[str]) -> list[str]:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(
                Message(
                    "{path}, line 1: expected a name for each column, got {name} twice. Rename "
                    "one.",
                    path=shown(path),
                    name=repr(printable(name[:80])),
                )
            )
    return names


@contextmanager
def _cells_of_any_length() -> Iterator[None]:
    # A row is no longer than a line may be.
    limit = csv.field_size_limit(LONGEST_LINE)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _text(path: Path, line: int, row: dict[str, Any], name: str, texts_only: bool) -> str:
    if name not in row:
        raise _lacking(path, line, name)
    value = row[name]
    if not (isinstance(value, str) or (isinstance(value, int) and not texts_only)):
        wanted = Message("a text") if texts_only else Message("a text or a whole number")
        raise ValueError(
            Message(
                "{path}, line {line}: expected {wanted} as {name}, got {got}. Correct it.",
                path=shown(path),
                line=line,
                wanted=wanted,
                name=repr(name),
                got=kind(value),
            )
        )
    text = _written(value)
    if not _is_unicode(text):
        raise ValueError(
            Message(
                "{path}, line {line}: expected whole characters in {name}, got half of one, such "
                "as \\ud83d. Correct it.",
                path=shown(path),
                line=line,
                name=repr(name),
            )
        )
    return text


def _lacking(path: Path, line: int, name: str) -> ValueError:
    return ValueError(
        f"{shown(path)}, line {line}: expected {name!r}, got a row without it. Add it."
    )


def _written(value: str | int) -> str:
    """Return a text as it is, and another value as JSON text.

    >>> _written("0"), _written(0), _written(True)
    ('0', '0', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
