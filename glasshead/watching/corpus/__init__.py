"""Corpus statistics: the observations of many texts, reduced over batches and ranks."""

from typing import TYPE_CHECKING, Any

from glasshead.watching.corpus.result import CorpusResult, LayerStatistics, load

if TYPE_CHECKING:
    from glasshead.watching.corpus.corpus_statistics import CorpusStatistics

__all__ = ["CorpusResult", "CorpusStatistics", "LayerStatistics", "load"]


def __getattr__(name: str) -> Any:
    # It needs torchmetrics, without which a saved result can still be read.
    if name != "CorpusStatistics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from glasshead.watching.corpus.corpus_statistics import CorpusStatistics

    return CorpusStatistics
