"""The view `training`: curves, heads, alarms and speed of a run."""

import hashlib
import math
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Literal

from glasshead.drawing.printable import printable
from glasshead.message import _
from glasshead.studio.background_jobs import NotThere
from glasshead.studio.panel import Panel
from glasshead.studio.views.training_findings import findings_of
from glasshead.studio.views.training_heads import alarm_groups, alarms_of, heads_of, last_alarms
from glasshead.studio.views.training_log import (
    NO_ROWS,
    FileCache,
    LogRows,
    as_json,
    count_of,
    downsampled,
    mark_of,
    read_rows,
    smoothed,
)
from glasshead.tasks.run_folder import VALIDATION, RunFolder

WORDS = {
    "training.title": _("Training"),
    "training.what": _(
        "This page follows a training run: its loss, its attention heads and their alarms."
    ),
    "training.none": _(
        "No training run loaded. Start the studio with a run folder, which `glasshead train` "
        "writes."
    ),
    "training.away": _(
        "The run folder is missing at the moment. This page continues by itself when the "
        "folder is back."
    ),
    "training.phase.waiting": _("Waiting for the first row"),
    "training.phase.going": _("In progress"),
    "training.phase.quiet": _("No progress since step {step}"),
    "training.phase.finished": _("Finished"),
    "training.phase.patience": _("Finished early"),
    "training.said.waiting": _("Nothing has been logged yet. The files were created {age} ago."),
    "training.said.going": _("Last written {age} ago."),
    "training.said.quiet": _(
        "Nothing has been written for {age}. If training was interrupted, run its command "
        "again with --resume."
    ),
    "training.said.finished": _("Last written {age} ago."),
    "training.said.patience": _(
        "Stopped, because validation no longer improved (patience: {patience}). Last written "
        "{age} ago."
    ),
    "training.progress": _("Step {step} of {steps}"),
    "training.progress.open": _("Step {step}"),
    "training.figure.step": _("step"),
    "training.figure.left": _("time left"),
    "training.figure.seconds": _("time taken"),
    "training.figure.speed": _("steps per second"),
    "training.figure.loss": _("training loss"),
    "training.figure.best": _("best validation"),
    "training.figure.learning_rate": _("learning rate"),
    "training.smoothing": _("Smoothing"),
    "training.smoothing.none": _("none"),
    "training.loss": _("Loss"),
    "training.curve.loss": _("training"),
    "training.curve.smoothed": _("training, smoothed"),
    "training.curve.validation": _("validation"),
    "training.metric": _("Validation: {name}"),
    "training.metric.loss": _("loss"),
    "training.metric.perplexity": _("perplexity"),
    "training.metric.bits_per_character": _("bits per character"),
    "training.metric.accuracy": _("accuracy"),
    "training.learning_rate": _("Learning rate"),
    "training.best": _("best validation"),
    "training.step": _("step"),
    "training.at_step": _("{label} (step {step})"),
    "training.thinned": _(
        "The chart shows the smallest and the largest number of every few rows. log.csv "
        "contains all {count} rows."
    ),
    "training.repeats": _(
        "{repeats} of the {of} texts in each batch are random tokens that repeat. Their first "
        "occurrences cannot be predicted, which raises the training loss."
    ),
    "training.the_model": _("the model"),
    "training.rows": _("The last rows and validations of log.csv"),
    "training.log.y": _("Logarithmic values"),
    "training.log.x": _("Logarithmic steps"),
    "training.keys": _(
        "Drag over a chart to zoom, or turn the wheel with Ctrl; on the keyboard, + and − zoom, "
        "and 0 shows the whole run."
    ),
}


_POINTS = 1200
_LAST, _VALIDATIONS = 8, 4
_LOSS, _RATE = "loss", "learning_rate"
# The name of the smoothed loss; log columns have no spaces, so it is unique.
_SMOOTHED = "smoothed loss"

Span = tuple[int, int]
"""The first and the last step of a part of a run."""


