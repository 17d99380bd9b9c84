"""Batches: labelled texts of similar length."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.tasks.batching import by_length, pad
from glasshead.tasks.classify.data import ClassifyData
from glasshead.tasks.classify.labelled import Labelled
from glasshead.tasks.tokenizing import Tokenizer


class LabelledBatches:
    """Labelled texts as tokens, in batches of similar length, anew in each epoch.

    Args:
        tokenizer: Makes tokens of texts.
        labelled: The texts, each with its label.
        data: Which labels there are, and how much of a text is read.
        seed: Of the batches.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        labelled: Sequence[Labelled],
        data: ClassifyData,
        seed: int = 0,
    ) -> None:
        self._pad, self._tokens, self._seed = tokenizer.pad_id, data.batch_tokens, seed
        self.texts = encoded(tokenizer, [text for text, _ in labelled], data)
        numbers = {answer: number for number, answer in enumerate(data.answers)}
        self.labels = [numbers[label] for _, label in labelled]
        self._lengths = [max(1, len(text)) for text in self.texts]

    def batches(self, epoch: int) -> list[list[int]]:
        """The texts of each batch, the same for the same epoch."""
        return by_length(self._lengths, self._tokens, self._seed, epoch)

    def collate(self, indices: Sequence[int]) -> dict[str, Int[Tensor, "..."]]:
        """`tokens` with their `lengths`, and the `answers`."""
        return {
            **collated([self.texts[index] for index in indices], self._pad),
            "answers": torch.tensor([self.labels[index] for index in indices]),
        }

    def count(self, indices: Sequence[int]) -> int:
        """How many answers there are."""
        return len(indices)


def encoded(tokenizer: Tokenizer, texts: Sequence[str], data: ClassifyData) -> list[list[int]]:
    """The tokens of texts that are read: the first ones and, of longer texts, the last ones."""
    return [shortened(tokens, data) for tokens in tokenizer.encode_batch(texts)]


def shortened(tokens: list[int], data: ClassifyData) -> list[int]:
    """What is read of a text."""
    if len(tokens) <= data.first + data.last:
        return tokens
    return tokens[: data.first] + tokens[len(tokens) - data.last :]


def collated(texts: Sequence[Sequence[int]], value: int) -> dict[str, Int[Tensor, "..."]]:
    """Tokens as one tensor, filled up with a value, and their lengths."""
    # A text without a token takes a place, which counts for nothing.
    return {
        "tokens": pad([text or [value] for text in texts], value),
        "lengths": torch.tensor([len(text) for text in texts]),
    }
