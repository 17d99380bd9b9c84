"""Observe a model over a dataset without end: rows one after another, or a pipeline of Ray Data."""

import io
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glasshead.attention.attention import Statistics
from glasshead.recipe.validation import whole_number
from glasshead.statistics import Statistic, normalize_statistics
from glasshead.tasks.data.files import Allowance
from glasshead.tasks.data.texts import text_parts
from glasshead.tasks.readers.chunk_sums import ChunkSums
from glasshead.tasks.readers.distributed import default_device
from glasshead.tasks.readers.open_reader import reader_of_model
from glasshead.tasks.readers.text_stream import TextStream, chunk_length
from glasshead.tasks.readers.texts import FileName, files_of, texts_of_rows
from glasshead.watching.corpus import CorpusResult


class RowSums(NamedTuple):
    """The sums over the texts of some rows.

    Attributes:
        state: Of `ChunkSums.state`; empty if the rows hold no token.
        chunks: Number of chunks.
        tokens: Number of their tokens.
    """

    state: dict[str, Tensor]
    chunks: int
    tokens: int


@dataclass(frozen=True, eq=False)
class RowReader:
    """A model that reads rows, on whichever machine it is.

    Attributes:
        model: The model, or its folder.
        tokenizer: Its tokenizer; None of a folder.
        statistics: The statistics, by name.
        length: Tokens per chunk; None: the context of the model, at most 1024.
    """

    model: nn.Module | FileName
    tokenizer: Any
    statistics: Mapping[str, Statistic]
    length: int | None

    def __post_init__(self) -> None:
        reader = reader_of_model(self.model, self.tokenizer, default_device())
        object.__setattr__(self, "reader", reader)
        object.__setattr__(self, "length", chunk_length(reader, self.length))

    def new_sums(self) -> ChunkSums:
        """Return sums of no chunk.

        Errors: a ValueError if a statistic does not fit a chunk, or does not add up.
        """
        reader: Any = vars(self)["reader"]
        length = self.length or 0
        return ChunkSums(reader, self.statistics, length, uneven=False, device=reader.device)

    def read(self, texts: list[str]) -> RowSums:
        """Read the texts of rows, each ended by the end token, in chunks.

        Errors: a ValueError if a statistic does not fit, an `UnseenError` if an attention
        cannot be seen.
        """
        stream = TextStream(vars(self)["reader"], texts_of_rows(texts), self.length)
        sums, counts = self.new_sums(), stream.new_counts()
        with torch.inference_mode():
            for batch in stream.batches(counts):
                sums.read(batch)
        return RowSums(sums.state() if counts.count else {}, counts.count, counts.tokens)


def observe_dataset(
    model: nn.Module | FileName,
    dataset: Any,
    statistics: Statistics,
    *,
    tokenizer: Any = None,
    length: int | None = None,
    column: str | None = None,
    rows: int = 64,
    workers: int = 1,
    resources: Mapping[str, Any] | None = None,
) -> CorpusResult:
    """Observe every attention of a model over rows of text, of which there may be any number.

    So many rows at a time are concatenated, each ended by the end token, and cut into chunks as by
    `observe_texts`; the sums over them are then added in the order of the rows. What is in memory
    is these rows and the sums, however long the dataset is.

    A `ray.data.Dataset` becomes a pipeline of Ray Data: actors of Ray, each with the model, read
    the rows wherever Ray puts them. Rows whose worker dies are read again, by another, and sums
    arrive once. As the same rows are summed up together, in the same order, the result has the same
    bits as with one process, however many workers there are and whichever finishes first.

    Args:
        model: A model, run as it is, so call `eval()` before; or a folder, as of `observe_texts`,
            which every worker has to see.
        dataset: A `ray.data.Dataset`; or an iterable of texts, of rows as dicts, and of the `Path`
            of files, folders or patterns, which are read one file at a time, row by row; a plain
            file is one row.
        statistics: A list, or a dict keyed by name.
        tokenizer: The tokenizer of a model that is not a folder: from transformers, or from this
            library.
        length: Tokens per chunk; None: the context of the model, at most 1024.
        column: The column that holds the text; None: "text", or of files the only one.
        rows: Number of rows that are read together.
        workers: Number of Ray actors, for a Ray dataset.
        resources: Of each of these, such as `{"num_gpus": 1}`.

    Returns: for each layer and statistic a tensor `[heads, …]`, as of `observe_texts`.

    Errors: a TypeError or ValueError if an argument is invalid, a row has no such column, a
    statistic does not add up over chunks or does not fit them, there is no token, or the scores
    overflow; an OSError if a file cannot be read; and those of `watch`. Of a worker they are the
    cause of an error of Ray.

    >>> import glasshead as gh
    >>> from glasshead.tasks.tokenizers import words
    >>> texts = ["the cat sat", "the dog sat on the cat", "the cat sat on the dog"]
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, context_length=5)
    >>> model, tokenizer = gh.LanguageModel(config).eval(), words(texts, vocab_size=11)
    >>> rows = ({"text": text} for text in texts)
    >>> statistics = [gh.Entropy(), gh.Received()]
    >>> result = gh.observe_dataset(model, rows, statistics, tokenizer=tokenizer, rows=2)
    >>> result.documents, result["blocks.0.attention"].received.shape
    (5, torch.Size([3, 5]))
    """
    requested = normalize_statistics(statistics, needed_by="observe_dataset")
    rows, workers = whole_number(rows, "rows", least=1), whole_number(workers, "workers", least=1)
    if length is not None:
        length = whole_number(length, "length", least=1)
    reader = RowReader(model, tokenizer, requested, length)
    sums, chunks, tokens = reader.new_sums(), 0, 0
    if _is_of_ray(dataset):
        parts = _by_ray(dataset, reader, column or "text", rows, workers, dict(resources or {}))
    else:
        parts = (reader.read(texts) for texts in _batches(_texts(dataset, column), rows))
    for part in parts:
        if part.state:
            sums.add(part.state)
        chunks, tokens = chunks + part.chunks, tokens + part.tokens
    if not chunks:
        raise ValueError("observe_dataset needs rows with a text, got none with a word in it.")
    own = vars(reader)["reader"]
    source = {own.kind: own.name, "tokens": tokens, "pieces": chunks, "length": reader.length}
    return CorpusResult(sums.values(), requested, chunks, source=source)


