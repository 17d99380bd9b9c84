"""Evaluating: how often a classifier is right, and what it takes for what."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from glasshead.tasks.classify.job import CLASSIFY
from glasshead.tasks.classify.labelled import Labelled, read_labelled
from glasshead.tasks.classify.text_classifier import TextClassifier


@dataclass(frozen=True)
class Evaluation:
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
) -> Evaluation:
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
    return Evaluation(
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
