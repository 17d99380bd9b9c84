"""The heads of a run while they learned, and the alarms that they raised."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from glasshead.drawing.printable import printable
from glasshead.message import _
from glasshead.studio.panel import Panel
from glasshead.studio.views.training_log import as_json, buckets
from glasshead.watching.alarms import Alarm, AlarmRule, HeadReading

WORDS = {
    "training.alarm": _("alarm"),
    "training.thinned.heads": _(
        "The chart groups neighboring steps and shows their smallest and largest number. "
        "attention.csv contains all {count} readings of each head."
    ),
    "training.heads.left_out": _("{shown} of {count} heads are shown."),
    "training.heads": _("Heads"),
    "training.unwatched": _(
        "This training run was not watched. `glasshead train --watch` records the heads "
        "during training."
    ),
    "training.measure.normalized_entropy": _("Entropy, as a share of its maximum"),
    "training.measure.max_score": _("Maximum score"),
    "training.reading.normalized_entropy": _("entropy"),
    "training.reading.max_score": _("maximum score"),
    "training.head": _("head {head}"),
    "training.alarms": _("Alarms"),
    "training.alarms.none": _("No head has raised an alarm."),
    "training.alarms.some": _("The last {shown} of {count} alarms."),
    "training.sentence": _("Message"),
    "training.said.entropy_collapse": _(
        "step {step}: the entropy of head {head} in {layer} is {value} of its maximum, below "
        "{threshold}. Lower the learning rate, warm up for longer, or normalize queries and keys."
    ),
    "training.said.maximum_logit": _(
        "step {step}: the maximum score of head {head} in {layer} is {value}, above {threshold}. "
        "Lower the learning rate, warm up for longer, or normalize queries and keys."
    ),
    "training.messages": _("All alarms"),
    "training.rule": _(
        "A head raises an alarm at its second reading in a row beyond a threshold, once per kind."
    ),
    "training.kind.entropy_collapse": _("Entropy below {threshold} of its maximum"),
    "training.kind.maximum_logit": _("Maximum score above {threshold}"),
    "training.group": _("{name} · steps: {steps}"),
    "training.layer": _("{layer}: heads"),
    "training.more": _("and {count} more"),
    "training.threshold": _("alarm at {value}"),
    "training.empty": _("no value at these steps"),
    "training.extreme.normalized_entropy": _("Lowest entropy of any head"),
    "training.extreme.max_score": _("Highest score of any head"),
}


# How the steps of a bucket are reduced: to the value closest to an alarm.
_REDUCTIONS = {"normalized_entropy": min, "max_score": max}
_WHOLE = {"normalized_entropy": [0.0, 1.0]}
_RULE = AlarmRule()
_THRESHOLDS = {"normalized_entropy": _RULE.entropy, "max_score": _RULE.score}
_CELLS, _FEWEST, _MOST = 2**14, 16, 512
_HEADS = 1024
_ALARMS = 200
_LETTERS = 120

Head = tuple[str, int]


def heads_of(readings: Sequence[HeadReading]) -> dict[str, Any]:
    """Return each measure as a matrix of heads by steps, or by buckets of steps.

    A bucket has the smallest entropy and the largest score of its steps; the last step has its own
    bucket. Missing readings are None. `extreme` is that of all heads, those that are not shown
    among them, `range` the range of the color scale, and `threshold` what alarms are raised
    beyond.

    >>> first = HeadReading(1, "a", 0, 2.0, 0.5, 3.0)
    >>> told = heads_of([first, HeadReading(9, "a", 1, 1.0, 0.25, 7.0)])
    >>> told["columns"], told["measures"]["max_score"]["values"]
    ([[1, 1], [9, 9]], [[3.0, None], [None, 7.0]])
    >>> {name: told["measures"]["max_score"][name] for name in ("extreme", "range", "threshold")}
    {'extreme': [3.0, 7.0], 'range': [0.0, 7.0], 'threshold': 100.0}
    """
    heads = _heads(readings)
    shown = {head: row for row, head in enumerate(heads[:_HEADS])}
    steps = sorted({reading.step for reading in readings})
    room = max(_FEWEST, min(_MOST, _CELLS // max(1, len(shown))))
    columns = buckets(len(steps), room)
    column_of = {steps[place]: at for at, bucket in enumerate(columns) for place in bucket}
    # Where a step was repeated after resuming, the later reading wins.
    latest = {(one.step, one.layer, one.head): one for one in readings}.values()
    layers = list(dict.fromkeys(layer for layer, _ in shown))
    return {
        "layers": [_layer_name(layer) for layer in layers],
        "heads": [[layers.index(layer), head] for layer, head in shown],
        "of_heads": len(heads),
        "columns": [[steps[bucket[0]], steps[bucket[-1]]] for bucket in columns],
        "of_steps": len(steps),
        "measures": {
            name: _measure(name, latest, shown, column_of, len(columns)) for name in _REDUCTIONS
        },
    }


def alarms_of(alarms: Sequence[Alarm]) -> list[dict[str, Any]]:
    """Return the alarms with their sentences, numbers formatted as in these."""
    return [
        {
            "step": alarm.step,
            "layer": _layer_name(alarm.layer),
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
    """Return the latest alarms, each with the row of its head, or None if it is not shown."""
    shown = heads or {"layers": [], "heads": []}
    rows = {(shown["layers"][layer], head): row for row, (layer, head) in enumerate(shown["heads"])}
    return [
        alarm | {"row": rows.get((alarm["layer"], alarm["head"]))}
        for alarm in (alarms or [])[-_ALARMS:]
    ]


def alarm_groups(alarms: Sequence[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Group alarms by kind: how many there are, of how many heads, their first and last step.

    >>> raised = alarms_of([Alarm(step, "a", 1, "maximum_logit", 131.0, 100.0) for step in (7, 9)])
    >>> alarm_groups(raised)
    [{'kind': 'maximum_logit', 'count': 2, 'heads': 1, 'first': 7, 'last': 9}]
    """
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for alarm in alarms or ():
        by_kind.setdefault(alarm["kind"], []).append(alarm)
    return [
        {
            "kind": kind,
            "count": len(of_it),
            "heads": len({(alarm["layer"], alarm["head"]) for alarm in of_it}),
            "first": min(alarm["step"] for alarm in of_it),
            "last": max(alarm["step"] for alarm in of_it),
        }
        for kind, of_it in by_kind.items()
    ]


