"""Labelled texts: from tables, each with what it is."""

from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path

from glasshead.models.config import closest
from glasshead.tasks.reading import read_rows
from glasshead.tasks.reading.files import Allowance, shown
from glasshead.tasks.reading.rows import rows_of

# A text, and its label.
Labelled = tuple[str, str]


def read_labelled(
    files: Sequence[str],
    text: str = "text",
    label: str = "label",
    known: Collection[str] | None = None,
) -> list[Labelled]:
    r"""The texts of tables (.jsonl, .csv, .tsv; also .gz and .xz) with their labels.

    Args:
        files: Their names.
        text: The column that holds the text.
        label: The column that holds the label; a number is the text that it is written as.
        known: The labels that there may be; None: any.

    Errors: an OSError where a file is not there or cannot be read; a ValueError that names the
    file, and the line of a row that is broken, or whose label is not known.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "reviews.csv"
    ...     _ = file.write_text("text,label\nNot bad at all.,good\n")
    ...     read_labelled([str(file)])
    [('Not bad at all.', 'good')]
    """
    labelled, allowance = [], Allowance()
    for file in files:
        rows: list[Labelled] = read_rows(file, [text, label], allowance)  # type: ignore[assignment]
        if known is not None:
            _check_known(file, rows, label, known)
        labelled += rows
    return labelled


def _check_known(file: str, rows: Sequence[Labelled], column: str, known: Collection[str]) -> None:
    for place, (_, label) in enumerate(rows):
        if label not in known:
            line, _ = next(islice(rows_of(Path(file)), place, None))
            raise ValueError(
                f"{shown(Path(file))}, line {line}: expected a {column} that there was in "
                f"training, and got {label!r}{closest(label, known)}"
            )
