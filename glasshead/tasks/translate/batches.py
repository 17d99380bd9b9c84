"""Batches: texts and translations of similar length, side by side."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.tasks.batching import by_length, pad
from glasshead.tasks.runs.answers import IGNORED
from glasshead.tasks.tokenizing import Tokenizer
from glasshead.tasks.translate.parallel import Pairs


class PairBatches:
    """Pairs as tokens, in batches of similar length, anew in each epoch.

    The decoder is shown the translation after a start, and is to tell it with an end.

    Args:
        tokenizer: Makes tokens of both.
        pairs: Texts and translations.
        tokens: How many a batch takes at most on each side, padding included.
        seed: Of the batches.
    """

    def __init__(self, tokenizer: Tokenizer, pairs: Pairs, tokens: int, seed: int = 0) -> None:
        self._tokenizer, self._tokens, self._seed = tokenizer, tokens, seed
        self.sources = tokenizer.encode_batch([text for text, _ in pairs])
        self.targets = tokenizer.encode_batch([text for _, text in pairs])
        self._lengths = [
            max(len(source), len(target) + 1)
            for source, target in zip(self.sources, self.targets, strict=True)
        ]

    @property
    def longest(self) -> int:
        """The tokens of the longest side of a pair."""
        return max(self._lengths)

    def batches(self, epoch: int) -> list[list[int]]:
        """The pairs of each batch, the same for the same epoch."""
        return by_length(self._lengths, self._tokens, self._seed, epoch)

    def collate(self, indices: Sequence[int]) -> dict[str, Int[Tensor, "..."]]:
        """`source` with its `lengths`, the `target` that is shown, and the `answers` to it."""
        tokenizer = self._tokenizer
        sources = [self.sources[index] for index in indices]
        targets = [self.targets[index] for index in indices]
        return {
            "source": pad(sources, tokenizer.pad_id),
            "lengths": torch.tensor([len(source) for source in sources]),
            "target": pad([[tokenizer.start_id, *target] for target in targets], tokenizer.pad_id),
            "answers": pad([[*target, tokenizer.end_id] for target in targets], IGNORED),
        }

    def count(self, indices: Sequence[int]) -> int:
        """How many answers count."""
        return sum(len(self.targets[index]) + 1 for index in indices)
