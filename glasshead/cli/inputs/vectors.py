"""Files of vectors: a token and its numbers a row, as a table or as JSON."""

import csv
import itertools
import json
import math
import re
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from glasshead.cli.inputs.files import Row, read_text, shown
from glasshead.cli.inputs.messages import malformed_json, print_stderr
from glasshead.explanation.choices import quoted
from glasshead.explanation.embeddings import Embeddings, composed
from glasshead.message import Message, _

# A whole number of no more digits is also a float.
_MOST_DIGITS = 300


def _whole(written: str) -> float:
    """Parse a whole number; as a float, where Python refuses that many digits."""
    return int(written) if len(written) <= _MOST_DIGITS else float(written)


_DECODER = json.JSONDecoder(parse_int=_whole)
_BETWEEN = re.compile(r"[\s,:]*")


def json_rows(text: str) -> Iterator[Row]:
    r"""Yield the rows of a JSON text, in order.

    It is `{"sun": [0.29, 0.54], …}`, `[["sun", [0.29, 0.54]], …]` or
    `[{"token": "sun", "vector": [0.29, 0.54]}, …]`.

    Errors: a ValueError that opens with the line, where the JSON is malformed, of another form, or
    an object has a token twice.

    >>> list(json_rows('[["sun",\n [0.29, 0.54]]]'))
    [Row(line=1, token='sun', numbers=[0.29, 0.54])]
    """
    try:
        whole = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(malformed_json(error)) from error
    except RecursionError as error:
        raise ValueError(
            Message(", line 1: expected lists of numbers, got too many brackets.")
        ) from error
    if not isinstance(whole, dict | list):
        raise ValueError(Message(", line 1: {form}", form=_form(whole)))  # noqa: TRY004 - as of any malformed file
    yield from _of_object(text) if isinstance(whole, dict) else _of_list(text)


def _of_object(text: str) -> Iterator[Row]:
    values, seen = _values(text), set()
    for (line, token), (_line, numbers) in zip(values, values, strict=True):
        if token in seen:
            raise ValueError(
                Message(
                    ", line {line}: {token} stands twice, but an object has each name once. Write "
                    'a list of pairs, as in [["sun", [0.1, 0.2]], …].',
                    line=line,
                    token=quoted(token),
                )
            )
        seen.add(token)
        yield Row(line, token, _numbers(line, token, numbers))


def _of_list(text: str) -> Iterator[Row]:
    for line, item in _values(text):
        match item:
            case [str(token), list(numbers)]:
                yield Row(line, token, _numbers(line, token, numbers))
            case {"token": str(token), "vector": list(numbers), **others} if not others:
                yield Row(line, token, _numbers(line, token, numbers))
            case _:
                raise ValueError(Message(", line {line}: {form}", line=line, form=_form(item)))


def _values(text: str) -> Iterator[tuple[int, Any]]:
    """Yield line and value of each item of the outermost list, or of each name and value.

    The text is JSON, as was checked; read item by item, it gives the lines that the parser of the
    whole does not tell.
    """
    place = _after_gap(text, len(text) - len(text.lstrip()) + 1)
    line, counted = 1, 0
    while text[place] not in "]}":
        line += text.count("\n", counted, place)
        counted = place
        value, end = _DECODER.raw_decode(text, place)
        yield line, value
        place = _after_gap(text, end)


def _after_gap(text: str, place: int) -> int:
    gap = _BETWEEN.match(text, place)
    return gap.end() if gap else place


def _numbers(line: int, token: str, numbers: Any) -> list[float]:
    if not isinstance(numbers, list):
        raise ValueError(Message(", line {line}: {form}", line=line, form=_form(numbers)))  # noqa: TRY004 - as above
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(  # noqa: TRY004 - as above
                Message(
                    ", line {line}: expected a number for {token}, got {value}. Write it as in "
                    "0.34.",
                    line=line,
                    token=quoted(token),
                    value=json.dumps(number, ensure_ascii=False)[:40],
                )
            )
    return [float(number) for number in numbers]


def _form(got: Any) -> str:
    written = json.dumps(got, ensure_ascii=False)
    shortened = written if len(written) <= 40 else f"{written[:39]}…"
    forms = '{"token": […], …}, [["token", […]], …] or [{"token": …, "vector": […]}, …]'
    return Message(
        "expected {forms}, got {got}. Write it in one of them.", forms=forms, got=shortened
    )


_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+([eE][+-]?[0-9]+)?")
_DELIMITERS = ("\t", ";", ",", " ")
_SAMPLE = 2**16  # characters

Record = tuple[int, list[str]]


def table_rows(text: str) -> Iterator[Row]:
    r"""Yield the rows of a table with cells separated by tabs, semicolons, commas or spaces.

    A first row of names that are no numbers is a header. So is that of pandas, which has an empty
    cell and counts the columns from 0, and is remarked upon; and that of word2vec, which has the
    number of rows and of columns. Cells may be quoted. Where commas do not part the cells, a number
    may have one for its point.

    Errors: a ValueError that opens with the line, if a cell is no number or a quote is open.

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
    """Yield each line's number and cells; blank lines are left out."""
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
                Message(
                    ", line {line_num}: expected cells of at most {field_size_limit:,} "
                    "characters, got a longer one. Close its quotes, or shorten it.",
                    line_num=reader.line_num,
                    field_size_limit=csv.field_size_limit(),
                )
            ) from error
        raise ValueError(
            Message(
                ", line {line_num}: the row cannot be read ({error}). Check its quotes.",
                line_num=reader.line_num,
                error=error,
            )
        ) from error


