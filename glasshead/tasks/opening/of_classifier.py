"""Of a classifier: the model that `glasshead train classify` has left in a folder."""

from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.tasks.classify import TextClassifier
from glasshead.tasks.classify.batches import shortened
from glasshead.tasks.opening.ours import reader_of
from glasshead.tasks.opening.reader import Reader


def reader_of_classifier(folder: Path, device: torch.device) -> Reader:
    """The classifier of a run; of a long text it reads what it read in training.

    Errors: as of `TextClassifier.load`.
    """
    classifier = TextClassifier.load(folder)
    tokenizer, data = classifier.tokenizer, classifier.settings.data
    model = classifier.model.to(device)

    def read(tokens: Int[Tensor, "texts length"]) -> Float[Tensor, "texts answers"]:
        return model(tokens, torch.full((len(tokens),), tokens.shape[1], device=tokens.device))

    context = min(model.config.context_length, data.first + data.last)
    return replace(
        reader_of(folder, tokenizer, model, read, context),
        field=data.text,
        shorten=lambda tokens: shortened(list(tokens), data),
    )
