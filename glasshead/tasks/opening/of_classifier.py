"""Of a classifier: the model that `glasshead train classify` has left in a folder."""

from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.tasks.classify import TextClassifier
from glasshead.tasks.classify.batches import shortened
from glasshead.tasks.opening.reader import Reader
from glasshead.tasks.opening.vocabulary import ordinary, unknown
from glasshead.tasks.reading.files import shown


def reader_of_classifier(folder: Path, device: torch.device) -> Reader:
    """The classifier of a run; of a long text it reads what it read in training.

    Errors: as of `TextClassifier.load`.
    """
    classifier = TextClassifier.load(folder)
    tokenizer, data = classifier.tokenizer, classifier.settings.data
    model = classifier.model.to(device)

    def read(tokens: Int[Tensor, "texts length"]) -> Float[Tensor, "texts answers"]:
        return model(tokens, torch.full((len(tokens),), tokens.shape[1], device=tokens.device))

    return Reader(
        name=shown(folder),
        kind="run",
        model=model,
        read=read,
        encode=tokenizer.encode_batch,
        token=tokenizer.token,
        ordinary=ordinary(tokenizer),
        ending=(tokenizer.end_id,),
        context=min(model.config.context_length, data.first + data.last),
        unknown=unknown(tokenizer),
        field=data.text,
        shorten=lambda tokens: shortened(list(tokens), data),
    )