def charts_of(
    rows: LogRows, smoothing: float, span: Span | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return the curves of each chart as lists of steps and values.

    The losses come first, with the smoothed one where β > 0, then each other validation metric,
    and last the learning rate; charts without data are left out.

    Args:
        rows: Rows of the log.
        smoothing: β of the smoothed loss, which is the mean of all steps before; 0 for none.
        span: The part to return, with a point on each side of it, and the first and the last of
            all; None: all.

    >>> charts_of(LogRows(["loss"], [3, 5], [[4.0], [1.0]]), 0.5)["loss"][1]
    {'name': 'smoothed loss', 'steps': [3, 5], 'values': [4.0, 2.0]}
    """
    checked = [name for name in dict.fromkeys(rows.columns) if name.startswith(VALIDATION)]
    others = [name for name in checked if name != VALIDATION + _LOSS]
    charts = {_LOSS: [_LOSS, _SMOOTHED, VALIDATION + _LOSS]}
    charts |= {name: [name] for name in [*others, _RATE]}
    drawn = {
        name: [curve for one in names if (curve := _curve(rows, one, smoothing, span))]
        for name, names in charts.items()
    }
    return {name: curves for name, curves in drawn.items() if curves}


def table_of(rows: LogRows) -> dict[str, Any]:
    """Return the last rows of the log and the last validations, at full precision.

    >>> rows = LogRows(["loss", "validation_loss"], [3, 5], [[4.0, 4.5], [1.0, None]])
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


def _curve(rows: LogRows, name: str, smoothing: float, span: Span | None) -> dict[str, Any] | None:
    steps, values = rows.column(_LOSS if name == _SMOOTHED else name)
    if not steps or (name == _SMOOTHED and smoothing == 0):
        return None
    if name == _SMOOTHED:
        values = smoothed(values, smoothing)
    if span is not None:
        first, last = bisect_left(steps, span[0]) - 1, bisect_right(steps, span[1])
        part = sorted({0, *range(max(0, first), min(last + 1, len(steps))), len(steps) - 1})
        steps, values = [steps[at] for at in part], [values[at] for at in part]
    some, of_them = downsampled(steps, values, _POINTS)
    return {"name": name, "steps": some, "values": [*map(as_json, of_them)]}


Note = tuple[str, dict[str, str]]


def repeats_of(config: dict[str, Any]) -> list[Note]:
    """Return a note on the texts of random tokens in a batch; none without them.

    >>> repeats_of({"data": {"batch_size": 7, "repeats": 3}})
    [('training.repeats', {'repeats': '3', 'of': '7'})]
    """
    data = _object(config, "data")
    repeats, of = _count(data.get("repeats")), _count(data.get("batch_size"))
    if not repeats or of is None:
        return []
    return [("training.repeats", {"repeats": count_of(repeats), "of": count_of(of)})]


def notes_of(
    rows: LogRows, heads: dict[str, Any] | None, alarms: Sequence[Any], raised: int
) -> list[Note]:
    """Return notes on what the view leaves out: the name of each string, and its placeholders.

    Args:
        rows: Rows of the log.
        heads: As from `heads_of`; None if the run was not watched.
        alarms: The alarms shown.
        raised: Number of alarms raised.

    >>> heads = {"heads": [[0, 0]], "of_heads": 2, "columns": [], "of_steps": 0}
    >>> notes_of(LogRows([], [], []), heads, [], 0)
    [('training.heads.left_out', {'shown': '1', 'count': '2'})]
    """
    notes: list[Note] = []
    if len(rows.steps) > _POINTS:
        notes.append(("training.thinned", {"count": count_of(len(rows.steps))}))
    if heads is None:
        return notes
    if heads["of_steps"] > len(heads["columns"]):
        notes.append(("training.thinned.heads", {"count": count_of(heads["of_steps"])}))
    shown, of = len(heads["heads"]), heads["of_heads"]
    if of > shown:
        notes.append(("training.heads.left_out", {"shown": count_of(shown), "count": count_of(of)}))
    if raised > len(alarms):
        counts = {"shown": count_of(len(alarms)), "count": count_of(raised)}
        notes.append(("training.alarms.some", counts))
    return notes


Phase = Literal["waiting", "going", "quiet", "finished", "patience"]
# Speed is measured over the last rows, enough to span a validation. A run has stopped when it is
# silent for `_GAPS` times the longest gap between them, and for `_SECONDS`.
_ROWS = 100
_GAPS, _SECONDS, _BEFORE_ANY = 4.0, 20.0, 600.0


def pace_of(rows: LogRows, config: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the progress of a run: steps, elapsed seconds, steps per second, seconds left, end.

    >>> rows = LogRows(["seconds"], [10, 20, 40], [[1.0], [3.0], [7.0]])
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
        "silence": _stalled_after(seconds[-_ROWS:]),
    }


def phase_of(pace: dict[str, Any], age: float) -> Phase:
    """Return the phase of a run whose files were last written `age` seconds ago.

    >>> phase_of({"ended": None, "silence": 20.0, "step": 40}, 3.0)
    'going'
    """
    if pace["ended"]:
        return pace["ended"]
    if age > pace["silence"]:
        return "quiet"
    return "going" if pace["step"] else "waiting"


def best_of(metrics: dict[str, Any]) -> dict[str, Any] | None:
    """Return step, metric and value of the best validation, or None before the first."""
    best, monitor = _object(metrics, "best"), metrics.get("monitor")
    step, value = _count(best.get("step")), best.get(str(monitor))
    if step is None or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return {"step": step, "monitor": str(monitor), "value": value}


def figures_of(
    rows: LogRows, pace: dict[str, Any], best: dict[str, Any] | None, phase: Phase
) -> dict[str, Any]:
    """Return the last numbers of a run by name; None for one that it does not have.

    >>> rows = LogRows(["loss"], [10, 20], [[3.0], [2.5]])
    >>> figures = figures_of(rows, pace_of(rows, {}, {}), None, "going")
    >>> figures["step"], figures["loss"], figures["best"]
    (20, 2.5, None)
    """
    last = {name: rows.column(name)[1][-1:] for name in (_LOSS, _RATE)}
    loss, rate = (as_json(values[0]) if values else None for values in last.values())
    return {
        "step": pace["step"],
        "loss": loss,
        "best": None if best is None else best["value"],
        "learning_rate": rate,
        "speed": _mean_speed(pace),
        "seconds": pace["seconds"],
        # How long a run takes that does not go on is not known.
        "left": None if phase == "quiet" else pace["left"],
    }


def _ended(
    rows: LogRows, steps: int | None, patience: int | None, metrics: dict[str, Any]
) -> Phase | None:
    if steps is not None and rows.steps and rows.steps[-1] >= steps:
        return "finished"
    best = best_of(metrics)
    if patience is None or best is None:
        return None
    checked = [name for name in rows.columns if name.startswith(VALIDATION)]
    validated = {step for name in checked for step in rows.column(name)[0]}
    return "patience" if sum(step > best["step"] for step in validated) >= patience else None


def _speed(steps: list[int], seconds: list[float]) -> float | None:
    if len(steps) < 2 or not seconds[-1] > seconds[0]:
        return None
    speed = (steps[-1] - steps[0]) / (seconds[-1] - seconds[0])
    return speed if math.isfinite(speed) and speed > 0 else None


def _mean_speed(pace: dict[str, Any]) -> float | None:
    # Next to the steps and the time taken stands the number that these two give.
    return pace["step"] / pace["seconds"] if pace["seconds"] and pace["step"] else None


def _stalled_after(seconds: list[float]) -> float:
    gaps = [b - a for a, b in pairwise(seconds) if math.isfinite(b - a)]
    return max(_SECONDS, _GAPS * max(gaps)) if gaps else _BEFORE_ANY


def _object(of: dict[str, Any], name: str) -> dict[str, Any]:
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15
    return value if good else None


def _attention_of(folder: Path) -> tuple[dict[str, Any] | None, list[dict[str, Any]] | None]:
    from glasshead.tasks.training.logs import read_attention_log

    log = read_attention_log(folder)
    return heads_of(log.readings), alarms_of(log.alarms)


class TrainingLog:
    r"""The data of the view, read from a run folder that may change at any time.

    Only files that have changed since the last call are read again.

    Args:
        folder: The run folder; it may be written to, vanish and come back.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "config.json").write_text('{"training": {"steps": 40}}')
    >>> _ = (folder / "log.csv").write_text("step,loss\n10,2.5\n20,1.5\n")
    >>> log = TrainingLog(folder)
    >>> told = log.summary()
    >>> told["pace"]["step"], told["pace"]["steps"], told["charts"]["loss"][0]["values"]
    (20, 40, [2.5, 1.5])
    >>> log.summary(version=told["version"])["changed"]
    False
    """

    def __init__(self, folder: Path) -> None:
        run = self._run = RunFolder(folder)
        self._lock = threading.Lock()
        self._config = FileCache([run.config], run.read_config, {})
        self._metrics = FileCache([run.metrics, run.config], run.read_metrics, {})
        self._rows = FileCache([run.log], lambda: read_rows(run.log), NO_ROWS)
        self._attention = FileCache(
            [run.attention, run.alarms], lambda: _attention_of(folder), (None, None)
        )
        self._failure = FileCache([run.failure], run.read_failure, {})
        self._files = (self._config, self._metrics, self._rows, self._attention, self._failure)
        self._cached_pace: tuple[str, dict[str, Any]] | None = None

    def summary(
        self,
        version: str | None = None,
        smoothing: float = 0.0,
        span: Span | None = None,
        others: "Mapping[str, TrainingLog] | None" = None,
    ) -> dict[str, Any]:
        """Return all data as JSON; where it equals `version`, only its age and phase.

        Args:
            version: The `version` of an earlier answer.
            smoothing: β of the smoothed loss; 0 for none.
            span: The part of the curves to return; None: all.
            others: Runs whose curves are returned too, by name; one that is not there is left out.

        Errors: `NotThere` if there is no run at the moment.
        """
        states = {name: other.state() for name, other in (others or {}).items()}
        with self._lock:
            self._check_there()
            state = self._refreshed()
            pace = self._pace(state)
            age = self._age()
            phase = phase_of(pace, age)
            asked = f"{state} {phase} {smoothing} {span} {states}"
            current = hashlib.sha256(asked.encode()).hexdigest()[:16]
            status = {
                "changed": current != version,
                "version": current,
                "age": round(age, 1),
                "phase": phase,
            }
            if current == version:
                return status
            data = self._all(pace, phase, smoothing, span)
        curves = {
            name: other.curves(smoothing, span)
            for name, other in (others or {}).items()
            if states[name] is not None
        }
        return status | data | {"others": curves}

    def state(self) -> str | None:
        """Read the files that have changed; return what changes with them, None without a run."""
        with self._lock:
            if not self._run.config.exists():
                return None
            state = self._refreshed()
            return f"{state} {phase_of(self._pace(state), self._age())}"

    def curves(self, smoothing: float, span: Span | None) -> dict[str, Any]:
        """Return the figures and curves of a run, as they were when its state was last asked for.

        Args:
            smoothing: β of the smoothed loss; 0 for none.
            span: The part of the curves to return; None: all.
        """
        with self._lock:
            rows, (heads, raised) = self._rows.value, self._attention.value
            extremes = {
                name: measure["extreme"]
                for name, measure in ({} if heads is None else heads["measures"]).items()
            }
            pace = pace_of(rows, self._config.value, self._metrics.value)
            best = best_of(self._metrics.value)
            return {
                "best": best,
                "figures": figures_of(rows, pace, best, phase_of(pace, self._age())),
                "charts": charts_of(rows, smoothing, span),
                "columns": [] if heads is None else heads["columns"],
                "extremes": extremes,
                "found": findings_of(rows, raised, heads),
            }

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the run, as they were when its state was last asked for."""
        with self._lock:
            return self._config.value

    def _refreshed(self) -> str:
        for file in self._files:
            file.refresh()
        return repr([file.state for file in self._files])

    def _all(
        self, pace: dict[str, Any], phase: Phase, smoothing: float, span: Span | None
    ) -> dict[str, Any]:
        rows, (heads, raised) = self._rows.value, self._attention.value
        alarms = last_alarms(raised, heads)
        problems = [file.problem for file in self._files]
        problems.append(self._failure.value.get("error"))
        best = best_of(self._metrics.value)
        return {
            "pace": pace,
            "best": best,
            "figures": figures_of(rows, pace, best, phase),
            "charts": charts_of(rows, smoothing, span),
            "table": table_of(rows),
            "heads": heads,
            "alarms": alarms,
            "found": findings_of(rows, raised, heads),
            "groups": alarm_groups(raised),
            "notes": [
                *repeats_of(self._config.value),
                *notes_of(rows, heads, alarms, len(raised or [])),
            ],
            "problems": [*filter(None, dict.fromkeys(problems))],
        }

    def _pace(self, state: str) -> dict[str, Any]:
        if self._cached_pace is None or self._cached_pace[0] != state:
            pace = pace_of(self._rows.value, self._config.value, self._metrics.value)
            self._cached_pace = (state, pace)
        return self._cached_pace[1]

    def _age(self) -> float:
        """Return the seconds since a file of the run was last written."""
        run = self._run
        files = (run.config, run.metrics, run.log, run.attention, run.alarms, run.checkpoint)
        marks = [mark for mark in map(mark_of, files) if mark is not None]
        return max(0.0, time.time() - max((mark[0] for mark in marks), default=0) / 1e9)

    def _check_there(self) -> None:
        run = self._run
        if not run.path.is_dir():
            raise NotThere(
                "there is no folder {name} at the moment.", name=printable(str(run.path))
            )
        if not run.config.exists():
            raise NotThere(
                "there is no run in {name} at the moment: it has no {file}.",
                name=printable(str(run.path)),
                file=run.config.name,
            )


PANEL = Panel(words=WORDS)
