"""Heads: what was read of each head of a run over its steps, and the alarms."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from glasshead.drawing.printable import printable
from glasshead.studio.views.training.thinning import as_json, buckets
from glasshead.watching.alarms import Alarm, Reading

# Of several steps the number is told that comes closest to an alarm.
_CLOSEST = {"normalized_entropy": min, "max_score": max}
_WHOLE = {"normalized_entropy": [0.0, 1.0]}
_CELLS, _FEWEST, _MOST = 2**14, 16, 512
_HEADS = 1024
_ALARMS = 200
_LETTERS = 120

Head = tuple[str, int]


def heads_of(readings: Sequence[Reading]) -> dict[str, Any]:
    """Each measure as a row for each head and a column for each step, or bucket of steps.

    A bucket has the smallest entropy and the largest score of its steps; the last step is always
    on its own. A head that was not seen there has None. `range` is what the colours stand for.

    >>> told = heads_of([Reading(1, "a", 0, 2.0, 0.5, 3.0), Reading(9, "a", 0, 1.0, 0.25, 7.0)])
    >>> told["columns"], told["measures"]["max_score"]
    ([[1, 1], [9, 9]], {'values': [[3.0, 7.0]], 'range': [0.0, 7.0]})
    """
    heads = _heads(readings)
    shown = {head: row for row, head in enumerate(heads[:_HEADS])}
    steps = sorted({reading.step for reading in readings})
    room = max(_FEWEST, min(_MOST, _CELLS // max(1, len(shown))))
    columns = buckets(len(steps), room)
    column_of = {steps[place]: at for at, bucket in enumerate(columns) for place in bucket}
    # Where a step was made again, its later reading holds.
    latest = {(one.step, one.layer, one.head): one for one in readings}.values()
    layers = list(dict.fromkeys(layer for layer, _ in shown))
    return {
        "layers": [_told(layer) for layer in layers],
        "heads": [[layers.index(layer), head] for layer, head in shown],
        "of_heads": len(heads),
        "columns": [[steps[bucket[0]], steps[bucket[-1]]] for bucket in columns],
        "of_steps": len(steps),
        "measures": {
            name: _measure(name, latest, shown, column_of, len(columns)) for name in _CLOSEST
        },
    }


def alarms_of(alarms: Sequence[Alarm]) -> list[dict[str, Any]]:
    """The alarms, with what the library says of each and its numbers as that writes them."""
    return [
        {
            "step": alarm.step,
            "layer": _told(alarm.layer),
            "head": alarm.head,
            "kind": str(alarm.kind)[:_LETTERS],
            "value": _written(alarm, alarm.value),
            "threshold": _written(alarm, alarm.threshold),
            "sentence": printable(alarm.sentence)[: 4 * _LETTERS],
        }
        for alarm in alarms
    ]


def last_alarms(
    alarms: Sequence[dict[str, Any]] | None, heads: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """The alarms that were raised last, each with the row of its head; None where it has none."""
    told = heads or {"layers": [], "heads": []}
    rows = {(told["layers"][layer], head): row for row, (layer, head) in enumerate(told["heads"])}
    return [
        alarm | {"row": rows.get((alarm["layer"], alarm["head"]))}
        for alarm in (alarms or [])[-_ALARMS:]
    ]


def _written(alarm: Alarm, value: float) -> str:
    return f"{value:.{2 if alarm.kind == 'entropy_collapse' else 3}g}"


def _heads(readings: Iterable[Reading]) -> list[Head]:
    """Layers in the order in which they were read, the heads of each by their numbers."""
    by_layer: dict[str, set[int]] = {}
    for reading in readings:
        by_layer.setdefault(reading.layer, set()).add(reading.head)
    return [(layer, head) for layer, heads in by_layer.items() for head in sorted(heads)]


def _measure(
    name: str,
    readings: Iterable[Reading],
    shown: dict[Head, int],
    column_of: dict[int, int],
    columns: int,
) -> dict[str, Any]:
    values: list[list[float | None]] = [[None] * columns for _ in shown]
    for reading in readings:
        row = shown.get((reading.layer, reading.head))
        if row is not None:
            at = column_of[reading.step]
            values[row][at] = _kept(values[row][at], getattr(reading, name), _CLOSEST[name])
    finite = [x for row in values for x in row if x is not None and math.isfinite(x)]
    return {
        "values": [[as_json(value) for value in row] for row in values],
        "range": _WHOLE.get(name, [min(0.0, *finite), max(0.0, *finite)] if finite else [0.0, 0.0]),
    }


def _kept(known: float | None, value: float, pick: Any) -> float:
    """What is NaN gives way to whatever is a number."""
    if known is None or math.isnan(known):
        return value
    return known if math.isnan(value) else pick(known, value)


def _told(layer: str) -> str:
    return printable(layer[:_LETTERS])
