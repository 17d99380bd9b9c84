"""A trained classifier with its tokenizer: prediction, token attention and evaluation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.extras import require
from glasshead.models import Classifier
from glasshead.statistics import Received
from glasshead.tasks.data.batches import in_order
from glasshead.tasks.data.columns import check_columns
from glasshead.tasks.tokenizers.tokenizer import Tokenizer, whole_words
from glasshead.tasks.train_classifier import (
    CLASSIFY,
    PRESETS,
    ClassifySettings,
    Labeled,
    collated,
    encoded,
    read_labelled,
)
from glasshead.watching import watch

__all__ = [
    "CLASSIFY",
    "PRESETS",
    "Classification",
    "ClassifySettings",
    "LabelEvaluation",
    "TextClassifier",
    "TokenAttention",
    "evaluate",
    "token_attention",
]


@dataclass(frozen=True)
class Classification:
    """The predicted label of a text.

    Attributes:
        label: The most probable label.
        shares: The probability of every label, in descending order.
    """

    label: str
    shares: dict[str, float]


@dataclass(frozen=True, eq=False)
class TextClassifier:
    """A trained text classifier.

    Attributes:
        model: The model.
        tokenizer: Its tokenizer.
        settings: The settings of its training run.
    """

    model: Classifier
    tokenizer: Tokenizer
    settings: ClassifySettings

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load the model of a run folder.

        Errors: an OSError if the folder is missing or incomplete; a ValueError if it is of
        another task, or its parts do not fit each other.
        """
        return cls(*CLASSIFY.load(folder))

    def classify(
        self, texts: Sequence[str], progress: Callable[[int, int], None] | None = None
    ) -> list[Classification]:
        """Classify texts; the result of a text does not depend on the others.

        Args:
            texts: Texts of any length; long ones are truncated as in training.
            progress: Called with the number of texts done and in all.
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
    """The attention that each word of a text received, by layer.

    Attributes:
        words: The words that were read.
        received: Attention received per word, averaged over queries and heads; each row sums to 1.
    """

    words: tuple[str, ...]
    received: Float[Tensor, "layers words"]


@torch.inference_mode()
def token_attention(classifier: TextClassifier, text: str) -> TokenAttention:
    """Compute the attention that each word of a text receives in each layer.

    Args:
        classifier: The classifier.
        text: The text, truncated as in training.
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
    return TokenAttention(words.words, words.sum(received.float() / len(tokens)))


@dataclass(frozen=True)
class LabelEvaluation:
    """Evaluation of a classifier.

    Attributes:
        accuracy: Fraction of texts with the correct label.
        f1: Macro F1: the mean over labels of 2 · precision · recall / (precision + recall).
        loss: Cross-entropy, -ln p(correct label), in nats, averaged over texts.
        texts: Number of texts.
        labels: The labels, in the order of the confusion matrix.
        confusion: Confusion matrix; rows are true labels, columns are predictions.
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
    """Compute accuracy, F1 and confusion matrix on files, or on the held-out data.

    Args:
        classifier: The classifier.
        files: Tables of labeled texts; none: the texts that the run held out.
        progress: Called with the number of texts done and in all.

    Errors: an OSError or ValueError if a file cannot be read, or has a label that is not among
    the training labels; a ValueError if the held-out data has changed.
    """
    require("evaluating a classifier", "torchmetrics")
    from torchmetrics.functional.classification import (
        multiclass_accuracy,
        multiclass_confusion_matrix,
        multiclass_f1_score,
    )

    labeled, labels = _labelled(classifier, files), classifier.settings.data.answers
    answers = classifier.classify([text for text, _ in labeled], progress)
    right = torch.tensor([labels.index(label) for _, label in labeled])
    given = torch.tensor([labels.index(answer.label) for answer in answers])
    shares = torch.tensor(
        [answer.shares[label] for answer, (_, label) in zip(answers, labeled, strict=True)]
    )
    count = len(labels)
    return LabelEvaluation(
        accuracy=float(multiclass_accuracy(given, right, count, average="micro")),
        f1=float(multiclass_f1_score(given, right, count, average="macro")),
        loss=float(-shares.clamp(min=1e-30).log().mean()),
        texts=len(labeled),
        labels=labels,
        confusion=multiclass_confusion_matrix(given, right, count).tolist(),
    )


def _labelled(classifier: TextClassifier, files: Sequence[str]) -> list[Labeled]:
    data = classifier.settings.data
    if files:
        check_columns(files, {"text": data.text, "label": data.label}, settable=False)
        return read_labelled(files, data.text, data.label, known=data.answers)
    return CLASSIFY.held_out(data)
