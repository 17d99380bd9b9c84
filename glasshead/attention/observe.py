"""Observations: requested statistics, their values by name, and a table of them for pandas."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention import io as saved
from glasshead.attention.io import parts
from glasshead.recipe.validation import in_float64
from glasshead.statistics import Statistic

if TYPE_CHECKING:
    import pandas as pd

    from glasshead.drawing import Table


class StatisticResults:
    """Statistics of some queries, by name: `seen.entropy`, or `seen[gh.Entropy()]`.

    Attributes:
        shape: `(*leading, queries)`: the axes before those of a statistic, and how many queries.
        statistics: The requested statistics, by name.
        values: Their values, by name.
    """

    shape: tuple[int, ...]
    statistics: dict[str, Statistic]
    values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"{name!r} was not observed. Use one of {_list(values)}.")

    def __getitem__(self, statistic: "str | Statistic") -> Any:
        return self.values[self.name_of(statistic)]

    def name_of(self, statistic: "str | Statistic") -> str:
        """Return the name of a statistic; raise a KeyError if it was not observed."""
        name = statistic
        if not isinstance(statistic, str):
            name = next((n for n, one in self.statistics.items() if one == statistic), None)
        if not isinstance(name, str) or name not in self.values:
            raise KeyError(f"{statistic!r} was not observed. Use one of {_list(self.values)}.")
        return name

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self.values])

    def _joined(self, other: "StatisticResults") -> dict[str, Any]:
        """Concatenate the values with those of further queries.

        Errors: a ValueError if they are not of the same statistics, or if a statistic does not
        follow from its chunks.
        """
        # Statistics known by name only cannot be compared.
        for one in (*self.statistics.values(), *other.statistics.values()):
            if isinstance(one, saved.UnknownStatistic):
                one.joined(None, None)
        if self.statistics != other.statistics:
            raise ValueError(
                "observations must be of the same statistics to be added, got "
                f"{_list(self.statistics)} and {_list(other.statistics)}."
            )
        return {name: one.joined(self[name], other[name]) for name, one in self.statistics.items()}

    def to_frame(self, *names: "str | Statistic") -> "pd.DataFrame":
        """Convert the statistics to a pandas table: columns per statistic, rows per position.

        The index names the axes: `batch` (of several `batch_0`, `batch_1` and so on), `head`, and
        those of the statistics, such as `query`, or `query` and `rank`. A statistic of several
        tensors makes a column `name.field` of each.

        Args:
            names: Names, or statistics, of the same axes; without any, all that have one number a
                query.

        Errors: a KeyError for what was not observed, a ValueError if the axes differ, an
        ImportError if there is no pandas.

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
        selected = [self.name_of(name) for name in names]
        return frame(leading, queries, self.statistics, self.values, selected)

    def _lines(self, *before: tuple[str, Tensor]) -> list[str]:
        """Format a line for each tensor: its name, its shape, and the range of its numbers.

        Args:
            before: Tensors to list first, by name and shape alone.
        """
        rows = [
            (one.name, str(list(one.tensor.shape)), "" if one.unit is None else _spread(one))
            for one in _tensors(self, *before)
        ]
        wide = [max([0, *(len(row[column]) for row in rows)]) for column in range(2)]
        return [
            f"{name:<{wide[0]}}  {shape:<{wide[1]}}  {about}".rstrip()
            for name, shape, about in rows
        ]


def value_table(results: StatisticResults, *before: tuple[str, Tensor]) -> "Table":
    """Tabulate values: name, shape, and the range of the numbers.

    Args:
        results: The values, by name.
        before: Tensors to list first, by name and shape alone.
    """
    from glasshead.drawing import Table

    rows = [
        [one.name, str(list(one.tensor.shape)), *([""] * 4 if one.unit is None else _range(one))]
        for one in _tensors(results, *before)
    ]
    return Table(["name", "shape", "least", "mean", "most", "unit"], rows)


class _Listed(NamedTuple):
    """A tensor to list.

    Attributes:
        name: Its name.
        tensor: The tensor.
        unit: The unit of its numbers; None: its range is not shown.
        has_mean: Whether its numbers have a mean.
    """

    name: str
    tensor: Tensor
    unit: str | None = None
    has_mean: bool = True


def _tensors(results: StatisticResults, *before: tuple[str, Tensor]) -> list[_Listed]:
    """List the tensors of the results, after those given."""
    rows = [_Listed(*one) for one in before]
    for name, value in results.values.items():  # noqa: PD011 - a dict
        statistic = results.statistics[name]
        if isinstance(value, Tensor):
            rows.append(_Listed(name, value, statistic.unit, statistic.has_mean))
        else:
            rows += [_Listed(f"{name}.{field}", part, "") for field, part in saved.parts(value)]
    return rows


def _spread(listed: _Listed) -> str:
    """Format minimum, maximum and mean of the finite numbers; places of keys have none."""
    least, mean, most, unit = _range(listed)
    return f"{least} … {most}  mean {mean}  {unit}".rstrip() if mean else least


def _range(listed: _Listed) -> list[str]:
    """Return minimum, mean and maximum of the finite numbers, and their unit, each as text."""
    unit = listed.unit or ""
    if not listed.tensor.is_floating_point() or not listed.has_mean:
        return ["", "", "", unit]
    numbers = in_float64(listed.tensor.detach())
    numbers = numbers[numbers.isfinite()]
    if not len(numbers):
        return ["nothing finite", "", "", unit]
    return [*(f"{x.item():.3f}" for x in (numbers.min(), numbers.mean(), numbers.max())), unit]


def _list(values: dict[str, Any]) -> str:
    return ", ".join(values) or "nothing"


@dataclass(frozen=True, eq=False, repr=False)
class Observation(StatisticResults):
    """Context of an attention, and each statistic requested of its weights.

    Read a statistic by name, `seen.entropy`, or by object, `seen[gh.Entropy()]`.

    `+` joins an observation with the observation of the next queries: rows follow each other,
    sums over queries are added, the shorter filled up with 0 if the keys have grown.

    Attributes:
        context: As a call gives it, bit for bit, with its gradient.
        statistics: The requested statistics, by name.

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
    statistics: dict[str, Statistic]
    values: dict[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[reportIncompatibleVariableOverride]
        """`(*leading, queries)`."""
        return tuple(self.context.shape[:-1])

    def __add__(self, other: "Observation") -> "Observation":
        """Concatenate with the observation of the next queries.

        Errors: a ValueError if they are not of the same statistics, or if a statistic does not
        follow from its chunks.
        """
        if not isinstance(other, Observation):
            return NotImplemented
        values = self._joined(other)
        context = torch.cat([self.context, other.context], -2)
        return Observation(context, self.statistics, values)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write context, values and statistics as safetensors, described in JSON.

        A value of several tensors is written as `name.field` each. Gradients are not kept.

        Errors: an OSError if the file cannot be written; then an older one is as it was.

        >>> import tempfile
        >>> from pathlib import Path
        >>> import glasshead as gh
        >>> x, file = torch.eye(3), Path(tempfile.mkdtemp()) / "seen.safetensors"
        >>> gh.Attention(mask=gh.causal()).observe(x, x, x, [gh.Entropy()]).save(file)
        >>> gh.Observation.load(file).entropy
        tensor([0.0000, 0.6532, 1.0581])
        """
        saved.save_observation(file, self.context, self.statistics, self.values)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Observation":
        """Read what `save` has written; nothing in the file is executed.

        A custom statistic is kept by its name: its value is there, but further queries cannot be
        added.

        Errors: an OSError if the file cannot be read; a ValueError if it is not an observation.
        """
        return cls(*saved.load_observation(file))

    def __repr__(self) -> str:
        about = f"Observation of {self.context.shape[-2]} queries"
        return "\n".join([about, *self._lines(("context", self.context))])

    def _repr_html_(self) -> str:
        from glasshead.drawing import Document

        title = f"Observation of {self.context.shape[-2]} queries"
        return Document([value_table(self, ("context", self.context))], title=title)._repr_html_()


def frame(
    leading: Sequence[int],
    queries: int,
    statistics: Mapping[str, Statistic],
    values: Mapping[str, Any],
    selected: Sequence[str],
) -> "pd.DataFrame":
    """Build the table of `Observation.to_frame` from values of statistics side by side.

    Args:
        leading: The sizes of the axes before those of a statistic.
        queries: The number of queries.
        statistics, values: All of the observation, by name.
        selected: The names of some; if empty, all with one number a query.
    """
    names = selected or [
        name
        for name, one in statistics.items()
        if one.axes == ("query",)
        and isinstance(values[name], Tensor)
        and values[name].shape == (*leading, queries)
    ]
    if not names:
        raise ValueError(
            "to_frame() needs a statistic with one number a query, and none was observed. Name "
            f"one of {', '.join(values) or 'nothing'}."
        )
    columns = {
        column: _numbers(tensor)
        for name in names
        for column, tensor in _columns(name, values[name])
    }
    axes, shape = _common(names, statistics, columns, len(leading))
    levels = (*_leading_names(len(leading)), *axes)
    pandas = import_pandas()
    index = None
    if len(levels) == 1:
        index = pandas.RangeIndex(shape[0], name=levels[0])
    elif levels:
        index = pandas.MultiIndex.from_product([range(size) for size in shape], names=levels)
    flat = {column: tensor.reshape(-1).numpy() for column, tensor in columns.items()}
    return pandas.DataFrame(flat, index=index)


def import_pandas() -> Any:
    """Import pandas, or raise an ImportError that says how to install it."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "to_frame needs pandas, which is not installed. Run pip install pandas."
        ) from error
    return pd


def _columns(name: str, value: Any) -> list[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        return [(name, value)]
    return [(f"{name}.{part}", tensor) for part, tensor in parts(value)]


def _numbers(tensor: Tensor) -> Tensor:
    """Convert to a dtype of NumPy, which has no bfloat16."""
    tensor = tensor.detach().cpu()
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _common(
    names: Sequence[str],
    statistics: Mapping[str, Statistic],
    columns: Mapping[str, Tensor],
    leading: int,
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the axes that all statistics share, and their sizes, leading axes included.

    Errors: a ValueError if they differ, or a statistic's own axes are not those of its value.
    """
    axes_of = {name: statistics[name].axes for name in names}
    shapes = {column: tuple(tensor.shape) for column, tensor in columns.items()}
    if len(set(axes_of.values())) > 1 or len(set(shapes.values())) > 1:
        shown = ", ".join(
            f"{column} {list(shape)} of {_axes(axes_of[column.split('.')[0]])}"
            for column, shape in shapes.items()
        )
        raise ValueError(
            f"the statistics of to_frame must have the same axes, got {shown}. Convert each on "
            "its own."
        )
    axes, shape = axes_of[names[0]], next(iter(shapes.values()))
    if len(shape) != leading + len(axes):
        raise ValueError(
            f"the value of {statistics[names[0]]!r} must have the axes that it states, "
            f"{_axes(axes)}, after {leading} of batch and heads, got {list(shape)}. Set axes in "
            "its class."
        )
    return axes, shape


def _axes(axes: Sequence[str]) -> str:
    return " and ".join(axes) or "the whole"


def _leading_names(count: int) -> list[str]:
    """Name the leading axes: `batch`, or `batch_0` and so on, and `head`."""
    batch = [f"batch_{place}" for place in range(count - 1)] if count > 2 else ["batch"]
    return [*batch, "head"][:count]
