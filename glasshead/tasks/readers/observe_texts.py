"""Observe a model over texts: its attention in chunks of them, on one rank or several."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial as bound
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glasshead.attention.attention import Statistics
from glasshead.attention.io import read, understood, write
from glasshead.statistics import Statistic, normalize_statistics
from glasshead.tasks.readers.chunk_sums import ChunkSums
from glasshead.tasks.readers.distributed import Ranks, connected_ranks
from glasshead.tasks.readers.open_reader import reader_of_model
from glasshead.tasks.readers.reader import Reader
from glasshead.tasks.readers.text_stream import ChunkCounts, Length, TextStream
from glasshead.tasks.readers.texts import FileName, load_texts
from glasshead.watching import Seen
from glasshead.watching.corpus import CorpusResult
from glasshead.watching.sharding import is_tensor_parallel

# Of what is kept of an interrupted run, and how often, in seconds.
_PARTIAL, _EVERY = "partial statistics of a model", 10.0
_TEXT = "text or length"
# The tokens must fit into the header of a safetensors file.
_MAX_TOKENS = 2**20


class PartialSums(NamedTuple):
    """The sums over the batches that one rank has read.

    Attributes:
        batches: Number of batches.
        tokens: Number of their tokens.
        digest: Digest of these.
        sums: Of `ChunkSums.state`.
    """

    batches: int
    tokens: int
    digest: str
    sums: dict[str, Tensor]


@dataclass(frozen=True)
class PartialFile:
    """A file of the sums over the batches that one rank has read, from which it goes on.

    It is replaced at once by a newer one, so that one that is killed leaves a whole file.

    Attributes:
        path: Where it is.
        inputs: What was read with what, in JSON; only a run with the same inputs goes on.
    """

    path: Path
    inputs: dict[str, Any]

    def load(self) -> PartialSums | None:
        """Return what was read; None without a file.

        Errors: an OSError or a ValueError if the file cannot be read, or has other inputs.
        """
        if not self.path.exists():
            return None
        description, sums = read(self.path, _PARTIAL)
        kept = description.get("inputs")
        if kept != self.inputs:
            kept = kept if isinstance(kept, dict) else {}
            raise self.other([n for n, value in self.inputs.items() if kept.get(n) != value])
        with understood(self.path, _PARTIAL):
            batches, tokens = int(description["batches"]), int(description["tokens"])
            return PartialSums(batches, tokens, str(description["digest"]), sums)

    def other(self, names: Sequence[str]) -> ValueError:
        """Return the error for inputs that are not those of the file."""
        return ValueError(
            f"{self.path} holds the sums of a run with another {' and '.join(names)}. Read what "
            "it began with, or delete it to begin again."
        )

    def save(self, partial: PartialSums) -> None:
        """Replace the file.

        Errors: an OSError if it cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        description = {name: value for name, value in partial._asdict().items() if name != "sums"}
        write(self.path, _PARTIAL, {**description, "inputs": self.inputs}, partial.sums)


def partial_path(file: FileName, rank: int) -> Path:
    """Return the partial file of a rank; the first has the name itself.

    >>> partial_path("observed.partial", 0).name, partial_path("observed.partial", 3).name
    ('observed.partial', 'observed.partial.3')
    """
    path = Path(file)
    return path.with_name(f"{path.name}.{rank}") if rank else path


