"""Vectors as JSON: an object, or a list of pairs or of objects."""

import json
import re
from collections.abc import Iterator
from typing import Any

from glasshead.cli.inputs.row import Row
from glasshead.cli.inputs.wording import quoted

# A whole number of no more digits is also a float.
_MOST_DIGITS = 300


def _whole(written: str) -> float:
    """A whole number as it is; as a float, where Python refuses to read so many digits."""
    return int(written) if len(written) <= _MOST_DIGITS else float(written)


_DECODER = json.JSONDecoder(parse_int=_whole)
_BETWEEN = re.compile(r"[\s,:]*")


def json_rows(text: str) -> Iterator[Row]:
    r"""The rows of a JSON text, in order.

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
        raise ValueError(
            f", line {error.lineno}: malformed JSON ({error.msg}, column {error.colno}): "
            f"check brackets, commas and quotes there."
        ) from error
    except RecursionError as error:
        raise ValueError(
            ", line 1: expected lists of numbers, and got too many brackets."
        ) from error
    if not isinstance(whole, dict | list):
        raise ValueError(f", line 1: {_form(whole)}")  # noqa: TRY004 - as of any malformed file
    yield from _of_object(text) if isinstance(whole, dict) else _of_list(text)


def _of_object(text: str) -> Iterator[Row]:
    values, seen = _values(text), set()
    for (line, token), (_, numbers) in zip(values, values, strict=True):
        if token in seen:
            raise ValueError(
                f", line {line}: {quoted(token)} stands twice, and an object has each name once: "
                f'write a list of pairs, as in [["sun", [0.1, 0.2]], …].'
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
                raise ValueError(f", line {line}: {_form(item)}")


def _values(text: str) -> Iterator[tuple[int, Any]]:
    """The line and value of each item of the outermost list, or of each name and each value.

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
        raise ValueError(f", line {line}: {_form(numbers)}")  # noqa: TRY004 - as above
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(  # noqa: TRY004 - as above
                f", line {line}: expected a number for {quoted(token)}, and got "
                f"{json.dumps(number, ensure_ascii=False)[:40]}: write it as in 0.34."
            )
    return [float(number) for number in numbers]


def _form(got: Any) -> str:
    written = json.dumps(got, ensure_ascii=False)
    shortened = written if len(written) <= 40 else f"{written[:39]}…"
    return (
        'expected {"token": [numbers], …}, [["token", [numbers]], …] or '
        f'[{{"token": …, "vector": [numbers]}}, …], and got {shortened}: write it in one of them.'
    )
