"""Vectors file: tokens and their numbers, from a table or from JSON."""

import math
import re
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from glasshead.cli.inputs.reading import read_text, shown
from glasshead.cli.inputs.row import Row
from glasshead.cli.inputs.vectors_json import json_rows
from glasshead.cli.inputs.vectors_table import table_rows
from glasshead.cli.inputs.wording import quoted
from glasshead.explanation.embeddings import Embeddings, composed

_OPENS_WITH_BRACKET = re.compile(r"\s*[\[{]")
# In a table, [ and { may be tokens; what opens like this is JSON, whatever the file is called.
_OPENS_AS_JSON_ALONE = re.compile(r'\s*(?:\{\s*"|\[\s*[\[{]\s*")')


def read_vectors(path: Path, *, most: int | None = None) -> Embeddings:
    """The tokens of a file in order, with their vectors in float64.

    A file that is called .json is JSON, and so is one that opens with a bracket; one that is called
    .csv, .tsv or .txt, only where no table would open so. Any other is a table.

    Args:
        path: The file.
        most: How many rows there may be; None: any number.

    Errors: an OSError where the file cannot be read; a ValueError with the file and the line where
    it is malformed, ragged, empty, too long, or has what is no finite number.
    """
    text = read_text(path)
    rows = json_rows(text) if _is_json(path, text) else table_rows(text)
    try:
        return _embeddings(_checked(rows), most)
    except ValueError as error:
        raise ValueError(f"{shown(path)}{error}") from error


def _is_json(path: Path, text: str) -> bool:
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        return _OPENS_AS_JSON_ALONE.match(text) is not None
    return path.suffix.lower() == ".json" or _OPENS_WITH_BRACKET.match(text) is not None


def _checked(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, each of which has a token and as many finite numbers as the first."""
    first = None
    for row in rows:
        first = first or row
        where = f", line {row.line}: "
        if not row.token:
            raise ValueError(f"{where}expected a token, and got an empty one: give it a name.")
        if not row.numbers:
            raise ValueError(
                f"{where}expected numbers after {quoted(row.token)}, and got none: add them."
            )
        if len(row.numbers) != len(first.numbers):
            numbers = "number" if len(first.numbers) == 1 else "numbers"
            raise ValueError(
                f"{where}expected {len(first.numbers)} {numbers} as on line {first.line}, and got "
                f"{len(row.numbers)} for {quoted(row.token)}: give every token a vector of one "
                f"width."
            )
        for number in row.numbers:
            if not math.isfinite(number):
                raise ValueError(
                    f"{where}expected finite numbers, and got {number} for {quoted(row.token)}: "
                    f"correct the number or leave the token out."
                )
        yield row


def _embeddings(rows: Iterable[Row], most: int | None) -> Embeddings:
    # One flat array takes 8 bytes a number, where lists of floats would take five times as many.
    tokens, numbers = [], array("d")
    for row in rows:
        if len(tokens) == most:
            raise ValueError(
                f": more than {most:,} tokens are too many to explain in full: give at most "
                f"{most:,}, or a TEXT whose words are looked up there."
            )
        tokens.append(composed(row.token))
        numbers.extend(row.numbers)
    if not tokens:
        raise ValueError(" has no vectors: give it a token and its numbers a row.")
    vectors = torch.frombuffer(numbers, dtype=torch.float64).reshape(len(tokens), -1)
    return Embeddings(tuple(tokens), vectors)
