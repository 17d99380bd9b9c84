"""Values: statistics of the attention of some queries, had by name."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from glasshead.attention import saved_observation as saved
from glasshead.attention.frame import frame
from glasshead.statistics import Statistic
from glasshead.statistics.base import KEY

if TYPE_CHECKING:
    import pandas as pd


class Values:
    """What was observed of some queries: `seen.entropy`, or `seen[gh.Entropy()]`.

    Attributes:
        shape: `(*leading, queries)`: the axes before those of a statistic, and how many queries.
        statistics: What was asked, by name.
        values: What it is, by name.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        statistics: dict[str, Statistic],
        values: dict[str, Any],
    ) -> None:
        self.shape = shape
        self.statistics = statistics
        self.values = values

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"nothing named {name!r} was observed; there is {_list(values)}.")

    def __getitem__(self, asked: "str | Statistic") -> Any:
        return self.values[self.name_of(asked)]

    def name_of(self, asked: "str | Statistic") -> str:
        """The name of a statistic; a KeyError where it was not observed."""
        name = asked
        if not isinstance(asked, str):
            name = next((n for n, one in self.statistics.items() if one == asked), None)
        if not isinstance(name, str) or name not in self.values:
            raise KeyError(f"{asked!r} was not observed; there is {_list(self.values)}.")
        return name

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self.values])

    def _joined(self, other: "Values") -> dict[str, Any]:
        """The values of the queries of both, the other's after this one's.

        Errors: a ValueError where they are not of the same statistics, or where a statistic of
        the whole does not follow from those of its chunks.
        """
        # A statistic of which only the name is known could not be told from another.
        for one in (*self.statistics.values(), *other.statistics.values()):
            if isinstance(one, saved.Kept):
                one.joined(None, None)
        if self.statistics != other.statistics:
            raise ValueError(
                "observations of the same statistics can be added, and these are of "
                f"{_list(self.statistics)} and {_list(other.statistics)}."
            )
        return {name: one.joined(self[name], other[name]) for name, one in self.statistics.items()}

    def to_frame(self, *names: "str | Statistic") -> "pd.DataFrame":
        """The statistics as columns of a pandas table, with a row for each place.

        The index names the axes: `batch` (of several `batch_0`, `batch_1` and so on), `head`, and
        those of the statistics, such as `query`, or `query` and `rank`. A statistic of several
        tensors makes a column `name.field` of each.

        Args:
            names: Names, or statistics, of the same axes; without any, all that have one number a
                query.

        Errors: a KeyError for what was not observed, a ValueError where the axes differ, an
        ImportError where there is no pandas.

        >>> import torch
        >>> import glasshead as gh
        >>> x = torch.eye(2)
        >>> seen = gh.Attention(mask=gh.causal()).observe(x, x, x, [gh.Entropy(), gh.TopK(1)])
        >>> seen.to_frame().round(3)
               entropy
        query
        0        0.000
        1        0.634
        >>> seen.to_frame("top_k").round(3)
                    top_k.weights  top_k.keys
        query rank
        0     0              1.00           0
        1     0              0.67           1
        """
        *leading, queries = self.shape
        asked = [self.name_of(name) for name in names]
        return frame(leading, queries, self.statistics, self.values, asked)

    def _lines(self, *before: tuple[str, Tensor]) -> list[str]:
        """A line for each tensor: its name, its shape, and from where to where its numbers go.

        Args:
            before: Tensors to be told first, of which the name and the shape say all.
        """
        rows: list[tuple[str, Tensor, str | None]] = [(*one, None) for one in before]
        for name, value in self.values.items():
            unit = self.statistics[name].unit
            if isinstance(value, Tensor):
                rows.append((name, value, unit))
            else:
                rows += [(f"{name}.{field}", part, "") for field, part in saved.parts(value)]
        shapes = [str(list(tensor.shape)) for _, tensor, _ in rows]
        wide = max([0, *(len(name) for name, _, _ in rows)]), max([0, *map(len, shapes)])
        lines = []
        for (name, tensor, unit), shape in zip(rows, shapes, strict=True):
            about = "" if unit is None else _spread(tensor, unit)
            lines.append(f"{name:<{wide[0]}}  {shape:<{wide[1]}}  {about}".rstrip())
        return lines


def _spread(tensor: Tensor, unit: str) -> str:
    """From the least to the largest, and the mean, of what is finite; of keys nothing is told."""
    if not tensor.is_floating_point() or unit == KEY:
        return ""
    numbers = tensor.detach().double()
    numbers = numbers[numbers.isfinite()]
    if not len(numbers):
        return "nothing finite"
    least, most, mean = (f"{x.item():.3f}" for x in (numbers.min(), numbers.max(), numbers.mean()))
    return f"{least} … {most}  mean {mean}  {unit}".rstrip()


def _list(values: dict[str, Any]) -> str:
    return ", ".join(values) or "nothing"
