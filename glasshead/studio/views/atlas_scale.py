"""Atlas: where its scales of colour begin and end, which go by the mean weight of a single key."""

import math

from glasshead.studio.atlas import Atlas


def tops(keys: int) -> list[float]:
    """Where scales may end: 1, 0.5, 0.2, 0.1 …, down to below the weight of one of so many keys.

    >>> tops(4)
    [1.0, 0.5, 0.2, 0.1, 0.05, 0.02]
    """
    powers = range(1, max(2, len(str(keys * 2))) + 1)
    return [float(f"{digit}e-{power}") for power in powers for digit in (10, 5, 2)]


def floor(keys: int) -> float:
    """Where logarithmic scales begin: well below what each of so many keys has if all are alike.

    >>> floor(1000)
    0.0001
    """
    return 10.0 ** -(math.ceil(math.log10(max(keys, 2))) + 1)


def most(atlas: Atlas) -> float:
    """The largest mean weight of a key in a block of the coarsest level.

    Errors: as of `Atlas.tile`.
    """
    level = atlas.levels - 1
    return atlas.tile(level, 0, 0).max().item() / 2**level
