"""By length: batches of examples that are about as long, so that little is padding."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from torch import Tensor

from glasshead.recipe.validation import whole_number, whole_numbers
from glasshead.tasks.batching.shuffled import generator

# By how much an example may count as longer than it is: neighbours change from epoch to epoch.
_JITTER = 0.05


def by_length(
    lengths: Sequence[int] | Int[Tensor, " examples"], tokens: int, seed: int, epoch: int
) -> list[list[int]]:
    """All examples once, in batches of similar length, grouped and put in order anew each epoch.

    A batch of n examples, the longest of which has m tokens, takes n · m tokens when padded.

    Args:
        lengths: How many tokens each example has.
        tokens: How many a batch takes at most, padding included.
        seed: Of all epochs.
        epoch: The batches are a function of the seed and it alone.

    Errors: a ValueError or TypeError for what are no lengths, and for an example that is longer
    than a batch.

    >>> by_length([3, 9, 2, 10, 3], tokens=20, seed=0, epoch=0)
    [[2, 0, 4], [1, 3]]
    """
    tokens = whole_number(tokens, "tokens", least=1)
    sizes = _checked(lengths, tokens)
    random = generator(seed, epoch)
    order = random.permutation(len(sizes))
    order = order[np.argsort((sizes * (1 + _JITTER * random.random(len(sizes))))[order])]
    batches = _cut(order, sizes[order], tokens)
    return [batches[place] for place in random.permutation(len(batches))]


def _cut(order: np.ndarray, sizes: np.ndarray, tokens: int) -> list[list[int]]:
    """Examples in their order, as many to a batch as it takes."""
    batches, begin, counts = [], 0, np.arange(1, len(order) + 1)
    while begin < len(order):
        ahead = sizes[begin : begin + tokens // sizes[begin]]
        padded = np.maximum.accumulate(ahead) * counts[: len(ahead)]
        # It only grows with each example more.
        fitting = int(np.searchsorted(padded, tokens, side="right"))
        batches.append(order[begin : begin + fitting].tolist())
        begin += fitting
    return batches


def _checked(lengths: Sequence[int] | Tensor, tokens: int) -> np.ndarray:
    sizes = whole_numbers(lengths, "lengths").cpu().numpy().astype(np.int64)
    if sizes.ndim != 1:
        raise ValueError(f"lengths takes one number an example, and got shape {[*sizes.shape]}.")
    for wrong, problem in (
        (sizes < 1, "at least 1 token: leave empty examples out."),
        (sizes > tokens, f"at most tokens={tokens}: raise tokens, or cut the example."),
    ):
        if wrong.any():
            place = int(wrong.argmax())
            raise ValueError(
                f"lengths: example {place} has {sizes[place]} tokens, and a batch takes examples "
                f"of {problem}"
            )
    return sizes
