"""Texts: the files that `--text` names, one or those of a folder."""

from pathlib import Path

from glasshead.cli.inputs.reading import shown
from glasshead.tasks.data.files import ending
from glasshead.tasks.data.tables import TABLES
from glasshead.tasks.data.texts import PLAIN


def text_files(source: Path) -> list[Path]:
    """A file, or every text below a folder, in the order of their names.

    Errors: a ValueError where a folder has none.
    """
    if not source.is_dir():
        return [source]
    files = [
        file
        for file in sorted(source.rglob("*"))
        if file.is_file() and ending(file) in (*PLAIN, *TABLES) and not _hidden(file, source)
    ]
    if not files:
        raise ValueError(
            f"{shown(source)} has no texts in it: name a folder with files that end in "
            f"{', '.join((*PLAIN, *TABLES))}."
        )
    return files


def _hidden(file: Path, source: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(source).parts)
