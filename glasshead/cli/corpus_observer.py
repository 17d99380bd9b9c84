"""Observe a model over the chunks of a corpus."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import glasshead as gh
from glasshead.cli.observe_tables import MAP, pooled_map
from glasshead.cli.ranks import Ranks
from glasshead.cli.statistic_options import StatisticOption
from glasshead.cli.text_chunks import TextChunks
from glasshead.statistics import Statistic
from glasshead.tasks.readers.base import Reader
from glasshead.watching import UnseenError

# What is told by position is that of pieces which have them all.
_BY_POSITION = (("key",), ("row", "column"))


@dataclass(frozen=True, eq=False)
class Gathered:
    """What was seen of each layer and head.

    Attributes:
        layers: The names of the attentions.
        statistics: What was asked, by name; the map is one more, but of texts of several lengths.
        values: Of each a tensor `[layers, heads, …]` in float64.
    """

    layers: tuple[str, ...]
    statistics: dict[str, Statistic]
    values: dict[str, Float[Tensor, "layers heads *rest"]]


class CorpusObserver:
    """Lets a model read pieces, and sums up what is seen of it, over several processes too.

    Args:
        reader: What reads.
        pieces: What it reads.
        asked: What is to be known.
        processes: Which share the pieces.

    Errors: a ValueError where a statistic does not fit.
    """

    def __init__(
        self,
        reader: Reader,
        pieces: TextChunks,
        asked: tuple[StatisticOption, ...],
        processes: Ranks,
    ) -> None:
        self._reader, self._pieces, self._processes = reader, pieces, processes
        self.statistics: dict[str, Statistic] = {one.name: one.build() for one in asked}
        if not pieces.uneven:
            self.statistics[MAP] = pooled_map(pieces.length, pieces.length)
        _check(self.statistics, pieces)
        # Texts of several lengths have each its own positions; pieces have them all, but the last.
        of_full = {
            name: one
            for name, one in self.statistics.items()
            if one.axes in _BY_POSITION and not pieces.uneven
        }
        of_all = {name: one for name, one in self.statistics.items() if name not in of_full}
        self._of_all, self._of_full = (self._corpus(some) for some in (of_all, of_full))

    def read(
        self, checked: Callable[[int, int], None], progress: Callable[[int, int], None]
    ) -> None:
        """Read the share of this process.

        Args:
            checked: Is told how many layers there are and how many heads the first has, once.
            progress: Is told how many tokens are read, and of how many; while a batch goes through
                the layers, the share of the layers that it has passed.

        Errors: a ValueError where a statistic does not fit, and those of `checked`.
        """
        share = self._pieces.share(self._processes.place, self._processes.count)
        done, of = 0, sum(batch.numel() for batch in share)
        with torch.inference_mode(), _told_of_layers(self._reader.model) as layers:
            with self._processes.together():
                for batch in share[:1]:
                    layers.begin(batch.numel(), lambda read: progress(read, of))
                    seen = self._watch(batch)
                    done = batch.numel()
                    if seen:
                        checked(len(seen), next(iter(seen.values()))[0].shape[-2])
            for batch in share[1:]:
                progress(done, of)
                layers.begin(batch.numel(), lambda read, before=done: progress(before + read, of))
                self._watch(batch)
                done += batch.numel()
        progress(of, of)

    def gathered(self) -> Gathered:
        """What all processes have read.

        Errors: a ValueError where numbers overflow, or layers have unlike many heads.
        """
        results = [
            corpus.compute() for corpus in (self._of_all, self._of_full) if corpus is not None
        ]
        by_name = {name: result for result in results for name in result.statistics}
        values = {name: by_name[name].stacked(name).cpu() for name in self.statistics}
        if not all(value.isfinite().all() for value in values.values()):
            raise ValueError(
                "the scores grow beyond all numbers: train the model again, or name another."
            )
        return Gathered(tuple(results[0]), self.statistics, values)

    def _corpus(self, statistics: dict[str, Statistic]) -> Any:
        if not statistics:
            return None
        corpus = gh.CorpusStatistics(statistics, positions=self._pieces.length)
        return corpus.to(self._processes.device)

    def _watch(self, batch: Int[Tensor, "pieces length"]) -> Any:
        """Let the model read a batch."""
        full = batch.shape[1] == self._pieces.length
        asked = (self._of_all, self._of_full if full else None)
        corpora = [corpus for corpus in asked if corpus is not None]
        if not corpora:
            return {}
        statistics = {name: one for corpus in corpora for name, one in corpus.statistics.items()}
        with in_a_sentence(), gh.watch(self._reader.model, statistics) as seen:
            self._reader.read(batch.to(self._processes.device))
        for corpus in corpora:
            corpus.update(seen)
        return seen


class _Layers:
    """Tells how far a batch has come: of its tokens as many as the layers that it has passed.

    Args:
        count: How many layers there are.
    """

    def __init__(self, count: int) -> None:
        self._count, self._passed, self._tokens = count, 0, 0
        self._told: Callable[[int], None] | None = None

    def begin(self, tokens: int, told: Callable[[int], None]) -> None:
        """Begin another batch, of so many tokens."""
        self._passed, self._tokens, self._told = 0, tokens, told

    def __call__(self, *of_the_module: object) -> None:
        del of_the_module
        # A layer may run more than once.
        self._passed = min(self._passed + 1, self._count)
        if self._told is not None:
            self._told(self._tokens * self._passed // self._count)


@contextmanager
def _told_of_layers(model: nn.Module) -> Iterator[_Layers]:
    """Call what is given after each layer of a model: the modules of its longest list of them."""
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


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """What a watch says of a model whose attention it cannot see, as bad input."""
    try:
        yield
    except UnseenError as error:
        raise ValueError(str(error)) from error


def _check(statistics: dict[str, Statistic], pieces: TextChunks) -> None:
    """Raise a ValueError where a statistic does not fit the longest of the pieces."""
    text = torch.empty(1, 1, pieces.length, 1, device="meta")
    gh.Attention().plan(text, text, text, statistics=statistics)