def _texts(dataset: Any, column: str | None) -> Iterator[str]:
    """Yield the texts of rows and of files, holding one row of a table, or one plain file.

    Errors: a TypeError if the dataset is no such thing, those of `_text_of`, and those of files.
    """
    if isinstance(dataset, str) or not isinstance(dataset, Iterable):
        raise TypeError(
            "observe_dataset needs a ray.data.Dataset, or an iterable of texts, rows and Paths, "
            f"got {type(dataset).__name__}. Pass a list of them."
        )
    for row in dataset:
        if isinstance(row, os.PathLike):
            for file in files_of(Path(row)):
                # A plain file is one row.
                text = ""
                for part in text_parts(file, column, Allowance(default=math.inf)):
                    text += part.text
                    if part.last:
                        yield text
                        text = ""
        else:
            yield row if isinstance(row, str) else _text_of(row, column or "text")


def _text_of(row: Any, column: str) -> str:
    """Return the text of a row.

    Errors: a TypeError or ValueError if it has none.
    """
    if not isinstance(row, Mapping):
        raise TypeError(
            "the rows of observe_dataset must be texts, Paths or dicts such as {'text': 'the cat "
            f"sat'}}, got {type(row).__name__}."
        )
    if column not in row:
        raise ValueError(
            f"the rows of observe_dataset must have a column {column!r}, got "
            f"{', '.join(map(repr, row)) or 'none'}. Name the text's column with column=."
        )
    if not isinstance(row[column], str):
        raise TypeError(
            f"the column {column!r} of observe_dataset must hold texts, got "
            f"{type(row[column]).__name__}. Name the text's column with column=."
        )
    return row[column]


def _batches(texts: Iterable[str], rows: int) -> Iterator[list[str]]:
    """Yield so many texts at a time."""
    texts = iter(texts)
    while batch := [*islice(texts, rows)]:
        yield batch


def _is_of_ray(dataset: Any) -> bool:
    library = sys.modules.get("ray.data")
    return library is not None and isinstance(dataset, library.Dataset)


def _by_ray(
    dataset: Any,
    reader: RowReader,
    column: str,
    rows: int,
    workers: int,
    resources: dict[str, Any],
) -> Iterator[RowSums]:
    """Yield the sums over so many rows at a time, in their order, as actors of Ray compute them."""
    ray, data = import_module("ray"), import_module("ray.data")
    parts = {name: vars(reader)[name] for name in ("model", "tokenizer", "statistics", "length")}
    kept = ray.put({**parts, "column": column, "threads": torch.get_num_threads()})
    sums = dataset.repartition(target_num_rows_per_block=rows, strict=True).map_batches(
        RayReader,
        batch_size=None,
        # Within a list it stays with its owner, this process, however often a worker starts.
        fn_constructor_args=([kept],),
        compute=data.ActorPoolStrategy(size=workers),
        **resources,
    )
    sums.context.execution_options.preserve_order = True
    for row in sums.iter_rows():
        state = torch.load(io.BytesIO(row["state"]), weights_only=True)
        yield RowSums(state, int(row["chunks"]), int(row["tokens"]))


class RayReader:
    """A worker of Ray Data: a model that reads rows.

    Args:
        kept: A reference of Ray to what makes a `RowReader`, in a list.
    """

    def __init__(self, kept: list[Any]) -> None:
        parts = import_module("ray").get(kept[0])
        self._column = parts.pop("column")
        # Ray gives each worker one thread, and another number rounds in another way.
        torch.set_num_threads(parts.pop("threads"))
        if isinstance(parts["model"], nn.Module):
            parts["model"] = parts["model"].to(default_device())
        self._reader = RowReader(**parts)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Return one row: the sums over a batch of rows."""
        names = [*batch]
        texts = [
            _text_of(dict(zip(names, row, strict=True)), self._column)
            for row in zip(*batch.values(), strict=True)
        ]
        found, written = self._reader.read(texts), io.BytesIO()
        torch.save({name: one.cpu() for name, one in found.state.items()}, written)
        return {
            "state": [written.getvalue()],
            "chunks": [found.chunks],
            "tokens": [found.tokens],
        }
