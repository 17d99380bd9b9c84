"""Corpus: texts and their translations, some of them held out."""

from dataclasses import dataclass
from typing import Any

from glasshead.tasks.batching import shuffled
from glasshead.tasks.runs import digest
from glasshead.tasks.runs.tokenizers import made_tokenizer
from glasshead.tasks.tokenizing import Tokenizer
from glasshead.tasks.translate.data import TranslateData
from glasshead.tasks.translate.parallel import Pairs, read_pairs

# How many made-up pairs are held out.
_MADE_UP = 400


@dataclass(frozen=True, eq=False)
class Corpus:
    """What is trained on, and what is held out.

    Attributes:
        training: The pairs to train on.
        held_out: The pairs that are not.
        empty: How many pairs were left out, as one side of them has no word.
    """

    training: Pairs
    held_out: Pairs
    empty: int = 0

    @property
    def found(self) -> dict[str, Any]:
        """What they tell of the run's data."""
        sides = [
            [pair[side] for pair in part]
            for part in (self.training, self.held_out)
            for side in (0, 1)
        ]
        return {"sha256": digest(*sides), "pairs": len(self.training)}


def read_corpus(data: TranslateData) -> Corpus:
    """The pairs of the files, or made-up ones.

    Without files of their own to be held out, a share is, drawn at random and always the same.

    Errors: an OSError or ValueError where a file cannot be read, or there are too few pairs.
    """
    if not data.files:
        return _made_up(data)
    read = read_pairs(data.files, data.source, data.target)
    pairs = _whole(read)
    if data.held_out_files:
        held_out = _whole(read_pairs(data.held_out_files, data.source, data.target))
        training = pairs
    else:
        order = [place for batch in shuffled(len(pairs), 1, 0, 0) for place in batch]
        count = max(1, round(len(pairs) * data.held_out))
        apart = set(order[:count])
        held_out = [pairs[place] for place in sorted(apart)]
        training = [pair for place, pair in enumerate(pairs) if place not in apart]
    for name, part in (("train on", training), ("hold out", held_out)):
        if not part:
            raise ValueError(
                f"expected at least one pair of texts with words in both to {name}, and got none: "
                "give more."
            )
    return Corpus(training, held_out, len(read) - len(pairs))


def make_tokenizer(data: TranslateData, corpus: Corpus) -> Tokenizer:
    """One tokenizer for texts and translations; it knows those to train on alone."""
    texts = [text for pair in corpus.training for text in pair]
    return made_tokenizer(data.tokenizer, texts, data.vocabulary, lowercase=data.lowercase)


def _whole(pairs: Pairs) -> Pairs:
    return [pair for pair in pairs if all(text.strip() for text in pair)]


def _made_up(data: TranslateData) -> Corpus:
    from glasshead.tasks.sentences import held_out, pairs

    return Corpus(
        [(pair.german, pair.english) for pair in pairs(data.made_up)],
        [(pair.german, pair.english) for pair in held_out(_MADE_UP)],
    )