class TextObserver:
    """Accumulates statistics of a model while it reads a stream of chunks, over several ranks too.

    Args:
        reader: The model.
        stream: The chunks of this rank.
        counts: What the stream was counted to hold; None of an iterator, which is read once.
        statistics: The statistics, by name.
        ranks: The ranks that share the chunks.
        partial: File of the sums so far; where it is there, reading goes on from it.

    Errors: a ValueError if a statistic does not fit the longest chunk, or the partial file is
    of other inputs; an OSError if it cannot be read.
    """

    def __init__(
        self,
        reader: Reader,
        stream: TextStream,
        counts: ChunkCounts | None,
        statistics: Mapping[str, Statistic],
        ranks: Ranks,
        partial: FileName | None = None,
    ) -> None:
        self._reader, self._stream, self._ranks = reader, stream, ranks
        self._counted, self._statistics = counts, statistics
        self._counts = stream.new_counts()
        self._batches = stream.batches(self._counts)
        self._digest = hashlib.sha256()
        if counts is None:
            # One that ends within a chunk has no longer one.
            first = next(self._batches, None)
            self._batches = chain([] if first is None else [first], self._batches)
            length, uneven = max(1, self._counts.length), False
        else:
            length, uneven = counts.length, counts.uneven
        self._sums = ChunkSums(reader, statistics, length, uneven=uneven, device=ranks.device)
        self._partial, self._before = None, None
        if partial is not None:
            self._partial = PartialFile(partial_path(partial, ranks.rank), self._inputs())
            self._before = self._partial.load()
            if self._before is not None:
                with understood(self._partial.path, _PARTIAL):
                    self._sums.add(self._before.sums)

    @property
    def tokens_before(self) -> int:
        """Number of tokens that this rank had read before it was interrupted."""
        return 0 if self._before is None else self._before.tokens

    def read(
        self,
        progress: Callable[[int, int | None], object],
        check: Callable[[int, int], object] | None = None,
    ) -> None:
        """Read the share of this rank.

        Args:
            progress: Called with the number of tokens read, and the total, None of an iterator;
                within a batch, tokens count in proportion to the layers that it has passed.
            check: Called once with the number of layers, and of heads of the first.

        Errors: a ValueError if a statistic does not fit, or the texts have changed since they
            were counted; an `UnseenError` if an attention cannot be seen, and those of `check`.
        """
        of = None if self._counted is None else self._counted.own
        with torch.inference_mode(), _progress_of_layers(self._reader.model) as layers:
            with self._ranks.together():
                done = self._skip()
                place = 0 if self._before is None else self._before.batches
                batch = next(self._batches, None)
                if batch is not None:
                    seen = self._observe(batch, layers, bound(_later, progress, done, of))
                    place, done = place + 1, done + batch.numel()
                    if seen and check is not None:
                        check(len(seen), next(iter(seen.values()))[0].shape[-2])
            saved = time.monotonic()
            for batch in self._batches:
                if self._partial is not None and time.monotonic() - saved >= _EVERY:
                    digest = self._digest.hexdigest()
                    self._partial.save(PartialSums(place, done, digest, self._sums.state()))
                    saved = time.monotonic()
                progress(done, of)
                self._observe(batch, layers, bound(_later, progress, done, of))
                place, done = place + 1, done + batch.numel()
            with self._ranks.together():
                self._check_unchanged()
        progress(done, done)

    def _skip(self) -> int:
        """Pass over the batches that were read before; return the number of their tokens.

        Errors: a ValueError if they are not those.
        """
        if self._before is None or self._partial is None:
            return 0
        for batch in islice(self._batches, self._before.batches):
            self._add_to_digest(batch)
        if self._digest.hexdigest() != self._before.digest:
            raise self._partial.other([_TEXT])
        return self._before.tokens

    def _observe(
        self, batch: Tensor, layers: "_Layers", report: Callable[[int], object]
    ) -> Seen | dict[str, Any]:
        layers.begin(batch.numel(), report)
        self._add_to_digest(batch)
        return self._sums.read(batch)

    def _add_to_digest(self, batch: Tensor) -> None:
        self._digest.update(repr(tuple(batch.shape)).encode())
        self._digest.update(batch.numpy().tobytes())

    def _check_unchanged(self) -> None:
        if self._counted is None:
            self._stream.check(self._counts)
        elif self._counts.digest != self._counted.digest:
            raise ValueError(
                f"{self._stream.name} has changed while it was read. Read it again, unchanged."
            )

    def remove_partial(self) -> None:
        """Remove the partial file, once the result is where it is to be."""
        if self._partial is not None:
            self._partial.path.unlink(missing_ok=True)

    def result(self) -> CorpusResult:
        """Return the statistics of all ranks.

        Errors: a ValueError if numbers overflow.
        """
        counts = self._counts
        source = {
            self._reader.kind: self._reader.name,
            "text": self._stream.name,
            "tokens": counts.tokens,
            "pieces": counts.count,
            "length": counts.length,
            "cut": {"texts": counts.omitted.texts, "tokens": counts.omitted.tokens},
        }
        return CorpusResult(
            self._sums.values(),
            self._statistics,
            counts.count,
            tokens=self._tokens(),
            source=source,
        )

    def _inputs(self) -> dict[str, Any]:
        """Return what the sums depend on, in JSON; of an iterator, without its texts."""
        counted = self._counted
        return {
            "model": fingerprint(self._reader.model),
            _TEXT: self._stream.length if counted is None else counted.digest,
            "set of statistics": {name: repr(one) for name, one in self._statistics.items()},
            "number of processes": self._ranks.world_size,
        }

    def _tokens(self) -> list[str] | None:
        """Return all tokens in order, if they are those of one text; None for a very long one."""
        counts = self._counted
        if counts is None or not counts.of_one_text or counts.tokens > _MAX_TOKENS:
            return None
        numbers = self._stream.tokens()
        written = {token: self._reader.token(token) for token in set(numbers)}
        return [written[token] for token in numbers]


