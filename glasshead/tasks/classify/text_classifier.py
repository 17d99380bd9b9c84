"""Text classifier: a trained model with its tokenizer, as a run folder holds it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch

from glasshead.models import Classifier
from glasshead.tasks.batching import in_order
from glasshead.tasks.classify.batches import collated, encoded
from glasshead.tasks.classify.job import CLASSIFY
from glasshead.tasks.classify.settings import ClassifySettings
from glasshead.tasks.tokenizing import Tokenizer


@dataclass(frozen=True)
class Answer:
    """What a text is.

    Attributes:
        label: The likeliest label.
        shares: The probability of every label, the likeliest first.
    """

    label: str
    shares: dict[str, float]


@dataclass(frozen=True, eq=False)
class TextClassifier:
    """A classifier of texts.

    Attributes:
        model: What answers.
        tokenizer: What makes tokens of a text.
        settings: What it was trained on, and how.
    """

    model: Classifier
    tokenizer: Tokenizer
    settings: ClassifySettings

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The model of a run folder.

        Errors: an OSError where the folder is none, or not whole; a ValueError where it is another
        task's, or its parts do not fit each other.
        """
        return cls(*CLASSIFY.load(folder))

    def classify(
        self, texts: Sequence[str], progress: Callable[[int, int], None] | None = None
    ) -> list[Answer]:
        """What each of the texts is; the same for a text alone as among others.

        Args:
            texts: As long as they may be; what is read of each, the run's settings say.
            progress: Is told how many texts are done, and of how many.
        """
        answers: list[Answer | None] = [None] * len(texts)
        names = self.settings.data.answers
        for places, shares in self._batches(texts, progress):
            for place, row in zip(places, shares, strict=True):
                ranked = dict(sorted(zip(names, row, strict=True), key=lambda pair: -pair[1]))
                answers[place] = Answer(next(iter(ranked)), ranked)
        return [answer for answer in answers if answer is not None]

    @torch.inference_mode()
    def _batches(
        self, texts: Sequence[str], progress: Callable[[int, int], None] | None
    ) -> Iterator[tuple[list[int], list[list[float]]]]:
        data = self.settings.data
        tokens, done = encoded(self.tokenizer, texts, data), 0
        for places in in_order([max(1, len(each)) for each in tokens], data.batch_tokens):
            batch = collated([tokens[place] for place in places], self.tokenizer.pad_id)
            yield places, self.model(**batch).softmax(-1).tolist()
            done += len(places)
            if progress is not None:
                progress(done, len(texts))
