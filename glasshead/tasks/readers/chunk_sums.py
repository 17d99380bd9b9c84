"""Sums of statistics over chunks of tokens, which add up with those of other chunks."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.attention import Attention
from glasshead.message import Message
from glasshead.statistics import Statistic
from glasshead.tasks.readers.reader import Reader
from glasshead.watching import Seen, watch
from glasshead.watching.corpus import CorpusStatistics

# Statistics by position are those of chunks which have all positions.
_BY_POSITION = (("key",), ("row", "column"))


class ChunkSums:
    """Sums of the statistics of a model while it reads chunks.

    Texts of several lengths have each its own positions. Chunks of one length have them all, but
    the last of a text: statistics by position leave those out that are shorter.

    Args:
        reader: The model.
        statistics: The statistics, by name.
        length: Length of a full chunk.
        uneven: Whether the chunks are whole texts of different lengths.
        device: Where the sums are.

    Errors: a ValueError if a statistic does not fit a full chunk, or does not add up.
    """

    def __init__(
        self,
        reader: Reader,
        statistics: Mapping[str, Statistic],
        length: int,
        *,
        uneven: bool,
        device: torch.device,
    ) -> None:
        self._reader, self._statistics, self._length = reader, statistics, length
        self._device = device
        text = torch.empty(1, 1, length, 1, device="meta")
        Attention().plan(text, text, text, statistics=dict(statistics))
        of_full = {
            name: one for name, one in statistics.items() if one.axes in _BY_POSITION and not uneven
        }
        of_all = {name: one for name, one in statistics.items() if name not in of_full}
        self._corpora = {
            part: self._corpus(some) for part, some in (("all", of_all), ("full", of_full)) if some
        }

    def read(self, chunks: Int[Tensor, "chunks length"]) -> Seen | dict[str, Any]:
        """Observe the model on chunks, and add what was seen; nothing if none is full.

        Errors: a ValueError if a statistic does not fit, an `UnseenError` if an attention
        cannot be seen.
        """
        full = chunks.shape[1] == self._length
        corpora = [one for part, one in self._corpora.items() if full or part == "all"]
        if not corpora:
            return {}
        statistics = {name: one for corpus in corpora for name, one in corpus.statistics.items()}
        with watch(self._reader.model, statistics) as seen:
            self._reader.read(chunks.to(self._device))
        for corpus in corpora:
            corpus.update(seen)
        return seen

    def state(self) -> dict[str, Tensor]:
        """Return the sums so far, by the part that keeps them."""
        return {
            f"{part}.{name}": state
            for part, corpus in self._corpora.items()
            for name, state in corpus.state_dict().items()
        }

    def add(self, state: Mapping[str, Tensor]) -> None:
        """Add sums that `state` has returned."""
        for part, corpus in self._corpora.items():
            own = {
                name.removeprefix(f"{part}."): one.to(self._device)
                for name, one in state.items()
                if name.startswith(f"{part}.")
            }
            other = self._corpus({name: self._statistics[name] for name in corpus.statistics})
            other.load_state_dict(own)
            corpus.merge_state(other)

    def values(self) -> dict[str, dict[str, Tensor]]:
        """Return the statistics by layer and name, reduced over all ranks.

        Errors: a ValueError if there were no chunks, or numbers overflow.
        """
        results = [corpus.compute() for corpus in self._corpora.values()]
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
                Message("the scores overflow to infinity. Train the model again, or name another.")
            )
        return values

    def _corpus(self, statistics: Mapping[str, Statistic]) -> CorpusStatistics:
        corpus = CorpusStatistics(dict(statistics), positions=self._length).to(self._device)
        corpus.persistent(True)
        return corpus
