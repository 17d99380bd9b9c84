"""Shuffled: batches of as many examples each."""

import numpy as np

from glasshead.recipe.validation import whole_number


def shuffled(
    count: int, size: int, seed: int, epoch: int, *, drop_last: bool = False
) -> list[list[int]]:
    """All examples once, in an order that only the seed and the epoch decide.

    Args:
        count: How many examples there are.
        size: How many make a batch.
        seed: Of all epochs.
        epoch: Each has an order of its own.
        drop_last: Whether a last batch with fewer examples is left out.

    Errors: a ValueError or TypeError for what is no whole number, or too small a one.

    >>> shuffled(7, size=3, seed=0, epoch=0)
    [[2, 4, 3], [6, 5, 0], [1]]
    """
    count, size = whole_number(count, "count"), whole_number(size, "size", least=1)
    order = generator(seed, epoch).permutation(count).tolist()
    end = count - count % size if drop_last else count
    return [order[begin : begin + size] for begin in range(0, end, size)]


def generator(seed: int, epoch: int) -> np.random.Generator:
    """The random numbers of one epoch."""
    return np.random.default_rng([whole_number(seed, "seed"), whole_number(epoch, "epoch")])