def _later(
    progress: Callable[[int, int | None], object], before: int, of: int | None, read: int
) -> None:
    progress(before + read, of)


def fingerprint(model: nn.Module) -> str:
    """Return a digest of the names, the shapes and some numbers of a model's parameters."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(json.dumps([name, str(parameter.dtype), *parameter.shape]).encode())
        if parameter.numel() and not parameter.is_meta:
            some = parameter.detach().reshape(-1)[:: max(1, parameter.numel() // 64)]
            digest.update(some.to("cpu", torch.float64).numpy().tobytes())
    return digest.hexdigest()


class _Layers:
    """Reports progress within a batch, in proportion to the layers that it has passed.

    Args:
        count: Number of layers.
    """

    def __init__(self, count: int) -> None:
        self._count, self._passed, self._tokens = count, 0, 0
        self._report: Callable[[int], object] = _silent

    def begin(self, tokens: int, report: Callable[[int], object]) -> None:
        """Begin a batch with this number of tokens."""
        self._passed, self._tokens, self._report = 0, tokens, report

    def __call__(self, *of_the_module: object) -> None:
        # A layer may run more than once.
        self._passed = min(self._passed + 1, self._count)
        self._report(self._tokens * self._passed // self._count)


@contextmanager
def _progress_of_layers(model: nn.Module) -> Iterator[_Layers]:
    """Hook the layers of a model, the modules of its longest list, to report progress."""
    lists = (list(one) for one in model.modules() if isinstance(one, nn.ModuleList))
    # A hook on one of PyTorch's own would turn off what it runs as one operator.
    blocks = [
        one
        for one in max(lists, key=len, default=[])
        if not isinstance(one, nn.TransformerEncoderLayer | nn.MultiheadAttention)
    ]
    layers = _Layers(len(blocks))
    hooks = [one.register_forward_hook(layers) for one in blocks]
    try:
        yield layers
    finally:
        for hook in hooks:
            hook.remove()


def observe_texts(
    model: nn.Module | FileName,
    texts: FileName | Iterable[FileName],
    statistics: Statistics,
    *,
    tokenizer: Any = None,
    length: Length = None,
    truncate: bool = False,
    partial: FileName | None = None,
    progress: Callable[[int, int | None], object] | None = None,
) -> CorpusResult:
    """Observe every attention of a model while it reads texts, in chunks of one length.

    All texts are concatenated, each ended by the end token if there are several, and cut into
    chunks; or, with `length="whole"`, each text is a chunk. Each chunk is read from its own
    beginning, with the special tokens that the tokenizer puts around a text. Statistics are those
    of `CorpusStatistics`: means over all queries of all chunks in float64, `MaxScore` the maximum.
    `Received` and `PooledMap` are means over the chunks of full length.

    Texts are a stream: files are read line by line, tokenized a million characters at a time, and
    what is in memory is that, a batch and the sums, however many files there are. They are read
    twice, first to count their tokens and to find what is wrong in any of them, then by the model.
    An iterator of strings is read once. Whole texts are sorted by length, the longest first, among
    a million tokens at a time.

    Under `torchrun`, or if `torch.distributed` is initialized, all ranks call it: each reads its
    share of the chunks, and all return the same result.

    Args:
        model: A model, run as it is, so call `eval()` before; or the folder of a run of `train
            write`, or of a text model of Hugging Face. A model of transformers is run without its
            head, any other as `model(tokens)`, one chunk per row.
        texts: One text or several, as strings, or an iterator of them; each `Path` is a plain file,
            the texts of a .jsonl, .csv or .tsv, a folder of such files, or a pattern such as
            `Path("corpus/**/*.jsonl")`.
        statistics: A list, or a dict keyed by name.
        tokenizer: The tokenizer of a model that is not a folder: from transformers, or from this
            library.
        length: Tokens per chunk, or "whole"; None: the context of the model, at most 1024.
        truncate: Whether to cut whole texts that are longer than the context, else an error.
        partial: File in which the sums so far are kept while it reads, every ten seconds or after
            the batch that takes longer. If it exists, reading resumes from it, and gives the
            same bits as a run that was never interrupted. It is removed at the end. Each further
            rank has one of its own, with its number at the end of the name. Texts that were read
            before are tokenized again, to find the place and to see that they are the same.
        progress: Called with the number of tokens read by this rank, and the total; None for the
            total of an iterator.

    Returns: for each layer and statistic a tensor `[heads, …]`. `source` states what was read, as
    the file of `glasshead observe --save` does, and `tokens` its tokens if it was one text.

    Errors: a TypeError or ValueError if an argument is invalid, a statistic does not add up over
    chunks or does not fit them, the texts hold no token or are longer than the model reads, the
    scores overflow, the texts change while they are read, `length="whole"` is asked of an iterator,
    or the partial file is of other texts, statistics or weights; an OSError if
    a file cannot be read or another rank has ended; and those of `watch`.

    >>> import glasshead as gh
    >>> from glasshead.tasks.tokenizers import words
    >>> texts = ["the cat sat", "the dog sat on the cat"]
    >>> tokenizer = words(texts, vocab_size=11)
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, context_length=5)
    >>> model = gh.LanguageModel(config).eval()
    >>> statistics = [gh.Entropy(), gh.Received()]
    >>> result = gh.observe_texts(model, texts, statistics, tokenizer=tokenizer)
    >>> result["blocks.0.attention"].received.shape, result.source["tokens"]
    (torch.Size([3, 5]), 11)
    """
    requested = normalize_statistics(statistics, needed_by="observe_texts")
    if isinstance(model, nn.Module) and is_tensor_parallel(model):
        raise ValueError(
            f"observe_texts needs the whole {type(model).__name__} in each rank, got one whose "
            "heads the ranks share. Watch it with gh.watch, and give a CorpusStatistics "
            "seen.gather()."
        )
    with connected_ranks() as ranks:
        with ranks.together():
            reader = reader_of_model(model, tokenizer, ranks.device)
            stream = TextStream(
                reader,
                load_texts(texts, reader.field),
                length,
                truncate=truncate,
                rank=ranks.rank,
                world_size=ranks.world_size,
            )
            counts = stream.counted() if stream.lasting else None
            ranks_there = replace(ranks, device=reader.device)
            observer = TextObserver(reader, stream, counts, requested, ranks_there, partial)
        observer.read(progress or _silent)
        result = observer.result()
        observer.remove_partial()
        return result


def _silent(*numbers: int | None) -> None:
    """Report no progress."""
