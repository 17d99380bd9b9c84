"""Vectors as a table: a token and its numbers a row."""

import csv
import itertools
import re
from collections.abc import Iterator
from contextlib import suppress

from glasshead.cli.inputs.row import Row
from glasshead.cli.inputs.wording import quoted
from glasshead.cli.outputs.terminal import remark

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+([eE][+-]?[0-9]+)?")
_DELIMITERS = ("\t", ";", ",", " ")
_SAMPLE = 2**16  # characters

Record = tuple[int, list[str]]


def table_rows(text: str) -> Iterator[Row]:
    r"""The rows of a table whose cells are parted by tabs, semicolons, commas or single spaces.

    A first row of names that are no numbers is a header. So is that of pandas, which has an empty
    cell and counts the columns from 0, and is remarked upon; and that of word2vec, which has the
    number of rows and of columns. Cells may be quoted. Where commas do not part the cells, a number
    may have one for its point.

    Errors: a ValueError that opens with the line, where a cell is no number or a quote is open.

    >>> [(row.token, row.numbers) for row in table_rows('token,x,y\n",",0.5,2\n')]
    [(',', [0.5, 2.0])]
    """
    delimiter = _delimiter(text)
    records = _records(text, delimiter)
    first = next(records, None)
    if first is None:
        return
    following = list(itertools.islice(records, 1))
    opening = [] if _is_header(first[1], following, delimiter) else [first]
    for record in itertools.chain(opening, following, records):
        yield _row(record, delimiter)


def _records(text: str, delimiter: str) -> Iterator[Record]:
    """Each line's number and cells; blank lines are left out."""
    # Tables that are parted by spaces, such as GloVe's, have quotes among their tokens.
    quoting = csv.QUOTE_NONE if delimiter == " " else csv.QUOTE_MINIMAL
    lines = (line.group() for line in _LINE.finditer(text))
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    try:
        for cells in reader:
            filled = [cell for cell in cells if cell.strip()]
            if filled:
                yield reader.line_num, filled if delimiter == " " else cells
    except csv.Error as error:
        if "field limit" in str(error):
            raise ValueError(
                f", line {reader.line_num}: expected cells of at most {csv.field_size_limit():,} "
                f"characters, and got a longer one: close its quotes, or shorten it."
            ) from error
        raise ValueError(
            f", line {reader.line_num}: the row cannot be read ({error}): check its quotes."
        ) from error


def _delimiter(text: str) -> str:
    """The one by which most of the first rows are a token and numbers."""

    def agreement(delimiter: str) -> tuple[int, int]:
        rows = []
        # The sample may end inside a quote, and another delimiter may leave one open.
        with suppress(ValueError):
            sample = itertools.islice(_records(text[:_SAMPLE], delimiter), 20)
            rows.extend(cells for _, cells in sample if len(cells) > 1)
        right = sum(all(_number(c, delimiter) is not None for c in cells[1:]) for cells in rows)
        # Where no row is right, the error should speak of cells; but spaces part any prose.
        return right, 0 if delimiter == " " else len(rows)

    return max(_DELIMITERS, key=agreement)


def _is_header(cells: list[str], following: list[Record], delimiter: str) -> bool:
    names = [cell.strip() for cell in cells[1:]]
    # A comma at the end of every line gives the header one empty name more.
    names = names[:-1] if len(names) > 1 and not names[-1] else names
    if names and all(name and _number(name, delimiter) is None for name in names):
        return True
    if not following:
        return False
    token, *numbers = following[0][1]
    if delimiter == " " and len(names) == 1:
        return len(numbers) > 1 and [cells[0].isdecimal(), names[0]] == [True, str(len(numbers))]
    counted = names == [str(place) for place in range(len(names))]
    if counted and not cells[0].strip() and token.strip():
        remark("Line 1 of the vectors has no token and counts the columns: it is taken as header.")
        return True
    return False


def _row(record: Record, delimiter: str) -> Row:
    line, (token, *cells) = record
    numbers = []
    for cell in cells:
        number = _number(cell, delimiter)
        if number is None:
            if cell is cells[-1] and not cell.strip() and len(cells) > 1:
                raise ValueError(
                    f", line {line}: expected a number for {quoted(token)}, and got an empty cell "
                    f"at the end: remove the {_named(delimiter)[2:]} at the end, or add a number."
                )
            got = quoted(cell.strip()) if cell.strip() else "an empty cell"
            raise ValueError(
                f", line {line}: expected a number for {quoted(token)}, and got {got}: "
                f"write it as in 0.34, or put quotes around a token with {_named(delimiter)} in it."
            )
        numbers.append(number)
    return Row(line, token, numbers)


def _number(cell: str, delimiter: str) -> float | None:
    """The number that a cell holds, or None; Python's own 1_000 is none of a table."""
    if "_" in cell:
        return None
    with suppress(ValueError):
        return float(cell)
    written = cell.strip().replace("−", "-")
    if delimiter != "," and _DECIMAL_COMMA.fullmatch(written):
        written = written.replace(",", ".")
    with suppress(ValueError):
        return float(written)
    return None


def _named(delimiter: str) -> str:
    return {"\t": "a tab", ";": "a semicolon", ",": "a comma", " ": "a space"}[delimiter]
