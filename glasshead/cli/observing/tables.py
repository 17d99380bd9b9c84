"""Tables that tell what was observed, of one attention or of a whole model."""

from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor

from glasshead.drawing import Table, number
from glasshead.drawing.printable import visible
from glasshead.statistics import DistanceHistogram

_MOST_RECEIVING = 5


def receiving_table(
    mass: Float[Tensor, " keys"], tokens: tuple[str, ...] | None, caption: str
) -> Table:
    """The keys that receive most, with their share of all that is given."""
    largest, keys = mass.topk(min(_MOST_RECEIVING, len(mass)))
    total, rows = mass.sum().item(), []
    for weight, key in zip(largest.tolist(), keys.tolist(), strict=True):
        token = () if tokens is None else (visible(tokens[key]),)
        share = f"{number(100 * weight / total, 3)} %" if total else "–"
        rows.append([f"{key}", *token, number(weight), share])
    columns = ["key", *(() if tokens is None else ("token",)), "received", "share"]
    return Table(columns, rows, caption=caption)


def histogram_table(
    statistic: DistanceHistogram,
    means: Float[Tensor, "columns bins"],
    names: Sequence[str],
    label: str,
) -> Table:
    """How much weight lies in each bin, in columns of these names."""
    rows = [
        [f"{low:g} to {high:g}", *(number(share) for share in means[:, place])]
        for place, (low, high) in enumerate(pairwise(statistic.edges))
    ]
    return Table(
        ["distance", *names],
        rows,
        caption=f"{label}, {statistic.unit}: the mean of a query, by the distance of its keys, "
        f"from the first number to below the second",
    )


def counted(count: int, one: str, several: str | None = None) -> str:
    """A number of things.

    >>> counted(1, "query", "queries"), counted(2000, "head")
    ('1 query', '2,000 heads')
    """
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"
