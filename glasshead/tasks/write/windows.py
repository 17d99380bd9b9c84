"""Windows: the pieces of a long text that a language model is trained on."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.tasks.runs.answers import IGNORED

# How many tokens are told at once, which is no more than a step of a large model takes.
_AT_ONCE = 8192


class Windows:
    """Pieces of `length` tokens, each with the tokens that follow; their numbers are their places.

    Args:
        tokens: The text.
        length: How many tokens a piece has.
        batch_size: How many pieces make a batch.
    """

    def __init__(self, tokens: Int[Tensor, " tokens"], length: int, batch_size: int) -> None:
        self.tokens = tokens
        self.length = length
        self.batch_size = batch_size
        self._within = torch.arange(length + 1)

    def collate(self, indices: Sequence[int]) -> dict[str, Int[Tensor, "pieces length"]]:
        """The pieces that begin at these places, and what follows each of their tokens."""
        places = torch.tensor(indices)[:, None] + self._within
        last = len(self.tokens) - 1
        pieces = self.tokens[places.clamp(max=last)]
        targets = pieces[:, 1:]
        if int(places[:, -1].max()) > last:
            targets = targets.masked_fill(places[:, 1:] > last, IGNORED)
        return {"tokens": pieces[:, :-1], "targets": targets}

    def count(self, indices: Sequence[int]) -> int:
        """How many targets there are."""
        last = len(self.tokens) - 1
        return sum(min(self.length, last - index) for index in indices)


class TrainingWindows(Windows):
    """The text cut into pieces, elsewhere in each epoch, and shuffled.

    Each token is seen once an epoch, but for what is left over at the ends.

    Args:
        tokens, length, batch_size: As of `Windows`.
        seed: Of the cuts and the order.

    >>> windows = TrainingWindows(torch.arange(100), length=7, batch_size=3, seed=0)
    >>> len(windows.batches(epoch=0)), windows.batches(0) == windows.batches(0)
    (4, True)
    """

    def __init__(
        self, tokens: Int[Tensor, " tokens"], length: int, batch_size: int, seed: int
    ) -> None:
        super().__init__(tokens, length, batch_size)
        self.seed = seed

    def batches(self, epoch: int) -> list[list[int]]:
        """The places of each batch, the same for the same epoch."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
        spare = len(self.tokens) - self.length
        first = int(torch.randint(min(self.length, spare), (), generator=generator))
        pieces = (len(self.tokens) - 1 - first) // self.length
        places = (first + self.length * torch.randperm(pieces, generator=generator)).tolist()
        size = min(self.batch_size, pieces)
        return [places[i : i + size] for i in range(0, pieces - size + 1, size)]


class HeldOutWindows(Windows):
    """The text in pieces from its first token to its last, in order.

    Args:
        tokens: The text.
        length: How many tokens a piece has.

    >>> HeldOutWindows(torch.arange(10), length=4).batches()
    [[0, 4, 8]]
    """

    def __init__(self, tokens: Int[Tensor, " tokens"], length: int) -> None:
        super().__init__(tokens, length, max(1, _AT_ONCE // length))

    def batches(self, epoch: int = 0) -> list[list[int]]:
        """The places of each batch."""
        del epoch
        places = list(range(0, len(self.tokens) - 1, self.length))
        return [places[i : i + self.batch_size] for i in range(0, len(places), self.batch_size)]
