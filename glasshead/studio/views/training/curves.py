"""Curves: the columns of a log over its steps, chart by chart."""

from itertools import islice
from typing import Any

from glasshead.studio.views.training.rows import Rows
from glasshead.studio.views.training.thinning import as_json, smoothed, thinned

_POINTS = 1200
_LAST, _VALIDATIONS = 8, 4
VALIDATION = "validation_"
_LOSS, _RATE = "loss", "learning_rate"
# The name of the smoothed loss; no column of a log has a space.
_SMOOTHED = "smoothed loss"


def charts_of(rows: Rows, smoothing: float) -> dict[str, list[dict[str, Any]]]:
    """The curves of each chart as points: their steps and values.

    First the losses, the smoothed one among them where it is asked for, then each other figure of
    the validation, and last the learning rate; none where a log has none of them.

    >>> charts_of(Rows(["loss"], [3, 5], [[4.0], [1.0]]), 0.5)["loss"][1]
    {'name': 'smoothed loss', 'steps': [3, 5], 'values': [4.0, 2.0]}
    """
    checked = [name for name in dict.fromkeys(rows.columns) if name.startswith(VALIDATION)]
    others = [name for name in checked if name != VALIDATION + _LOSS]
    charts = {_LOSS: [_LOSS, _SMOOTHED, VALIDATION + _LOSS]}
    charts |= {name: [name] for name in [*others, _RATE]}
    drawn = {
        name: [curve for one in names if (curve := _curve(rows, one, smoothing))]
        for name, names in charts.items()
    }
    return {name: curves for name, curves in drawn.items() if curves}


def is_thinned(rows: Rows) -> bool:
    """Whether a curve has fewer points than the log has rows."""
    return len(rows.steps) > _POINTS


def table_of(rows: Rows) -> dict[str, Any]:
    """The last rows, and the last ones that have a validation, exact.

    >>> rows = Rows(["loss", "validation_loss"], [3, 5], [[4.0, 4.5], [1.0, None]])
    >>> table_of(rows)["rows"]
    [[3, 4.0, 4.5], [5, 1.0, None]]
    """
    count = len(rows.steps)
    checked = [at for at, name in enumerate(rows.columns) if name.startswith(VALIDATION)]
    validated = (
        at
        for at in reversed(range(count))
        if any(rows.values[at][one] is not None for one in checked)
    )
    places = sorted({*range(count)[-_LAST:], *islice(validated, _VALIDATIONS)})
    return {
        "columns": ["step", *rows.columns],
        "rows": [[rows.steps[at], *map(as_json, rows.values[at])] for at in places],
    }


def _curve(rows: Rows, name: str, smoothing: float) -> dict[str, Any] | None:
    steps, values = rows.column(_LOSS if name == _SMOOTHED else name)
    if not steps or (name == _SMOOTHED and smoothing == 0):
        return None
    if name == _SMOOTHED:
        values = smoothed(values, smoothing)
    some, of_them = thinned(steps, values, _POINTS)
    return {"name": name, "steps": some, "values": [*map(as_json, of_them)]}
