"""Batching examples: shuffling, grouping by length, and padding."""

from collections.abc import Container, Sequence
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from glasshead.recipe.validation import one_of, whole_number, whole_numbers

_Row = TypeVar("_Row")


def pad(
    rows: Sequence[Sequence[int]], value: int, side: Literal["left", "right"] = "right"
) -> Int[Tensor, "rows longest"]:
    """Pad rows to a tensor.

    Args:
        rows: At least one row; rows may be empty.
        value: Padding value.
        side: Padding side, "right" or "left".

    Errors: a ValueError if there is no row, or for another side.

    >>> pad([[5, 6, 7], [8]], value=0, side="left")
    tensor([[5, 6, 7],
            [0, 0, 8]])
    """
    if not len(rows):
        raise ValueError("rows must have at least one row, got none.")
    one_of(side, "side", ("left", "right"))
    tensors = [torch.as_tensor(row, dtype=torch.long) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=side)


def held_out_places(count: int, share: float) -> set[int]:
    """Draw the indices of a share of examples, at least one, with a fixed seed.

    >>> sorted(held_out_places(7, share=0.3))
    [2, 4]
    """
    order = generator(0, 0).permutation(count)
    return set(order[: max(1, round(count * share))].tolist())


def split(rows: Sequence[_Row], apart: Container[int]) -> tuple[list[_Row], list[_Row]]:
    """Split rows into those to train on and those at indices that are held out, in order.

    >>> split("abcd", apart={2})
    (['a', 'b', 'd'], ['c'])
    """
    parts: tuple[list[_Row], list[_Row]] = [], []
    for place, row in enumerate(rows):
        parts[place in apart].append(row)
    return parts


def shuffled(
    count: int, size: int, seed: int, epoch: int, *, drop_last: bool = False
) -> list[list[int]]:
    """Shuffle examples into batches, as a function of seed and epoch.

    Args:
        count: Number of examples.
        size: Batch size.
        seed: Random seed.
        epoch: Epoch, which changes the order.
        drop_last: Whether to drop a last incomplete batch.

    Errors: a ValueError or TypeError for an argument that is no whole number, or too small.

    >>> shuffled(7, size=3, seed=0, epoch=0)
    [[2, 4, 3], [6, 5, 0], [1]]
    """
    count, size = whole_number(count, "count"), whole_number(size, "size", least=1)
    order = generator(seed, epoch).permutation(count).tolist()
    end = count - count % size if drop_last else count
    return [order[begin : begin + size] for begin in range(0, end, size)]


def generator(seed: int, epoch: int) -> np.random.Generator:
    """Create the random generator of one epoch."""
    return np.random.default_rng([whole_number(seed, "seed"), whole_number(epoch, "epoch")])


# Relative noise on lengths, so that neighbors change from epoch to epoch.
_JITTER = 0.05


def by_length(
    lengths: Sequence[int] | Int[Tensor, " examples"], tokens: int, seed: int, epoch: int
) -> list[list[int]]:
    """Group examples into batches of similar length, regrouped and shuffled each epoch.

    A batch of n examples, the longest of which has m tokens, takes n · m tokens when padded.

    Args:
        lengths: Number of tokens of each example.
        tokens: Maximum tokens of a batch, including padding.
        seed: Random seed.
        epoch: Epoch; with the seed it determines the batches.

    Errors: a ValueError or TypeError for invalid lengths, and for an example longer than a batch.

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
    """Cut an order of examples into batches of at most `tokens` tokens."""
    batches, begin, counts = [], 0, np.arange(1, len(order) + 1)
    while begin < len(order):
        ahead = sizes[begin : begin + tokens // sizes[begin]]
        padded = np.maximum.accumulate(ahead) * counts[: len(ahead)]
        # `padded` is increasing.
        fitting = int(np.searchsorted(padded, tokens, side="right"))
        batches.append(order[begin : begin + fitting].tolist())
        begin += fitting
    return batches


def _checked(lengths: Sequence[int] | Tensor, tokens: int) -> np.ndarray:
    sizes = whole_numbers(lengths, "lengths").cpu().numpy().astype(np.int64)
    if sizes.ndim != 1:
        raise ValueError(f"lengths must have one number an example, got shape {[*sizes.shape]}.")
    for wrong, problem in (
        (sizes < 1, "at least 1. Omit empty examples."),
        (sizes > tokens, f"at most tokens={tokens}. Raise tokens, or cut the example."),
    ):
        if wrong.any():
            place = int(wrong.argmax())
            raise ValueError(
                f"example {place} of lengths has {sizes[place]} tokens, but must have {problem}"
            )
    return sizes


def in_order(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Group examples into batches of similar length, longest first.

    A batch of n examples, the longest of which has m tokens, takes n · m tokens when padded; one
    that is longer than that makes a batch alone.

    Args:
        lengths: Number of tokens of each example.
        tokens: Maximum tokens of a batch, including padding.

    >>> in_order([3, 9, 2, 10, 3], tokens=20)
    [[3, 1], [0, 4, 2]]
    """
    batches: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= tokens:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches
