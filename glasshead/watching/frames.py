"""Frames: what was seen as one table for pandas."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from glasshead.attention.to_pandas import import_pandas
from glasshead.statistics import Statistic
from glasshead.watching.watched import Call, Watched

if TYPE_CHECKING:
    import pandas as pd


def frame(watched: Mapping[str, Watched], names: Sequence[str | Statistic]) -> "pd.DataFrame":
    """All calls below each other, as `Seen.to_frame` has them."""
    pandas = import_pandas()
    if not watched:
        raise ValueError("to_frame takes what was seen, and nothing was: run the model first.")
    tables, keys = [], []
    for name, calls in watched.items():
        for place, call in enumerate(calls):
            table = call.to_frame(*names)
            table = _numbered(table, call)
            tables.append(table)
            keys.append((name, place))
    return pandas.concat(tables, keys=keys, names=["layer", "call"])


def _numbered(table: "pd.DataFrame", call: Call) -> "pd.DataFrame":
    """The same with queries numbered as in the text, and heads as in the model."""
    if not call.position and call.heads is None:
        return table
    index = table.index.to_frame(index=False)
    if "query" in index:
        index["query"] += call.position
    if "head" in index and call.heads is not None:
        index["head"] = [call.heads[head] for head in index["head"]]
    return table.set_index([index[name] for name in index.columns])
