"""Looking: which words of a text a classifier looks at."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.statistics import Received
from glasshead.tasks.classify.batches import collated, encoded
from glasshead.tasks.classify.text_classifier import TextClassifier
from glasshead.tasks.tokenizing import whole_words
from glasshead.watching import watch


@dataclass(frozen=True, eq=False)
class Looked:
    """How much each word of a text was looked at by all of them.

    Attributes:
        words: The words that were read.
        received: What each word received of what a word has to give, the mean over words and heads;
            a row, which sums to 1, for each layer.
    """

    words: tuple[str, ...]
    received: Float[Tensor, "layers words"]


@torch.inference_mode()
def looked_at(classifier: TextClassifier, text: str) -> Looked:
    """What each layer looks at while the model reads a text.

    Args:
        classifier: What reads.
        text: Of which as much is read as in training.
    """
    data, tokenizer = classifier.settings.data, classifier.tokenizer
    (tokens,) = encoded(tokenizer, [text], data)
    blocks = classifier.model.blocks
    if not tokens:
        return Looked((), torch.zeros(len(blocks), 0))
    with watch(classifier.model, [Received()]) as seen:
        classifier.model(**collated([tokens], tokenizer.pad_id))
    received = torch.stack(
        [seen[f"blocks.{layer}.attention"].received[0].mean(0) for layer in range(len(blocks))]
    )
    words = whole_words(tokenizer, tokens)
    return Looked(words.words, received.float() / len(tokens) @ words.sum.T)
