"""Corpus: what a watch saw of many texts, summed up; of the processes of a distributed run, too."""

from typing import TYPE_CHECKING, Any

from glasshead.watching.corpus.result import CorpusResult, LayerStatistics

if TYPE_CHECKING:
    from glasshead.watching.corpus.corpus_statistics import CorpusStatistics

__all__ = ["CorpusResult", "CorpusStatistics", "LayerStatistics"]


def __getattr__(name: str) -> Any:
    # It needs torchmetrics, which a result that was saved can be read without.
    if name != "CorpusStatistics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from glasshead.watching.corpus.corpus_statistics import CorpusStatistics

    return CorpusStatistics
