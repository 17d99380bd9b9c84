"""Tables read row by row: the careful way, which knows the line of each row."""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glasshead.tasks.reading.files import ending, read_text, shown
from glasshead.tasks.reading.through_datasets import DELIMITERS

# A row, and the line on which it begins.
Row = tuple[int, dict[str, Any]]

# As long as a cell may be everywhere: more than a C long holds on some systems.
_LONGEST = 2**31 - 1


def rows_of(path: Path) -> list[Row]:
    """The rows of a .jsonl, .csv or .tsv file.

    Errors: a ValueError that names the line of what is no row.
    """
    text = read_text(path)
    rows = list(_of_json(path, text) if ending(path) == ".jsonl" else _of_csv(path, text))
    if not rows:
        raise ValueError(f"{shown(path)} has no row but its header: add some.")
    return rows


def _of_json(path: Path, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{shown(path)}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            raise ValueError(
                f"{place}: expected a JSON object, and got what is no JSON ({reason}): correct it."
            ) from error
        if not isinstance(row, dict):
            raise ValueError(  # noqa: TRY004 - the file is wrong, not the call
                f'{place}: expected a JSON object, as in {{"text": "…"}}, and got '
                f"{kind(row)}: write one object a line."
            )
        yield number, row


def _of_csv(path: Path, text: str) -> Iterator[Row]:
    with _cells_of_any_length():
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=DELIMITERS[ending(path)], strict=True
        )
        header, begin = None, 1
        try:
            for cells in reader:
                begin, end = reader.line_num + 1, begin
                if len(cells) <= 1 and not "".join(cells).strip():
                    continue
                if header is None:
                    header = _header(path, cells)
                    continue
                if len(cells) != len(header):
                    raise ValueError(
                        f"{shown(path)}, line {end}: expected {len(header)} cells, as in the "
                        f"header, and got {len(cells)}: correct the row, or quote its cells."
                    )
                yield end, dict(zip(header, cells, strict=True))
        except csv.Error as error:
            raise ValueError(
                f"{shown(path)}, line {begin}: expected cells that are quoted whole or not at all, "
                f"and got what is not ({error}): write each quote inside a cell twice."
            ) from error


def _header(path: Path, names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"{shown(path)}, line 1: expected a name for each column, and got {name!r} twice: "
                f"rename one."
            )
    return names


@contextmanager
def _cells_of_any_length() -> Iterator[None]:
    limit = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def kind(value: Any) -> str:
    """What a value of JSON is called.

    >>> kind(None), kind([1]), kind(2.5)
    ('null', 'a list', 'a fraction')
    """
    kinds = {list: "a list", dict: "an object", str: "a text", float: "a fraction", int: "a number"}
    return (kinds | {bool: "true or false", type(None): "null"})[type(value)]
