"""A trained classifier with its tokenizer: labels, token attention, accuracy."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.models import Classifier
from glasshead.statistics import Received
from glasshead.tasks.classify.data import Labelled, collated, encoded, read_labelled
from glasshead.tasks.classify.train import CLASSIFY, ClassifySettings
from glasshead.tasks.data.batches import in_order
from glasshead.tasks.tokenizers.tokenizer import Tokenizer, whole_words
from glasshead.watching import watch


@dataclass(frozen=True)
class Classification:
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
    ) -> list[Classification]:
        """What each of the texts is; the same for a text alone as among others.

        Args:
            texts: As long as they may be; what is read of each, the run's settings say.
            progress: Is told how many texts are done, and of how many.
        """
        answers: list[Classification | None] = [None] * len(texts)
        names = self.settings.data.answers
        for places, shares in self._batches(texts, progress):
            for place, row in zip(places, shares, strict=True):
                ranked = dict(sorted(zip(names, row, strict=True), key=lambda pair: -pair[1]))
                answers[place] = Classification(next(iter(ranked)), ranked)
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


@dataclass(frozen=True, eq=False)
class TokenAttention:
    """How much each word of a text was looked at by all of them.

    Attributes:
        words: The words that were read.
        received: What each word received of what a word has to give, the mean over words and heads;
            a row, which sums to 1, for each layer.
    """

    words: tuple[str, ...]
    received: Float[Tensor, "layers words"]


@torch.inference_mode()
def token_attention(classifier: TextClassifier, text: str) -> TokenAttention:
    """What each layer looks at while the model reads a text.

    Args:
        classifier: What reads.
        text: Of which as much is read as in training.
    """
    data, tokenizer = classifier.settings.data, classifier.tokenizer
    (tokens,) = encoded(tokenizer, [text], data)
    blocks = classifier.model.blocks
    if not tokens:
        return TokenAttention((), torch.zeros(len(blocks), 0))
    with watch(classifier.model, [Received()]) as seen:
        classifier.model(**collated([tokens], tokenizer.pad_id))
    received = torch.stack(
        [seen[f"blocks.{layer}.attention"].received[0].mean(0) for layer in range(len(blocks))]
    )
    words = whole_words(tokenizer, tokens)
    return TokenAttention(words.words, received.float() / len(tokens) @ words.sum.T)


@dataclass(frozen=True)
class LabelEvaluation:
    """How well a classifier does.

    Attributes:
        accuracy: The share of texts with the right label.
        f1: The mean over labels of 2 · precision · recall / (precision + recall).
        loss: -ln of the share given to the right label, in nats, the mean over texts.
        texts: How many there were.
        labels: The labels, in the order of the matrix.
        confusion: How many texts of each label (a row) were given each label (a column).
    """

    accuracy: float
    f1: float
    loss: float
    texts: int
    labels: tuple[str, ...]
    confusion: list[list[int]]


def evaluate(
    classifier: TextClassifier,
    files: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> LabelEvaluation:
    """Accuracy, F1 and what is taken for what; over files, or over what was held out.

    Args:
        classifier: What is evaluated.
        files: Tables of labelled texts; none: those that the run held out.
        progress: Is told how many texts are done, and of how many.

    Errors: an OSError or ValueError where a file cannot be read, or has a label that training
    never saw; a ValueError where what was held out is not there any more.
    """
    from torchmetrics.functional.classification import (
        multiclass_accuracy,
        multiclass_confusion_matrix,
        multiclass_f1_score,
    )

    labelled, labels = _labelled(classifier, files), classifier.settings.data.answers
    answers = classifier.classify([text for text, _ in labelled], progress)
    right = torch.tensor([labels.index(label) for _, label in labelled])
    given = torch.tensor([labels.index(answer.label) for answer in answers])
    shares = torch.tensor(
        [answer.shares[label] for answer, (_, label) in zip(answers, labelled, strict=True)]
    )
    count = len(labels)
    return LabelEvaluation(
        accuracy=float(multiclass_accuracy(given, right, count, average="micro")),
        f1=float(multiclass_f1_score(given, right, count, average="macro")),
        loss=float(-shares.clamp(min=1e-30).log().mean()),
        texts=len(labelled),
        labels=labels,
        confusion=multiclass_confusion_matrix(given, right, count).tolist(),
    )


def _labelled(classifier: TextClassifier, files: Sequence[str]) -> list[Labelled]:
    data = classifier.settings.data
    if files:
        return read_labelled(files, data.text, data.label, known=data.answers)
    return CLASSIFY.held_out(data)
