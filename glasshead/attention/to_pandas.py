"""Conversion of observations to pandas: one row per position, one column per statistic."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glasshead.attention.io import parts
from glasshead.statistics import Statistic

if TYPE_CHECKING:
    import pandas as pd


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
            "to_frame() takes what has one number a query, and nothing of the kind was observed: "
            f"name one of {', '.join(values) or 'nothing'}."
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
        raise ImportError("to_frame needs pandas, which is missing: pip install pandas.") from error
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

    Errors: a ValueError where they differ, or a statistic's own axes are not those of its value.
    """
    axes_of = {name: statistics[name].axes for name in names}
    shapes = {column: tuple(tensor.shape) for column, tensor in columns.items()}
    if len(set(axes_of.values())) > 1 or len(set(shapes.values())) > 1:
        shown = ", ".join(
            f"{column} {list(shape)} of {_axes(axes_of[column.split('.')[0]])}"
            for column, shape in shapes.items()
        )
        raise ValueError(
            f"to_frame takes statistics of the same axes together, and got {shown}: ask for each "
            f"on its own."
        )
    axes, shape = axes_of[names[0]], next(iter(shapes.values()))
    if len(shape) != leading + len(axes):
        raise ValueError(
            f"{statistics[names[0]]!r} says that its axes are {_axes(axes)}, after {leading} of "
            f"batch and heads, and its value is {list(shape)}: set axes in its class."
        )
    return axes, shape


def _axes(axes: Sequence[str]) -> str:
    return " and ".join(axes) or "the whole"


def _leading_names(count: int) -> list[str]:
    """Name the leading axes: `batch`, or `batch_0` and so on, and `head`."""
    batch = [f"batch_{place}" for place in range(count - 1)] if count > 2 else ["batch"]
    return [*batch, "head"][:count]