def _written(alarm: Alarm, value: float) -> str:
    return f"{value:.{2 if alarm.kind == 'entropy_collapse' else 3}g}"


def _heads(readings: Iterable[HeadReading]) -> list[Head]:
    """List the heads, layers in order of first reading and heads by index."""
    by_layer: dict[str, set[int]] = {}
    for reading in readings:
        by_layer.setdefault(reading.layer, set()).add(reading.head)
    return [(layer, head) for layer, heads in by_layer.items() for head in sorted(heads)]


def _measure(
    name: str,
    readings: Iterable[HeadReading],
    shown: dict[Head, int],
    column_of: dict[int, int],
    columns: int,
) -> dict[str, Any]:
    values: list[list[float | None]] = [[None] * columns for _ in shown]
    extreme: list[float | None] = [None] * columns
    for reading in readings:
        row = shown.get((reading.layer, reading.head))
        at, own = column_of[reading.step], getattr(reading, name)
        extreme[at] = _reduced(extreme[at], own, _REDUCTIONS[name])
        if row is not None:
            values[row][at] = _reduced(values[row][at], own, _REDUCTIONS[name])
    finite = [x for row in values for x in row if x is not None and math.isfinite(x)]
    return {
        "values": [[as_json(value) for value in row] for row in values],
        "extreme": [as_json(value) for value in extreme],
        "range": _WHOLE.get(name, [min(0.0, *finite), max(0.0, *finite)] if finite else [0.0, 0.0]),
        "threshold": _THRESHOLDS[name],
    }


def _reduced(known: float | None, value: float, pick: Any) -> float:
    """Reduce two values by `min` or `max`, ignoring NaN where the other is a number."""
    if known is None or math.isnan(known):
        return value
    return known if math.isnan(value) else pick(known, value)


def _layer_name(layer: str) -> str:
    return printable(layer[:_LETTERS])


PANEL = Panel(words=WORDS)
