"""Tables as `datasets` reads them, where it reads them whole; nothing is asked of any network."""

import csv
import gc
import io
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from glasshead.tasks.reading.files import ending, opened, packing

DELIMITERS = {".csv": ",", ".tsv": "\t"}


def loaded(path: Path) -> Any | None:
    """The pyarrow table of a .jsonl, .csv or .tsv file; None where that may not be all of it.

    A column that a row of JSON lacks is null there.
    """
    with _quiet(), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # A name without the signs that are patterns of names to `datasets`.
        link = Path(folder) / f"table{ending(path)}{packing(path)}"
        table = None
        # Errors of any kind, and hardly ever with the line.
        with suppress(Exception):
            _linked(link, path)
            table = _loaded(link, Path(folder) / "cache")
        if table is None:
            # What a reader that failed has left open is closed here, where nobody hears of it.
            gc.collect()
        return table


def _linked(link: Path, path: Path) -> None:
    try:
        link.symlink_to(path.resolve())
    except OSError:
        # Not everybody may link everywhere.
        shutil.copyfile(path, link)


def _loaded(file: Path, cache: Path) -> Any:
    from datasets import Dataset, Features, Value

    options: dict[str, Any] = {"cache_dir": str(cache), "keep_in_memory": True}
    if ending(file) == ".jsonl":
        table = Dataset.from_json(str(file), parse_agent_traces=False, **options).data.table
        # What is no UTF-8 is found only so.
        table.validate(full=True)
        return table
    delimiter = DELIMITERS[ending(file)]
    with io.TextIOWrapper(opened(file), encoding="utf-8", newline="") as text:
        header = next(csv.reader(text, delimiter=delimiter))
    if len(set(header)) < len(header):
        raise ValueError("two columns of one name")
    table = Dataset.from_csv(
        str(file),
        # Every cell stays the text that it is: 007, NA and 1e3 too.
        features=Features({name: Value("string") for name in header}),
        na_filter=False,
        # Rows that are longer than the header would be names of rows.
        index_col=False,
        sep=delimiter,
        **options,
    ).data.table
    # A row that is too short was filled up, and so ends in an empty cell.
    return None if "" in table.column(header[-1]).to_pylist() else table


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars, no log, no warnings; those of pandas that cells are lost are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import datasets
        from pandas.errors import ParserWarning

        warnings.simplefilter("error", ParserWarning)
        logging, bars = datasets.logging, not datasets.are_progress_bars_disabled()
        verbosity = logging.get_verbosity()
        logging.set_verbosity(logging.CRITICAL)
        datasets.disable_progress_bars()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                datasets.enable_progress_bars()
