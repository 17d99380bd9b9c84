"""Columns of tables: found by their names and by what they hold, and checked."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from glasshead.drawing.printable import as_command
from glasshead.message import Message, _
from glasshead.tasks.data.files import ending, existing, shown
from glasshead.tasks.data.headers import NAMES, numbers, plain
from glasshead.tasks.data.tables import TABLES, named, rows_of
from glasshead.tasks.run_settings import AUTO

# Rows by which the columns of a table are distinguished.
_LOOKED_AT = 100
# Labels are of at most so many kinds.
_KINDS = 20
# The text of a table is so many times as long as its other columns.
_LONGER = 2

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Columns:
    """The columns that a task reads.

    Attributes:
        names: Each column by its setting.
        about: A sentence on columns that were found under other names than the usual ones, or "".
    """

    names: Mapping[str, str]
    about: str = ""


def found_columns(files: Iterable[str], columns: Mapping[str, str]) -> Columns:
    r"""Find the columns that settings leave open, in the first table of the files.

    Args:
        files: The files; those that are no tables are passed over.
        columns: The columns, by the setting that names each. "auto" is found by the usual names,
            else by what the columns hold; without a table it is the name of the setting.

    Errors: a ValueError that says which settings to give, where several columns fit, or none; those
    of `rows_of`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "films.csv"
    ...     _ = file.write_text("Yorum;not\niyi bir film;1\nsıkıcı;0\neski bir film;1\n")
    ...     found_columns([str(file)], {"text": "auto", "label": "auto"}).names
    {'text': 'Yorum', 'label': 'not'}
    """
    asked = {name: column for name, column in columns.items() if column != AUTO}
    usual = {name: asked.get(name, name) for name in columns}
    path = next(_tables(files), None)
    if path is None or len(asked) == len(columns):
        return Columns(usual)
    rows = _first_rows(path, asked.values())
    there = [*rows[0]]
    free = [column for column in there if column not in asked.values()]
    # `check_columns` and the reader say so.
    if not {*asked.values()} <= {*there} or len(free) < len(columns) - len(asked):
        return Columns(usual)
    found = _found(rows, [*columns], asked)
    if len(found) < len(columns):
        raise _refusal(path, rows, {**usual, **found}, [*columns.keys() - found.keys()])
    names = {name: found[name] for name in columns}
    return Columns(names, "" if names == usual else _about(names, there))


def check_columns(
    files: Iterable[str],
    columns: Mapping[str, str],
    *,
    settable: bool = True,
    alone: bool = False,
) -> None:
    """Check that tables have the columns that settings name.

    Args:
        files: The files; those that are no tables are passed over.
        columns: The columns, by the setting that names each.
        settable: Whether the settings can be changed; else the files have to be.
        alone: Whether the only column of a table may have any name.

    Errors: a ValueError that says which settings would take the file's own columns; those of
    `rows_of`.
    """
    for path in _tables(files):
        rows = _first_rows(path, columns.values())
        there = list(rows[0])
        lacking = [name for name, column in columns.items() if column not in there]
        free = [column for column in there if column not in columns.values()]
        # The reader says what is wrong with rows that have too few columns.
        if lacking and len(free) >= len(lacking) and not (alone and len(there) == 1):
            raise _refusal(path, rows, columns, lacking, settable=settable)


def _tables(files: Iterable[str]) -> Iterator[Path]:
    return (path for file in files if ending(path := existing(file)) in TABLES)


def _first_rows(path: Path, asked: Collection[str]) -> Rows:
    return [row for _, row in islice(rows_of(path, asked=asked), _LOOKED_AT)]


def _refusal(
    path: Path,
    rows: Rows,
    columns: Mapping[str, str],
    lacking: Sequence[str],
    *,
    settable: bool = True,
) -> ValueError:
    """Return the error for a table without the columns of settings, and which would do."""
    there = [*rows[0]]
    lacking = [name for name in columns if name in lacking]
    missing = named([columns[name] for name in lacking])
    opening = f"{shown(path)} has no column{'s' * (len(lacking) > 1)} {missing}, but {named(there)}"
    if not settable:
        return ValueError(f"{opening}. Name its columns as in the training files.")
    free = [column for column in there if column not in columns.values()]
    taken = {**columns, **_guessed(rows, lacking, free)}
    settings = [
        as_command([f"{name}={column}"])
        for name, column in taken.items()
        if name != column or name in lacking
    ]
    return ValueError(f"{opening}. Choose columns, as in --set {' '.join(settings)}.")


def _about(names: Mapping[str, str], there: Sequence[str]) -> Message:
    taken = as_command([f"{name}={column}" for name, column in names.items()])
    others = " ".join(f"{name}=COLUMN" for name in names)
    sentence = _("Columns: {taken}. To choose others, use --set {others}.")
    if [*there] == numbers(len(there)):
        sentence = _(
            "Columns: {taken}, counted as the table has no header. To choose others, use "
            "--set {others}."
        )
    return Message(sentence, taken=taken, others=others)


def _found(rows: Rows, settings: Sequence[str], asked: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of those settings for which exactly one fits."""
    found = dict(asked)
    may_be = {}
    for name in (name for name in settings if name not in found):
        free = [column for column in rows[0] if column not in found.values()]
        known = [column for column in free if plain(column) in NAMES[name]]
        if name in known:
            known = [name]
        may_be[name] = known
        if len(known) == 1:
            found[name] = known[0]
    free = [column for column in rows[0] if column not in found.values()]
    few = _of_few_kinds(rows, may_be.get("label") or free) if "label" not in found else []
    texts = [name for name in settings if name not in found and name != "label"]
    known = [column for column in free if any(column in may_be[name] for name in texts)]
    others = [column for column in known or free if few != [column]]
    long = _longest(rows, others, len(texts)) if texts else []
    if len(long) == len(texts):
        found.update(zip(texts, long, strict=True))
        few = [column for column in few if column not in long]
    if len(few) == 1:
        found["label"] = few[0]
    return found


