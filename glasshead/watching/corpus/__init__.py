"""Corpus: what a watch saw of many texts, summed up; of the processes of a distributed run, too."""

from glasshead.watching.corpus.corpus_statistics import CorpusStatistics
from glasshead.watching.corpus.result import CorpusResult

__all__ = ["CorpusResult", "CorpusStatistics"]
