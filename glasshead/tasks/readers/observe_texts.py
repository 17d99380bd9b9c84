"""Observe a model over texts: its attention in chunks of them, on one rank or several."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from glasshead.attention import Attention
from glasshead.attention.attention import Statistics
from glasshead.statistics import Statistic, normalize_statistics
from glasshead.tasks.readers.base import Reader
from glasshead.tasks.readers.chunks import FileName, Length, TextChunks, cut_texts, load_texts
from glasshead.tasks.readers.distributed import Ranks, connected_ranks
from glasshead.tasks.readers.open_reader import reader_of_model
from glasshead.watching import Seen, watch
from glasshead.watching.corpus import CorpusResult, CorpusStatistics

# Statistics by position are those of chunks which have all positions.
_BY_POSITION = (("key",), ("row", "column"))
# The tokens must fit into the header of a safetensors file.
_MAX_TOKENS = 2**20


class TextObserver:
    """Accumulates statistics of a model while it reads chunks, over several ranks too.

    Args:
        reader: The model.
        chunks: The chunks.
        statistics: The statistics, by name.
        ranks: The ranks that share the chunks.

    Errors: a ValueError where a statistic does not fit the longest chunk.
    """

    def __init__(
        self,
        reader: Reader,
        chunks: TextChunks,
        statistics: Mapping[str, Statistic],
        ranks: Ranks,
    ) -> None:
        self._reader, self._chunks, self._ranks = reader, chunks, ranks
        self._statistics = statistics
        text = torch.empty(1, 1, chunks.length, 1, device="meta")
        Attention().plan(text, text, text, statistics=dict(statistics))
        # Texts of several lengths have each its own positions; chunks of one length have them
        # all, but the last.
        of_full = {
            name: one
            for name, one in statistics.items()
            if one.axes in _BY_POSITION and not chunks.uneven
        }
        of_all = {name: one for name, one in statistics.items() if name not in of_full}
        self._of_all, self._of_full = (
            CorpusStatistics(some, positions=chunks.length).to(ranks.device) if some else None
            for some in (of_all, of_full)
        )

    def read(
        self,
        progress: Callable[[int, int], object],
        check: Callable[[int, int], object] | None = None,
    ) -> None:
        """Read the share of this rank.

        Args:
            progress: Called with the number of tokens read, and the total; within a batch, tokens
                count in proportion to the layers that it has passed.
            check: Called once with the number of layers, and of heads of the first.

        Errors: a ValueError where a statistic does not fit, an `UnseenError` where an attention
        cannot be seen, and those of `check`.
        """
        share = self._chunks.shard(self._ranks.rank, self._ranks.world_size)
        done, of = 0, sum(batch.numel() for batch in share)
        with torch.inference_mode(), _progress_of_layers(self._reader.model) as layers:
            with self._ranks.together():
                for batch in share[:1]:
                    layers.begin(batch.numel(), lambda read: progress(read, of))
                    seen = self._watch(batch)
                    done = batch.numel()
                    if seen and check is not None:
                        check(len(seen), next(iter(seen.values()))[0].shape[-2])
            for batch in share[1:]:
                progress(done, of)
                layers.begin(batch.numel(), lambda read, before=done: progress(before + read, of))
                self._watch(batch)
                done += batch.numel()
        progress(of, of)

    def result(self, name: str) -> CorpusResult:
        """Return the statistics of all ranks.

        Args:
            name: Name of the texts.

        Errors: a ValueError where numbers overflow.
        """
        results = [one.compute() for one in (self._of_all, self._of_full) if one is not None]
        values = {
            layer: {
                name: result[layer][name].cpu()
                for name in self._statistics
                for result in results
                if name in result.statistics
            }
            for layer in results[0]
        }
        if not all(value.isfinite().all() for own in values.values() for value in own.values()):
            raise ValueError(
                "the scores grow beyond all numbers: train the model again, or name another."
            )
        chunks, out = self._chunks, self._chunks.left_out
        source = {
            self._reader.kind: self._reader.name,
            "text": name,
            "tokens": chunks.tokens,
            "pieces": chunks.count,
            "length": chunks.length,
            "cut": {"texts": out.texts, "tokens": out.tokens},
        }
        return CorpusResult(
            values, self._statistics, chunks.count, tokens=self._tokens(), source=source
        )

    def _tokens(self) -> list[str] | None:
        """Return all tokens in order, if they are those of one text; None for a very long one."""
        chunks = self._chunks
        if not chunks.of_one_text or chunks.tokens > _MAX_TOKENS:
            return None
        numbers = [token for group in chunks.groups for token in group.flatten().tolist()]
        written = {token: self._reader.token(token) for token in set(numbers)}
        return [written[token] for token in numbers]

    def _watch(self, batch: Int[Tensor, "chunks length"]) -> Seen | dict[str, Any]:
        """Observe the model on a batch, and update the statistics."""
        full = batch.shape[1] == self._chunks.length
        wanted = (self._of_all, self._of_full if full else None)
        corpora = [corpus for corpus in wanted if corpus is not None]
        if not corpora:
            return {}
        statistics = {name: one for corpus in corpora for name, one in corpus.statistics.items()}
        with watch(self._reader.model, statistics) as seen:
            self._reader.read(batch.to(self._ranks.device))
        for corpus in corpora:
            corpus.update(seen)
        return seen


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
    progress: Callable[[int, int], object] | None = None,
) -> CorpusResult:
    """Observe every attention of a model while it reads texts, in chunks of one length.

    All texts are concatenated, each ended by the end token where there are several, and cut into
    chunks; or, with `length="whole"`, each text is a chunk. Each chunk is read from its own
    beginning, with the special tokens that the tokenizer puts around a text. Statistics are those
    of `CorpusStatistics`: means over all queries of all chunks in float64, `MaxScore` the maximum.
    `Received` and `PooledMap` are means over the chunks of full length. Memory grows with the
    length of a chunk, not with that of the texts.

    Under `torchrun`, or where `torch.distributed` is initialized, all ranks call it: each reads its
    share of the chunks, and all return the same result.

    Args:
        model: A model, run as it is, so call `eval()` before; or the folder of a run of `train
            write`, or of a text model of Hugging Face. A model of transformers is run without its
            head, any other as `model(tokens)`, one chunk per row.
        texts: One text or several, as strings; each `Path` is a plain file, the texts of a .jsonl,
            .csv or .tsv, or a folder of such files.
        statistics: A list, or a dict keyed by name.
        tokenizer: Of a model that is no folder: one of transformers, or of this library.
        length: Tokens per chunk, or "whole"; None: the context of the model, at most 1024.
        truncate: Whether to cut whole texts that are longer than the context, else an error.
        progress: Called with the number of tokens read by this rank, and the total.

    Returns: for each layer and statistic a tensor `[heads, …]`. `source` tells what was read, as
    the file of `glasshead observe --save` does, and `tokens` its tokens where it was one text.

    Errors: a TypeError or ValueError where an argument is invalid, a statistic does not add up over
    chunks or does not fit them, the texts hold no token or are longer than the model reads, or the
    scores overflow; an OSError where a file cannot be read or another rank has ended; and those of
    `watch`.

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
    requested = normalize_statistics(statistics)
    if not requested:
        raise ValueError("observe_texts takes statistics such as [gh.Entropy()], and got none.")
    with connected_ranks() as ranks:
        with ranks.together():
            reader = reader_of_model(model, tokenizer, ranks.device)
            read = load_texts(texts, reader.field)
            chunks = cut_texts(reader, read, length, truncate=truncate)
            observer = TextObserver(reader, chunks, requested, replace(ranks, device=reader.device))
        observer.read(progress or _silent)
        return observer.result(read.name)


def _silent(*numbers: int) -> None:
    """Report no progress."""
