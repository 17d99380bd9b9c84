"""Parallel texts: pairs of a text and its translation, from files."""

from collections.abc import Sequence
from pathlib import Path

from glasshead.tasks.reading import read_lines, read_rows
from glasshead.tasks.reading.files import Allowance, ending, shown
from glasshead.tasks.reading.rows import TABLES, rows_of

# A text, and its translation.
Pairs = list[tuple[str, str]]


def read_pairs(files: Sequence[str], source: str = "source", target: str = "target") -> Pairs:
    r"""The pairs of tables (.jsonl, .csv, .tsv), or of text files that go line by line.

    Two text files are one of texts and one of their translations; four are two such pairs of files,
    and so on. Each may be packed (.gz, .xz).

    Args:
        files: Their names.
        source: The column of tables that holds the text.
        target: The column that holds its translation.

    Errors: an OSError where a file is not there or cannot be read; a ValueError that names the file
    and the line where it does not hold pairs.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     german, english = f"{folder}/train.de", f"{folder}/train.en"
    ...     _ = Path(german).write_text("Guten Morgen\nDanke\n")
    ...     _ = Path(english).write_text("Good morning\nThank you\n")
    ...     read_pairs([german, english])
    [('Guten Morgen', 'Good morning'), ('Danke', 'Thank you')]
    """
    texts, tables = _kinds(files)
    if len(texts) % 2:
        raise ValueError(
            f"expected text files in twos, of texts and of their translations, and got "
            f"{len(texts)}, with {shown(Path(texts[-1]))} alone: name the other too, or a table "
            f"({', '.join(TABLES)}) that has both."
        )
    allowance = Allowance()
    pairs = [
        pair
        for names in zip(texts[::2], texts[1::2], strict=True)
        for pair in _lines(*names, allowance)
    ]
    for table in tables:
        pairs += ((text, other) for text, other in read_rows(table, [source, target], allowance))
    return pairs


def place_of(files: Sequence[str], number: int) -> str:
    """The file and the line of a pair of `read_pairs`, counted from 1."""
    texts, tables = _kinds(files)
    for file in texts[::2]:
        count = len(read_lines(file))
        if number <= count:
            return f"{shown(Path(file))}, line {number}"
        number -= count
    for table in tables:
        for line, _ in rows_of(Path(table)):
            number -= 1
            if not number:
                return f"{shown(Path(table))}, line {line}"
    return f"text {number}"


def _kinds(files: Sequence[str]) -> tuple[list[str], list[str]]:
    """The text files, and the tables."""
    tables = [file for file in files if ending(Path(file)) in TABLES]
    return [file for file in files if file not in tables], tables


def _lines(source: str, target: str, allowance: Allowance) -> Pairs:
    texts, translations = read_lines(source, allowance), read_lines(target, allowance)
    if len(texts) != len(translations):
        few = source if len(texts) < len(translations) else target
        least = min(len(texts), len(translations))
        raise ValueError(
            f"{shown(Path(few))} ends after line {least}, and the file beside it goes on: expected "
            f"as many lines in {shown(Path(source))} ({len(texts):,}) as in {shown(Path(target))} "
            f"({len(translations):,}); give each text its translation."
        )
    return list(zip(texts, translations, strict=True))
