"""Mask text: rows of numbers as a table, or nested lists as JSON."""

import json
import re
from typing import Any

import numpy as np

from glasshead.cli.inputs.malformed import Malformed
from glasshead.cli.inputs.wording import quoted

_WORDS = {"true": True, "false": False}
_SEPARATOR = re.compile(r"\s*[,;\t]\s*|\s+")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def table_mask(text: str) -> list[np.ndarray]:
    r"""The rows of a table whose cells are parted by commas, semicolons, tabs or spaces.

    Blank lines, and what follows a #, are left out.

    Errors: a Malformed that opens with the line, where a cell is no number or a row is shorter or
    longer than the first.

    >>> [row.tolist() for row in table_mask("1,0\n1,1\n")]
    [[1, 0], [1, 1]]
    """
    rows: list[np.ndarray] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.partition("#")[0].strip().rstrip(",;")
        if not cells:
            continue
        row = np.array([_number(cell, number) for cell in _SEPARATOR.split(cells)])
        if rows and len(row) != len(rows[0]):
            raise Malformed(
                f", line {number}: expected {len(rows[0])} numbers as on line {first}, and got "
                f"{len(row)}: fill up the shorter rows."
            )
        first = first or number
        rows.append(row)
    if not rows:
        raise Malformed(" has no mask: give it a row of numbers a query.")
    return rows


def json_mask(text: str) -> list[Any]:
    """Nested lists of numbers, true and false; -Infinity and "-inf" are −∞.

    Errors: a Malformed that says the line where the JSON is malformed, or what is no number.

    >>> json_mask('[[0, "-inf"], [0, 0]]')
    [[0, -inf], [0, 0]]
    """
    try:
        whole = json.loads(text)
        return _lists(whole)
    except json.JSONDecodeError as error:
        raise Malformed(
            f", line {error.lineno}: malformed JSON ({error.msg}, column {error.colno}): check "
            "brackets, commas and quotes there."
        ) from error
    except RecursionError as error:
        raise Malformed(": expected lists of numbers, and got too many brackets.") from error
    except Malformed:
        raise
    except ValueError as error:
        raise Malformed(
            ": expected numbers of at most 4,300 digits, and got a longer one."
        ) from error


def _lists(value: Any) -> list[Any]:
    if not isinstance(value, list):
        written = json.dumps(value, ensure_ascii=False)[:40]
        raise Malformed(
            f": expected nested lists of numbers, as in [[1, 0], [1, 1]], and got {written}."
        )
    return [_lists(item) if isinstance(item, list) else _of_json(item) for item in value]


def _of_json(item: Any) -> float | bool:
    if isinstance(item, str):
        return _number(item, None)
    if not isinstance(item, bool | int | float):
        return _lists(item)  # type: ignore[return-value]
    return item if isinstance(item, bool) or abs(item) < 2**62 else float(item)


def _number(cell: str, line: int | None) -> float | bool:
    word = cell.strip().strip('"').lower().replace("−", "-").replace("∞", "inf")
    if word in _WORDS:
        return _WORDS[word]
    if _WHOLE.fullmatch(word):
        return int(word)
    try:
        if "_" not in word:
            return float(word)
    except ValueError:
        pass
    where = "" if line is None else f", line {line}"
    got = quoted(cell) if cell else "an empty cell"
    raise Malformed(
        f"{where}: expected a number, true, false or -inf, and got {got}: write a row of them a "
        "query."
    )
