"""What was observed of one attention, beside its context."""

import os
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention import saved_observation as saved
from glasshead.attention.frame import frame
from glasshead.statistics import Statistic

if TYPE_CHECKING:
    import pandas as pd


class Observation:
    """The context of an attention, and each statistic that was asked of its weights.

    A statistic is had by its name, `seen.entropy`, or by its object, `seen[gh.Entropy()]`.

    `+` puts an observation of some queries and one of the next together: rows follow each other,
    sums over queries are added, the shorter filled up with 0 where the keys have grown.

    Attributes:
        context: As a call gives it, bit for bit, with its gradient.
        statistics: What was asked, by name.

    >>> import torch
    >>> import glasshead as gh
    >>> x = torch.eye(3)
    >>> seen = gh.Attention(mask=gh.causal()).observe(x, x, x, [gh.MaxWeight(), gh.Received()])
    >>> seen.max_weight
    tensor([1.0000, 0.6405, 0.4711])
    >>> seen[gh.Received()].sum()
    tensor(3.)
    >>> print(seen)
    Observation of 3 queries
    context     [3, 3]
    max_weight  [3]     0.471 … 1.000  mean 0.704  weight
    received    [3]     0.471 … 1.624  mean 1.000  weight
    """

    context: Float[Tensor, "... queries value_dim"]

    def __init__(
        self, context: Tensor, statistics: dict[str, Statistic], values: dict[str, Any]
    ) -> None:
        self.context = context
        self.statistics = statistics
        self._values = values

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"nothing named {name!r} was observed; there is {_list(values)}.")

    def __getitem__(self, asked: "str | Statistic") -> Any:
        return self._values[self._name(asked)]

    def _name(self, asked: "str | Statistic") -> str:
        name = asked
        if not isinstance(asked, str):
            name = next((n for n, one in self.statistics.items() if one == asked), None)
        if not isinstance(name, str) or name not in self._values:
            raise KeyError(f"{asked!r} was not observed; there is {_list(self._values)}.")
        return name

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self._values])

    def __add__(self, other: "Observation") -> "Observation":
        """Of the queries of both, the other's after this one's.

        Errors: a ValueError where they are not of the same statistics, or where a statistic of
        the whole does not follow from those of its chunks.
        """
        if not isinstance(other, Observation):
            return NotImplemented
        # A statistic of which only the name is known could not be told from another.
        for one in (*self.statistics.values(), *other.statistics.values()):
            if isinstance(one, saved.Kept):
                one.joined(None, None)
        if self.statistics != other.statistics:
            raise ValueError(
                "observations of the same statistics can be added, and these are of "
                f"{_list(self.statistics)} and {_list(other.statistics)}."
            )
        values = {
            name: one.joined(self[name], other[name]) for name, one in self.statistics.items()
        }
        context = torch.cat([self.context, other.context], -2)
        return Observation(context, self.statistics, values)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write it as safetensors: the context, each value, and which statistic it is, as JSON.

        A value of several tensors is written as `name.field` each. Gradients are not kept.

        Errors: an OSError where the file cannot be written; then an older one is as it was.

        >>> import tempfile
        >>> from pathlib import Path
        >>> import glasshead as gh
        >>> x, file = torch.eye(3), Path(tempfile.mkdtemp()) / "seen.safetensors"
        >>> gh.Attention(mask=gh.causal()).observe(x, x, x, [gh.Entropy()]).save(file)
        >>> gh.Observation.load(file).entropy
        tensor([0.0000, 0.6532, 1.0581])
        """
        saved.save(file, self.context, self.statistics, self._values)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Observation":
        """Read what `save` has written; nothing in the file is run.

        A statistic of a user's own is kept by its name: its value is there, but it cannot be added
        to that of further queries.

        Errors: an OSError where the file cannot be read; a ValueError where it is no observation.
        """
        return cls(*saved.load(file))

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
        *leading, queries, _ = self.context.shape
        asked = [self._name(name) for name in names]
        return frame(leading, queries, self.statistics, self._values, asked)

    def __repr__(self) -> str:
        rows = [("context", self.context, "")]
        for name, value in self._values.items():
            unit = self.statistics[name].unit
            if isinstance(value, Tensor):
                rows.append((name, value, unit))
            else:
                rows += [(f"{name}.{field}", part, "") for field, part in saved.parts(value)]
        shapes = [str(list(tensor.shape)) for _, tensor, _ in rows]
        wide = max(len(name) for name, _, _ in rows), max(map(len, shapes))
        lines = [f"Observation of {self.context.shape[-2]} queries"]
        for (name, tensor, unit), shape in zip(rows, shapes, strict=True):
            about = "" if name == "context" else _spread(tensor, unit)
            lines.append(f"{name:<{wide[0]}}  {shape:<{wide[1]}}  {about}".rstrip())
        return "\n".join(lines)


def _spread(tensor: Tensor, unit: str) -> str:
    """From the least to the largest, and the mean, of what is finite."""
    if not tensor.is_floating_point():
        return ""
    numbers = tensor.detach().double()
    numbers = numbers[numbers.isfinite()]
    if not len(numbers):
        return "nothing finite"
    least, most, mean = (f"{x.item():.3f}" for x in (numbers.min(), numbers.max(), numbers.mean()))
    return f"{least} … {most}  mean {mean}  {unit}".rstrip()


def _list(values: dict[str, Any]) -> str:
    return ", ".join(values) or "nothing"