def _of_few_kinds(rows: Rows, columns: Sequence[str]) -> list[str]:
    """Return the columns with few values, which repeat."""

    def kinds(column: str) -> int:
        return len({str(row.get(column)) for row in rows})

    most = min(_KINDS, 2 * len(rows) // 3)
    return [column for column in columns if 2 <= kinds(column) <= most]


def _longest(rows: Rows, columns: Sequence[str], count: int) -> list[str]:
    """Return the columns of texts, all if there are `count`, else the much longer ones."""

    def is_text(column: str) -> bool:
        cells = [row.get(column) for row in rows]
        texts = [cell for cell in cells if isinstance(cell, str) and any(map(str.isalpha, cell))]
        return 2 * len(texts) > len(cells) and not all("://" in text for text in texts)

    texts = [column for column in columns if is_text(column)]
    if len(texts) <= count:
        return texts
    lengths = {column: sum(len(str(row.get(column, ""))) for row in rows) for column in texts}
    return [column for column in texts if _LONGER * lengths[column] > max(lengths.values())]


def _guessed(rows: Rows, settings: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """Guess the columns of settings: labels are those of few kinds, texts the longest."""

    def length(column: str) -> int:
        return sum(len(str(row.get(column, ""))) for row in rows)

    def kinds(column: str) -> tuple[bool, int]:
        count = len({str(row.get(column)) for row in rows})
        return count < 2, count

    texts = [name for name in settings if name != "label"]
    longest = sorted(columns, key=length, reverse=True)[: len(texts)]
    guessed = dict(zip(texts, filter(longest.__contains__, columns), strict=True))
    if len(texts) < len(settings):
        guessed["label"] = min((each for each in columns if each not in longest), key=kinds)
    return guessed