def _delimiter(text: str) -> str:
    """Guess the delimiter by which most of the first rows are a token and numbers."""

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
        print_stderr(
            "Line 1 of the vectors has no token and counts the columns: it is read as the header."
        )
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
                    Message(
                        ", line {line}: expected a number for {token}, got an empty cell at the "
                        "end. Remove the delimiter there ({named}), or add a number.",
                        line=line,
                        token=quoted(token),
                        named=_named(delimiter),
                    )
                )
            got = quoted(cell.strip()) if cell.strip() else "an empty cell"
            raise ValueError(
                Message(
                    ", line {line}: expected a number for {token}, got {got}. Write it as in "
                    "0.34, or put quotes around a token with {named} in it.",
                    line=line,
                    token=quoted(token),
                    got=got,
                    named=_named(delimiter),
                )
            )
        numbers.append(number)
    return Row(line, token, numbers)


def _number(cell: str, delimiter: str) -> float | None:
    """Parse a cell as a number, or None; Python's own 1_000 is none of a table."""
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


def _named(delimiter: str) -> Message:
    return Message(_DELIMITER_NAMES[delimiter])


_DELIMITER_NAMES = {"\t": _("a tab"), ";": _("a semicolon"), ",": _("a comma"), " ": _("a space")}


_OPENS_WITH_BRACKET = re.compile(r"\s*[\[{]")
# In a table, [ and { may be tokens; what opens like this is JSON, whatever the file is called.
_OPENS_AS_JSON_ALONE = re.compile(r'\s*(?:\{\s*"|\[\s*[\[{]\s*")')


def read_vectors(path: Path, *, most: int | None = None) -> Embeddings:
    """Read tokens in order, with their vectors in float64.

    A file that is called .json is JSON, and so is one that opens with a bracket; one that is called
    .csv, .tsv or .txt, only where no table would open so. Any other is a table.

    Args:
        path: The file.
        most: How many rows there may be; None: any number.

    Errors: an OSError if the file cannot be read; a ValueError with the file and the line where
    it is malformed, ragged, empty, too long, or has what is no finite number.
    """
    text = read_text(path)
    rows = json_rows(text) if _is_json(path, text) else table_rows(text)
    try:
        return _embeddings(_checked(rows), most)
    except ValueError as error:
        raise ValueError(Message("{path}{error}", path=shown(path), error=error)) from error


def _is_json(path: Path, text: str) -> bool:
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        return _OPENS_AS_JSON_ALONE.match(text) is not None
    return path.suffix.lower() == ".json" or _OPENS_WITH_BRACKET.match(text) is not None


def _checked(rows: Iterable[Row]) -> Iterator[Row]:
    """Check that each row has a token and as many finite numbers as the first."""
    first = None
    for row in rows:
        first = first or row
        where = Message(", line {line}: ", line=row.line)
        if not row.token:
            raise ValueError(
                Message("{where}expected a token, got an empty one. Give it a name.", where=where)
            )
        if not row.numbers:
            raise ValueError(
                Message(
                    "{where}expected numbers after {token}, got none. Add them.",
                    where=where,
                    token=quoted(row.token),
                )
            )
        if len(row.numbers) != len(first.numbers):
            raise ValueError(
                Message(
                    "{where}expected a vector of dimension {count} as on line {line}, got "
                    "{count2} for {token}. Give every token a vector of one dimension.",
                    where=where,
                    count=len(first.numbers),
                    line=first.line,
                    count2=len(row.numbers),
                    token=quoted(row.token),
                )
            )
        for number in row.numbers:
            if not math.isfinite(number):
                raise ValueError(
                    Message(
                        "{where}expected finite numbers, got {number} for {token}. Correct the "
                        "number or omit the token.",
                        where=where,
                        number=number,
                        token=quoted(row.token),
                    )
                )
        yield row


def _embeddings(rows: Iterable[Row], most: int | None) -> Embeddings:
    # One flat array takes 8 bytes a number, where lists of floats would take five times as many.
    tokens, numbers = [], array("d")
    for row in rows:
        if len(tokens) == most:
            raise ValueError(
                Message(
                    " has more than {most:,} tokens, too many to explain in full. Give at most "
                    "{most:,}, or a TEXT whose words are looked up there.",
                    most=most,
                )
            )
        tokens.append(composed(row.token))
        numbers.extend(row.numbers)
    if not tokens:
        raise ValueError(Message(" has no vectors. Give it a token and its numbers per row."))
    vectors = torch.frombuffer(numbers, dtype=torch.float64).reshape(len(tokens), -1)
    return Embeddings(tuple(tokens), vectors)
