"""In order: batches for what is only read, the longest first."""

from collections.abc import Sequence


def in_order(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """All examples once, in batches of similar length, the longest first.

    A batch of n examples, the longest of which has m tokens, takes n · m tokens when padded; one
    that is longer than that makes a batch alone.

    Args:
        lengths: How many tokens each example has.
        tokens: How many a batch takes at most, padding included.

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
