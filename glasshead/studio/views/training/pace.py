"""Pace: how far a training is, how fast it goes, and whether it goes on."""

import math
from itertools import pairwise
from typing import Any, Literal

from glasshead.studio.views.training.curves import VALIDATION
from glasshead.studio.views.training.rows import Rows

Phase = Literal["waiting", "going", "quiet", "finished", "patience"]
# Speed is that of the last rows, so many that some of them waited for a validation; whoever is
# silent for some times the longest of their gaps, and for so many seconds, has stopped.
_ROWS = 100
_GAPS, _SECONDS, _BEFORE_ANY = 4.0, 20.0, 600.0


def pace_of(rows: Rows, config: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    """Steps done and of how many, seconds, steps a second, seconds left, and how it has ended.

    >>> rows = Rows(["seconds"], [10, 20, 40], [[1.0], [3.0], [7.0]])
    >>> told = pace_of(rows, {"training": {"steps": 100}}, {})
    >>> told["step"], told["steps"], told["speed"], told["left"], told["ended"]
    (40, 100, 5.0, 12.0, None)
    """
    settings = _object(config, "training")
    steps = _count(settings.get("steps"))
    step = rows.steps[-1] if rows.steps else 0
    times, seconds = rows.column("seconds")
    speed = _speed(times[-_ROWS:], seconds[-_ROWS:])
    ended = _ended(rows, steps, _count(settings.get("patience")), metrics)
    left = None
    if steps is not None and speed is not None and ended is None:
        left = max(0, steps - step) / speed
    return {
        "step": step,
        "steps": steps,
        "seconds": seconds[-1] if seconds and math.isfinite(seconds[-1]) else None,
        "speed": speed,
        "left": left,
        "ended": ended,
        "patience": _count(settings.get("patience")),
        "silence": _silence(seconds[-_ROWS:]),
    }


def phase_of(pace: dict[str, Any], age: float) -> Phase:
    """What a training does, of which a file was written to `age` seconds ago.

    >>> phase_of({"ended": None, "silence": 20.0, "step": 40}, 3.0)
    'going'
    """
    if pace["ended"]:
        return pace["ended"]
    if age > pace["silence"]:
        return "quiet"
    return "going" if pace["step"] else "waiting"


def best_of(metrics: dict[str, Any]) -> dict[str, Any] | None:
    """The best validation, by which figure it is the best, and its value; None: none yet."""
    best, monitor = _object(metrics, "best"), metrics.get("monitor")
    step, value = _count(best.get("step")), best.get(str(monitor))
    if step is None or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return {"step": step, "monitor": str(monitor), "value": value}


def _ended(
    rows: Rows, steps: int | None, patience: int | None, metrics: dict[str, Any]
) -> Phase | None:
    if steps is not None and rows.steps and rows.steps[-1] >= steps:
        return "finished"
    best = best_of(metrics)
    if patience is None or best is None:
        return None
    validated = {step for name in rows.columns for step in _validations(rows, name)}
    return "patience" if sum(step > best["step"] for step in validated) >= patience else None


def _validations(rows: Rows, name: str) -> list[int]:
    return rows.column(name)[0] if name.startswith(VALIDATION) else []


def _speed(steps: list[int], seconds: list[float]) -> float | None:
    if len(steps) < 2 or not seconds[-1] > seconds[0]:
        return None
    speed = (steps[-1] - steps[0]) / (seconds[-1] - seconds[0])
    return speed if math.isfinite(speed) and speed > 0 else None


def _silence(seconds: list[float]) -> float:
    gaps = [b - a for a, b in pairwise(seconds) if math.isfinite(b - a)]
    return max(_SECONDS, _GAPS * max(gaps)) if gaps else _BEFORE_ANY


def _object(of: dict[str, Any], name: str) -> dict[str, Any]:
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15
    return value if good else None
