"""Sentences with a vector for each token: made up, from a table or JSON, or the worked example."""

import csv
import itertools
import json
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from glasshead.cli.inputs.files import Row, read_text, shown
from glasshead.cli.inputs.messages import listed, print_stderr, quoted
from glasshead.drawing.printable import nearest
from glasshead.explanation.embeddings import MADE_UP_DIM, Embeddings, composed, split
from glasshead.explanation.explain_trace import Sentence, VectorSource
from glasshead.ladder.worked_example import WorkedExample, example_of, worked_example

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
                f", line {reader.line_num}: expected cells of at most {csv.field_size_limit():,} "
                f"characters, and got a longer one: close its quotes, or shorten it."
            ) from error
        raise ValueError(
            f", line {reader.line_num}: the row cannot be read ({error}): check its quotes."
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
            "Line 1 of the vectors has no token and counts the columns: it is taken as header."
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


def _named(delimiter: str) -> str:
    return {"\t": "a tab", ";": "a semicolon", ",": "a comma", " ": "a space"}[delimiter]


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
    """Check that each row has a token and as many finite numbers as the first."""
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


_MAX_NUMBERS = 2**24


def sentence_of(
    text: str | None,
    vectors: Path | None,
    *,
    dim: int | None,
    seed: int,
    most: int | None = None,
    example: WorkedExample | None = None,
) -> Sentence:
    """Read a sentence and its vectors from the options of the command line.

    Args:
        text: A sentence; None: the rows of `vectors`, or else the worked example of the texts.
        vectors: A file of vectors; None: they are made up.
        example: A worked example; by default that whose sentence the text is, if any.
        dim: Dimension of made-up vectors; 4 if not given.
        seed: Random seed of made-up vectors.
        most: Maximum number of tokens, where it is known before the file is read.

    Errors: a ValueError where the text is empty, a word has no vector, or the file is malformed or
    has more rows than can be explained; an OSError where it cannot be read.
    """
    if example is None and vectors is None and (name := example_of(text)):
        example = worked_example(name)
    if example is not None:
        return Sentence.of_the_texts(example)
    words = None if text is None else _words(text)
    if vectors is not None:
        known = read_vectors(vectors, most=most if words is None else None)
        return Sentence(
            known if words is None else _looked_up(known, words, vectors), VectorSource.FILE
        )
    return Sentence(_made_up(words or [], dim or MADE_UP_DIM, seed), VectorSource.MADE_UP)


def _words(text: str) -> list[str]:
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise ValueError("TEXT takes UTF-8, and got other bytes: set the terminal to UTF-8.")
    words = split(composed(text))
    if not words:
        raise ValueError(
            f"TEXT takes a sentence, and got {quoted(text)}, which has no word: write one, as in "
            f'"Hello shiny sun!", or leave TEXT out.'
        )
    return words


def _made_up(words: list[str], dim: int, seed: int) -> Embeddings:
    if len(words) * dim > _MAX_NUMBERS:
        raise ValueError(
            f"{len(words):,} tokens with {dim:,} made-up numbers each are too many: give at most "
            f"{_MAX_NUMBERS // dim:,} tokens, or a smaller --dim."
        )
    return Embeddings.made_up(words, dim=dim, seed=seed)


def _looked_up(known: Embeddings, words: list[str], path: Path) -> Embeddings:
    have = set(known.tokens)
    missing = [word for word in dict.fromkeys(words) if word not in have]
    if missing:
        alike = nearest(missing[0], known.tokens)
        hint = f"did you mean {quoted(alike)}? Or add" if alike else "add"
        rows = "a row for it" if len(missing) == 1 else "a row for each"
        raise ValueError(
            f"{shown(path)} has no vector for {listed(map(quoted, missing))}: {hint} {rows}."
        )
    try:
        return known.look_up(words)
    except ValueError as error:
        raise ValueError(f"{shown(path)}: {error}") from error


_POSITION = re.compile(r"#([0-9]{1,9})")
# What is meant for a position and is none: #-1, #1.5, # 2.
_LIKE_A_POSITION = re.compile(r"#[-+ ]*[0-9][0-9.,]*")


def query_position(tokens: Sequence[str], asked: str) -> int:
    """Return the position of the query among the tokens, from 0.

    Args:
        tokens: The sentence.
        asked: A token, or "#2" for the second one.

    Errors: a ValueError where the token is not there or stands more than once, or the position is
    outside the sentence.

    >>> sentence = ["the", "sun", "and", "the", "moon", "!"]
    >>> query_position(sentence, "sun"), query_position(sentence, "#4")
    (1, 3)
    """
    position = _POSITION.fullmatch(asked)
    if position:
        return _at(tokens, int(position[1]))
    places = [place for place, token in enumerate(tokens) if token == asked]
    if not places and _LIKE_A_POSITION.fullmatch(asked):
        raise _outside(tokens, asked)
    if not places:
        raise ValueError(f"{quoted(asked)} is not in the sentence: {_hint(tokens, asked)}.")
    if len(places) > 1:
        named = listed(f"#{place + 1}" for place in places)
        raise ValueError(
            f"{quoted(asked)} stands {len(places)} times in the sentence, at {named}: "
            f"ask for one of them, as in --query '#{places[0] + 1}'."
        )
    return places[0]


def _at(tokens: Sequence[str], position: int) -> int:
    if not 1 <= position <= len(tokens):
        raise _outside(tokens, f"#{position}")
    return position - 1


def _outside(tokens: Sequence[str], asked: str) -> ValueError:
    return ValueError(
        f"positions go from #1 to #{len(tokens)}, and --query got {asked}: the sentence is "
        f"{listed(map(quoted, tokens))}."
    )


def _hint(tokens: Sequence[str], asked: str) -> str:
    parts = split(asked)
    if len(parts) > 1 and all(part in tokens for part in parts):
        return f"it is {len(parts)} tokens here, so ask for one of {listed(map(quoted, parts))}"
    if asked.isdecimal():
        return f"for a position, write --query '#{asked}'"
    alike = nearest(asked, tokens)
    question = f"did you mean {quoted(alike)}? It" if alike else "it"
    return f"{question} takes one of {listed(map(quoted, dict.fromkeys(tokens)))}"
